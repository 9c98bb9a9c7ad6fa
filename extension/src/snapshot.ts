/** Opens a saved snapshot as a document: the diagnosis with all views, without a kernel. */

import {
  ABCWidgetFactory,
  DocumentRegistry,
  DocumentWidget,
  TextModelFactory
} from '@jupyterlab/docregistry';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { Contents } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';

import { ranksIcon } from './icon';
import { Rendered } from './rendered';
import { renderSnapshot } from './server';
import { Timeline } from './timeline';
import { bringIntoView, elementsWith, markIn, markOf } from './viewer/marks';

const TYPE = 'ddt-snapshot';

/** Register `.ddt.json` files as documents. */
export function addSnapshots(
  registry: DocumentRegistry,
  rendermime: IRenderMimeRegistry,
  contents: Contents.IManager,
  trans: TranslationBundle
): void {
  registry.addFileType({
    name: TYPE,
    displayName: trans.__('Snapshot of a Distributed Run'),
    extensions: ['.ddt.json'],
    mimeTypes: ['application/json'],
    contentType: 'file',
    fileFormat: 'text',
    icon: ranksIcon
  });
  registry.addModelFactory(new UnreadModelFactory());
  registry.addWidgetFactory(
    new SnapshotFactory(
      {
        name: 'ddt-snapshot',
        label: trans.__('Diagnosis'),
        modelName: TYPE,
        fileTypes: [TYPE],
        defaultFor: [TYPE],
        readOnly: true
      },
      rendermime,
      contents,
      trans
    )
  );
}

/** Loads no content: the server reads the file, which may have tens of megabytes. */
class UnreadModelFactory extends TextModelFactory {
  constructor() {
    super(false);
  }

  get name(): string {
    return TYPE;
  }

  get fileFormat(): Contents.FileFormat {
    return null;
  }
}

class SnapshotFactory extends ABCWidgetFactory<DocumentWidget> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions,
    private readonly _rendermime: IRenderMimeRegistry,
    private readonly _contents: Contents.IManager,
    private readonly _trans: TranslationBundle
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): DocumentWidget {
    const content = new SnapshotView(context, this._rendermime, this._contents, this._trans);
    return new DocumentWidget({ content, context });
  }
}

class SnapshotView extends Rendered {
  constructor(
    private readonly _context: DocumentRegistry.Context,
    rendermime: IRenderMimeRegistry,
    private readonly _contents: Contents.IManager,
    trans: TranslationBundle
  ) {
    super(rendermime);
    this._timeline = new Timeline(trans, {
      picked: marks => markIn(this.node, marks),
      canReveal: ({ mark }) => elementsWith(this.node, [mark]).length > 0,
      reveal: ({ mark }) => elementsWith(this.node, [mark]).slice(0, 1).forEach(bringIntoView)
    });
    this.node.addEventListener('click', event => {
      const mark = markOf(event.target);
      if (mark) {
        markIn(this.node, [mark]);
        this._timeline.pick(mark);
      }
    });
    this.addClass('ddt-lab-snapshot');
    this.node.tabIndex = 0;
    this.title.icon = ranksIcon;
    this.node.textContent = trans.__('diagnosing …'); // the first diagnosis takes a few seconds
    void _context.ready.then(() => {
      _context.fileChanged.connect(() => void this._load());
      return this._load();
    });
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
  }

  dispose(): void {
    this._timeline.dispose();
    super.dispose();
  }

  private async _load(): Promise<void> {
    try {
      const { parts, viewer } = await renderSnapshot(this._contents.localPath(this._context.path));
      await this.draw(parts);
      this.node.firstElementChild?.after(this._timeline.node); // below the diagnosis
      await this._timeline.draw(viewer);
    } catch (reason) {
      await this.say(reason instanceof Error ? reason.message : String(reason));
    }
  }

  private readonly _timeline: Timeline;
}
