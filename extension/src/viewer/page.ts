/** The viewer in a page that Python wrote, and as an anywidget in any notebook. */

import { decode, IPlace } from './data';
import { bringIntoView, elementsWith, markIn, markOf } from './marks';
import { Viewer } from './viewer';

/** The ids of the place of the viewer, and of its data; views/viewer.py writes them. */
const PLACE = 'ddt-viewer';
const DATA = 'ddt-viewer-data';

interface IModel {
  get(name: string): string;
}

/** Show the viewer in a page, if the page has one. */
async function showIn(page: Document): Promise<void> {
  const place = page.getElementById(PLACE);
  const data = page.getElementById(DATA)?.textContent;
  if (place && data) {
    place.hidden = false;
    await show(place, data, page.querySelector('main') ?? page.body);
  }
}

/** Show the viewer in an output of a notebook. */
async function render({ model, el }: { model: IModel; el: HTMLElement }): Promise<() => void> {
  return show(el, model.get('data'), document.body);
}

/** Show the viewer, connected with the views beside it. Returns what ends it. */
async function show(place: HTMLElement, data: string, views: HTMLElement): Promise<() => void> {
  const viewer = new Viewer(place, await decode(data), {
    picked: marks => markIn(views, marks),
    canReveal: line => lineIn(views, place, line) !== null,
    reveal: line => {
      const shown = lineIn(views, place, line);
      if (shown) {
        bringIntoView(shown);
      }
      if (shown?.isContentEditable) {
        putCursor(shown);
      }
    }
  });
  const onClick = (event: MouseEvent): void => {
    const mark = markOf(event.target);
    if (mark && viewer.pick(mark)) {
      markIn(views, [mark]);
    }
  };
  views.addEventListener('click', onClick);
  return () => {
    views.removeEventListener('click', onClick);
    viewer.dispose();
  };
}

/**
 * Where a line of the program is: in the cell that ran as this number, if its line still has this
 * text, or else in a view. Null if it is in neither.
 */
function lineIn(views: HTMLElement, place: HTMLElement, line: IPlace): HTMLElement | null {
  const cells = Array.from(place.closest('.jp-Notebook')?.querySelectorAll('.jp-CodeCell') ?? []);
  const ran = cells.filter(cell => cell.querySelector('.jp-InputPrompt')?.textContent === `[${line.cell}]:`);
  const found = ran.map(cell => cell.querySelectorAll<HTMLElement>('.cm-line')[(line.line ?? 0) - 1]);
  const code = (one?: Element): string => one?.textContent?.trim() ?? '';
  const same = found.find(one => code(one) && line.text.endsWith(code(one)));
  return same ?? elementsWith(views, [line.mark])[0] ?? null;
}

/** Put the cursor at the beginning of a line of an editor. */
function putCursor(line: Element): void {
  line.closest<HTMLElement>('[contenteditable=true]')?.focus();
  getSelection()?.collapse(line, 0);
}

void showIn(document);

export default { render };
