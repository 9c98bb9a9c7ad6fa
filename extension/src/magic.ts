/** Writes on which ranks a cell runs into its magic, where a reader sees it. */

/** One of ours, also below other magics such as `%%time`. */
const ANY = /^\s*(?:%%[^\n]*\n\s*)*?%%ddt/;
const OURS = /^(\s*%%ddt)(?![\w?])([^\n]*)/;
/** Words of a magic's line; a quoted one may hold blanks. */
const WORD = /(?:"[^"]*"|'[^']*'|[^\s"'])+/g;
const GIVEN = /^(?:--ranks=|-r=?)(.+)$/;

/** A stretch of a cell's source, and what is to stand there. */
export interface IChange {
  start: number;
  end: number;
  text: string;
}

/**
 * What has to change for a cell to run on these ranks; null if nothing has to.
 *
 * `ranks` is null for all of the `size` ranks, and undefined if nobody has chosen: then a magic stays
 * as it was written. Other magics of ours are never touched, and neither are other options.
 */
export function onRanks(
  source: string,
  ranks: number[] | null | undefined,
  size: number
): IChange | null {
  const option = ranks ? ` -r ${rankList(ranks)}` : '';
  if (!ANY.test(source)) {
    return { start: 0, end: 0, text: `%%ddt${option}\n` };
  }
  const found = OURS.exec(source);
  if (!found || ranks === undefined) {
    return null;
  }
  const [whole, head, line] = found;
  const { given, rest } = split(line);
  const same = ranks ?? [...Array(size).keys()];
  const now = given === null ? [...Array(size).keys()] : parse(given);
  if (now && rankList(now) === rankList(same)) {
    return null;
  }
  return { start: head.length, end: whole.length, text: option + rest };
}

/** `0,2-3`, as the magic reads it. */
export function rankList(ranks: number[]): string {
  return spans(ranks).join(',');
}

/** `0` and `2-3` of 3, 0, 2. */
export function spans(ranks: number[]): string[] {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let first = 0, last = 0; first < sorted.length; first = last + 1) {
    for (last = first; sorted[last + 1] === sorted[last] + 1; last++);
    parts.push(last === first ? `${sorted[first]}` : `${sorted[first]}-${sorted[last]}`);
  }
  return parts;
}

/** The ranks that a magic's line names, null if none, and the line without them. */
function split(line: string): { given: string | null; rest: string } {
  const end = /\s*;?\s*$/.exec(line)?.index ?? line.length; // a semicolon silences the view
  const words = [...line.slice(0, end).matchAll(WORD)];
  const comment = words.findIndex(word => word[0].startsWith('#'));
  const options = comment < 0 ? words : words.slice(0, comment);
  let given: string | null = null;
  let rest = line;
  for (let at = options.length - 1; at >= 0; at--) {
    const word = options[at][0];
    const apart = word === '-r' || word === '--ranks';
    const value = apart ? options[at + 1]?.[0] ?? '' : GIVEN.exec(word)?.[1];
    if (value === undefined) {
      continue;
    }
    given ??= value; // of several the last holds
    const last = options[apart ? at + 1 : at] ?? options[at];
    const start = /\s*$/.exec(line.slice(0, options[at].index))!.index;
    rest = rest.slice(0, start) + rest.slice(last.index! + last[0].length);
  }
  return { given, rest };
}

/** The ranks of a list, null if it is none. */
function parse(list: string): number[] | null {
  const ranks: number[] = [];
  for (const part of list.replace(/["']/g, '').split(',')) {
    const found = /^\s*(\d{1,5})(?:-(\d{1,5}))?\s*$/.exec(part);
    if (!found) {
      return null;
    }
    for (let rank = Number(found[1]); rank <= Number(found[2] ?? found[1]); rank++) {
      ranks.push(rank);
    }
  }
  return ranks;
}
