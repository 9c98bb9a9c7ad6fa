/** Opens a saved snapshot as a document: the diagnosis with all views, without a kernel. */

import { ABCWidgetFactory, DocumentRegistry, DocumentWidget } from '@jupyterlab/docregistry';
import { IRenderMimeRegistry, MimeModel } from '@jupyterlab/rendermime';
import { Contents } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

import { ranksIcon } from './icon';
import { renderSnapshot } from './server';

const TYPE = 'ddt-snapshot';

/** Make files that end in `.ddt.json` open as documents. */
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
  registry.addWidgetFactory(
    new SnapshotFactory(
      {
        name: 'ddt-snapshot',
        label: trans.__('Diagnosis'),
        fileTypes: [TYPE],
        defaultFor: [TYPE],
        readOnly: true
      },
      rendermime,
      contents
    )
  );
}

class SnapshotFactory extends ABCWidgetFactory<DocumentWidget> {
  constructor(
    options: DocumentRegistry.IWidgetFactoryOptions,
    private readonly _rendermime: IRenderMimeRegistry,
    private readonly _contents: Contents.IManager
  ) {
    super(options);
  }

  protected createNewWidget(context: DocumentRegistry.Context): DocumentWidget {
    const content = new SnapshotView(context, this._rendermime, this._contents);
    return new DocumentWidget({ content, context });
  }
}

class SnapshotView extends Widget {
  constructor(
    private readonly _context: DocumentRegistry.Context,
    private readonly _rendermime: IRenderMimeRegistry,
    private readonly _contents: Contents.IManager
  ) {
    super();
    this.addClass('ddt-lab-snapshot');
    this.node.tabIndex = 0;
    this.title.icon = ranksIcon;
    this.layout = new PanelLayout();
    void _context.ready.then(() => this._show());
    _context.fileChanged.connect(() => void this._show());
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
  }

  private async _show(): Promise<void> {
    let html: string;
    try {
      html = await renderSnapshot(this._contents.localPath(this._context.path));
    } catch (reason) {
      const told = document.createElement('p');
      told.textContent = reason instanceof Error ? reason.message : String(reason);
      html = told.outerHTML;
    }
    if (this.isDisposed) {
      return;
    }
    // Not trusted: what stands in a file of unknown origin goes through the sanitizer.
    const model = new MimeModel({ data: { 'text/html': html }, trusted: false });
    const renderer = this._rendermime.createRenderer('text/html');
    await renderer.renderModel(model);
    const layout = this.layout as PanelLayout;
    while (layout.widgets.length) {
      layout.widgets[0].dispose();
    }
    layout.addWidget(renderer);
  }
}
