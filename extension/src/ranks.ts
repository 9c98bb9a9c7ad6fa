/** Lists of ranks, such as `0,2-3`. */

/** The ranks of a list, in its order; null if the text is not a list of ranks. */
export function parseRanks(list: string): number[] | null {
  const ranks: number[] = [];
  for (const part of list.split(',')) {
    const match = /^\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?$/.exec(part);
    const first = Number(match?.[1]);
    const last = Number(match?.[2] ?? first);
    if (!match || last < first) {
      return null;
    }
    for (let rank = first; rank <= last; rank++) {
      ranks.push(rank);
    }
  }
  return ranks;
}

/** `0` and `2-3` for 3, 0, 2. */
export function spans(ranks: number[]): string[] {
  const sorted = [...new Set(ranks)].sort((a, b) => a - b);
  const parts: string[] = [];
  for (let first = 0, last = 0; first < sorted.length; first = last + 1) {
    for (last = first; sorted[last + 1] === sorted[last] + 1; last++);
    parts.push(last === first ? `${sorted[first]}` : `${sorted[first]}-${sorted[last]}`);
  }
  return parts;
}

/** `0,2-3`, as `%%ddt -r` takes it. */
export function rankList(ranks: number[]): string {
  return spans(ranks).join(',');
}

/** `rank 0` or `ranks 0, 2-3`. */
export function rankNames(ranks: number[]): string {
  return `${ranks.length === 1 ? 'rank' : 'ranks'} ${spans(ranks).join(', ')}`;
}
