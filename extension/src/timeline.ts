/** The interactive timeline in JupyterLab. */

import { TranslationBundle } from '@jupyterlab/translation';
import { Widget } from '@lumino/widgets';

import type { IOptions, Viewer } from './viewer/viewer';

/** Shows the timeline that the kernel or the server sent. */
export class Timeline extends Widget {
  constructor(
    private readonly _trans: TranslationBundle,
    private readonly _options: Omit<IOptions, 'trans'>
  ) {
    super();
    this.addClass('ddt-lab-timeline');
    this.hide();
  }

  /** Show other data instead; without data, nothing. */
  async draw(data: string): Promise<void> {
    if (data === this._data) {
      return; // what was picked and zoomed stays
    }
    this._data = data;
    const turn = ++this._turn;
    this._viewer?.dispose();
    this._viewer = null;
    this.setHidden(!data);
    if (!data) {
      return;
    }
    // fetched only when it is needed
    const [{ Viewer }, { decode }] = await Promise.all([import('./viewer/viewer'), import('./viewer/data')]);
    const timeline = await decode(data);
    if (turn === this._turn && !this.isDisposed) {
      this._viewer = new Viewer(this.node, timeline, { ...this._options, trans: this._trans });
    }
  }

  /** Pick what has a mark. */
  pick(mark: string): void {
    this._viewer?.pick(mark);
  }

  dispose(): void {
    this._turn++;
    this._viewer?.dispose();
    super.dispose();
  }

  private _viewer: Viewer | null = null;
  private _data = '';
  private _turn = 0;
}
