/** Writes the ranks on which a cell runs into the line of its magic, where a reader sees them. */

import { parseRanks, rankList } from './ranks';

/** A cell with one of our magics, also below other magics such as `%%time`. */
const ANY = /^\s*(?:%%[^\n]*\n\s*)*?%%ddt/;
const OURS = /^(\s*%%ddt)(?![\w?])([^\n]*)/;
/** Words of a magic's line; a quoted word may hold blanks. */
const WORD = /(?:"[^"]*"|'[^']*'|[^\s"'])+/g;
const GIVEN = /^(?:--ranks=|-r=?)(.+)$/;

/** A part of a cell's source, and the text that replaces it. */
export interface IChange {
  start: number;
  end: number;
  text: string;
}

/**
 * The change that makes a cell run on these ranks; null if none is needed.
 *
 * `ranks` is null for all of the `size` ranks, and undefined if the user has chosen none: then a
 * magic stays as it was written. Our other magics and other options never change.
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
  const now =
    given === null ? [...Array(size).keys()] : parseRanks(given.replace(/["']/g, ''));
  if (now && rankList(now) === rankList(same)) {
    return null;
  }
  return { start: head.length, end: whole.length, text: option + rest };
}

/** The ranks that a magic's line names (null if it names none), and the line without them. */
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
    given ??= value; // the last of several options counts
    const last = options[apart ? at + 1 : at] ?? options[at];
    const start = /\s*$/.exec(line.slice(0, options[at].index))!.index;
    rest = rest.slice(0, start) + rest.slice(last.index! + last[0].length);
  }
  return { given, rest };
}
