/** Connects a collective and a line of the program with what other views show of them. */

/** How the class of an element begins that shows a collective or a line; views/marks.py makes it. */
const PREFIX = 'ddt-at-';
const PICKED = 'ddt-picked';

/** Mark what shows one of these collectives or lines, and nothing else. Returns the elements. */
export function markIn(host: ParentNode, marks: string[]): Element[] {
  for (const old of Array.from(host.querySelectorAll(`.${PICKED}`))) {
    old.classList.remove(PICKED);
  }
  const found = elementsWith(host, marks);
  found.forEach(element => element.classList.add(PICKED));
  return found;
}

/** What shows one of these collectives or lines. */
export function elementsWith(host: ParentNode, marks: string[]): HTMLElement[] {
  const classes = marks.filter(mark => /^[0-9a-f]+$/.test(mark)).map(mark => `.${PREFIX}${mark}`);
  return classes.length ? Array.from(host.querySelectorAll<HTMLElement>(classes.join(','))) : [];
}

/** Bring what shows a line into view; what is folded is opened. */
export function bringIntoView(shown: HTMLElement): void {
  for (let fold = closedAround(shown); fold; fold = closedAround(shown)) {
    fold.open = true;
  }
  shown.scrollIntoView({ block: 'center' });
}

function closedAround(shown: HTMLElement): HTMLDetailsElement | null {
  return shown.closest('details:not([open])');
}

/** What the element that was clicked shows; null if it is neither a collective nor a line. */
export function markOf(target: EventTarget | null): string | null {
  const shown = target instanceof Element ? target.closest(`[class*="${PREFIX}"]`) : null;
  const name = shown && Array.from(shown.classList).find(one => one.startsWith(PREFIX));
  return name ? name.slice(PREFIX.length) : null;
}

/** The mark of a collective; the same as in views/marks.py. */
export function markOfCall(group: string, sequence: number): string {
  let sum = -1;
  for (const byte of new TextEncoder().encode(`${group}\0${sequence}`)) {
    sum ^= byte;
    for (let bit = 0; bit < 8; bit++) {
      sum = (sum >>> 1) ^ (sum & 1 ? 0xedb88320 : 0);
    }
  }
  return (~sum >>> 0).toString(16).padStart(8, '0');
}
