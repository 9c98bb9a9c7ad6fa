/** The viewer in a page that Python wrote, and as an anywidget in any notebook. */

import { decode } from './data';
import { markIn, markOf } from './marks';
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
  if (!place || !data) {
    return;
  }
  const timeline = await decode(data);
  const views = page.querySelector('main') ?? page.body;
  place.hidden = false;
  const viewer = new Viewer(place, timeline, { picked: marks => markIn(views, marks) });
  views.addEventListener('click', event => {
    const mark = markOf(event.target);
    if (mark && viewer.pick(mark)) {
      markIn(views, [mark]);
    }
  });
}

/** Show the viewer in an output of a notebook. */
async function render({ model, el }: { model: IModel; el: HTMLElement }): Promise<() => void> {
  const timeline = await decode(model.get('data'));
  const viewer = new Viewer(el, timeline, { picked: marks => markIn(document, marks) });
  return () => viewer.dispose();
}

void showIn(document);

export default { render };
