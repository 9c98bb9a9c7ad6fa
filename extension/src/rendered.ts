/** HTML of unknown origin, drawn through JupyterLab's sanitizer. */

import { IRenderMimeRegistry, renderHTML } from '@jupyterlab/rendermime';
import { Widget } from '@lumino/widgets';

import { IPart } from './server';

export class Rendered extends Widget {
  constructor(private readonly _rendermime: IRenderMimeRegistry) {
    super();
  }

  /**
   * Show these parts instead of what was there; those that have a title are folded below it.
   *
   * One after the other: the page answers in between, and all of it can be searched.
   */
  async draw(parts: IPart[]): Promise<void> {
    const turn = ++this._turn;
    for (const [at, part] of parts.entries()) {
      if (this.isDisposed || turn !== this._turn) {
        return; // closed, or something newer is drawn
      }
      if (at === 0) {
        this.node.replaceChildren();
      }
      await this._draw(part);
      await new Promise(resolve => setTimeout(resolve));
    }
  }

  /** Show a plain sentence instead of what was there. */
  say(text: string): Promise<void> {
    const told = document.createElement('p');
    told.textContent = text;
    return this.draw([{ title: '', html: told.outerHTML }]);
  }

  private async _draw(part: IPart): Promise<void> {
    const host = document.createElement('div');
    host.className = 'jp-RenderedHTMLCommon';
    if (part.title) {
      const fold = document.createElement('details');
      const summary = document.createElement('summary');
      summary.textContent = part.title;
      fold.append(summary, host);
      this.node.append(fold);
    } else {
      this.node.append(host);
    }
    await renderHTML({
      host,
      source: part.html,
      // Not trusted: it holds what ranks printed, or what stands in somebody's file.
      trusted: false,
      sanitizer: this._rendermime.sanitizer,
      resolver: null,
      linkHandler: null,
      // A dollar sign in a line of code is no mathematics.
      shouldTypeset: false,
      latexTypesetter: null
    });
  }

  private _turn = 0;
}
