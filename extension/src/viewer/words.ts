/** Words and numbers of the viewer. */

/** Translates; `%1` is the first argument. JupyterLab's translation bundles are such. */
export interface ITranslate {
  __(text: string, ...values: unknown[]): string;
}

/** Shows the English words. */
export const ENGLISH: ITranslate = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, at) => String(values[Number(at) - 1]))
};

/** A time with its unit, such as `12.3 ms`. */
export function time(us: number): string {
  const size = Math.abs(us);
  const [amount, unit] =
    size < 1000 ? [us, 'µs'] : size < 1e6 ? [us / 1e3, 'ms'] : size < 6e8 ? [us / 1e6, 's'] : [us / 6e7, 'min'];
  const digits = Math.abs(amount) >= 100 ? 0 : Math.abs(amount) >= 10 ? 1 : 2;
  return us === 0 ? '0' : `${Number(amount.toFixed(digits))} ${unit}`;
}

/** The numbers of a text such as `0,2-3`; null if it is not one. Empty: all. */
export function ranksIn(text: string): ((rank: number) => boolean) | null {
  const parts = text.split(',').map(part => part.trim()).filter(Boolean);
  const found: [number, number][] = [];
  for (const part of parts) {
    const match = /^(\d+)(?:\s*-\s*(\d+))?$/.exec(part);
    if (!match) {
      return null;
    }
    found.push([Number(match[1]), Number(match[2] ?? match[1])]);
  }
  return rank => found.length === 0 || found.some(([low, high]) => low <= rank && rank <= high);
}
