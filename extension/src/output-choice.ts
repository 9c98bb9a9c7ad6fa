/** Which lines of the ranks' output are shown, and where the searched text stands in them. */

import { ILine } from './output-lines';

/** `0,2-3`, as `%%ddt -r` takes it: the ranks, null for all of them, undefined for no such text. */
export function parseRanks(text: string): Set<number> | null | undefined {
  if (!text.trim()) {
    return null;
  }
  const ranks = new Set<number>();
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,4})\s*(?:-\s*(\d{1,4})\s*)?$/.exec(part);
    const first = Number(match?.[1]);
    const last = Number(match?.[2] ?? first);
    if (!match || last < first) {
      return undefined;
    }
    for (let rank = first; rank <= last; rank++) {
      ranks.add(rank);
    }
  }
  return ranks;
}

/** Finds a text whatever its case; null for none. */
export function finder(text: string): RegExp | null {
  return text ? new RegExp(text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&'), 'giu') : null;
}

/** The parts of a line, every second of which is a hit. */
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

/** Lines in their order, with which of them hold the searched text. */
export interface IChoice {
  lines: readonly ILine[];
  /** The number of each of `lines`. */
  numbers: number[];
  /** Places in `lines` of those with a hit. */
  hits: number[];
}

/** Choose of lines whose first one has number `first`. */
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

/** As the cells' output says it. */
export function asText(lines: readonly ILine[]): string {
  return lines.map(line => `[rank ${line.rank}] ${line.text}\n`).join('');
}
