/** Draws untrusted HTML through JupyterLab's sanitizer. */

import { IRenderMimeRegistry, renderHTML } from '@jupyterlab/rendermime';
import { Widget } from '@lumino/widgets';

import { IPart } from './server';

export class Rendered extends Widget {
  constructor(private readonly _rendermime: IRenderMimeRegistry) {
    super();
  }

  /**
   * Show these parts instead of the present ones; parts with a title are folded below it.
   *
   * Draws one part at a time, so that the page stays responsive.
   */
  async draw(parts: IPart[]): Promise<void> {
    const turn = ++this._turn;
    for (const [at, part] of parts.entries()) {
      if (this.isDisposed || turn !== this._turn) {
        return; // closed, or a later call draws
      }
      if (at === 0) {
        this.node.replaceChildren();
      }
      await this._draw(part);
      await new Promise(resolve => setTimeout(resolve));
    }
  }

  /** Show a plain sentence instead of the present parts. */
  say(text: string): Promise<void> {
    const paragraph = document.createElement('p');
    paragraph.textContent = text;
    return this.draw([{ title: '', html: paragraph.outerHTML }]);
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
      // Not trusted: it contains text of ranks, or of a file of unknown origin.
      trusted: false,
      sanitizer: this._rendermime.sanitizer,
      resolver: null,
      linkHandler: null,
      // Dollar signs are code here, not mathematics.
      shouldTypeset: false,
      latexTypesetter: null
    });
  }

  private _turn = 0;
}
