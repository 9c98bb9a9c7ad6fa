/** Selects the lines of output that are shown, and finds the searched text in them. */

import { ILine } from './output-lines';

/** A pattern that finds a text in upper or lower case; null for an empty text. */
export function finder(text: string): RegExp | null {
  return text ? new RegExp(text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'giu') : null;
}

/** A line cut into parts; every second part is a match. */
export function parts(text: string, find: RegExp | null): string[] {
  if (!find) {
    return [text];
  }
  const found: string[] = [];
  let end = 0;
  for (const match of text.matchAll(find)) {
    found.push(text.slice(end, match.index), match[0]);
    end = match.index + match[0].length;
  }
  return [...found, text.slice(end)];
}

/** Lines in their order, and which of them contain the searched text. */
export interface IChoice {
  lines: readonly ILine[];
  /** The number of each of `lines`. */
  numbers: number[];
  /** Positions in `lines` of those that contain it. */
  hits: number[];
}

/** Select among lines, the first of which has the number `first`. */
export function choose(
  all: readonly ILine[],
  first: number,
  ranks: Set<number> | null,
  find: RegExp | null,
  onlyHits: boolean
): IChoice {
  const lines: ILine[] = [];
  const numbers: number[] = [];
  const hits: number[] = [];
  all.forEach((line, place) => {
    if (ranks && !ranks.has(line.rank)) {
      return;
    }
    const hit = find !== null && line.text.search(find) >= 0;
    if (onlyHits && find && !hit) {
      return;
    }
    if (hit) {
      hits.push(lines.length);
    }
    lines.push(line);
    numbers.push(first + place);
  });
  return { lines, numbers, hits };
}

/** The lines in the form that the cells' output has. */
export function asText(lines: readonly ILine[]): string {
  return lines.map(line => `[rank ${line.rank}] ${line.text}\n`).join('');
}
