/** The JupyterLab and Notebook 7 extension of ddt_notebook. */

import {
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { IDefaultFileBrowser } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { addCommands } from './commands';
import { addDocumentCommands } from './documents';
import { Follower } from './follower';
import { CommandIDs, PLUGIN_ID } from './ids';
import { RanksPanel } from './panel';
import { Settings } from './settings';
import { addSnapshots } from './snapshot';

const PALETTE = [
  CommandIDs.panel,
  CommandIDs.start,
  CommandIDs.stop,
  CommandIDs.restart,
  CommandIDs.interrupt,
  CommandIDs.freeze,
  CommandIDs.release,
  CommandIDs.runCell,
  CommandIDs.diagnose,
  CommandIDs.explain,
  CommandIDs.save,
  CommandIDs.lesson,
  CommandIDs.tour
];

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: 'The ranks of a distributed training run, beside the notebook that runs it.',
  autoStart: true,
  requires: [INotebookTracker, IRenderMimeRegistry],
  optional: [
    ICommandPalette,
    IDefaultFileBrowser,
    ILauncher,
    ILayoutRestorer,
    ISettingRegistry,
    ITranslator
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    rendermime: IRenderMimeRegistry,
    palette: ICommandPalette | null,
    browser: IDefaultFileBrowser | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('ddt_notebook');
    const settings = new Settings(registry);
    const follower = new Follower(tracker, () => settings.marks);
    const { commands, shell } = app;
    addCommands(commands, follower, trans, () => settings.ranks);
    addDocumentCommands(commands, follower, trans, () => browser?.model.path ?? '');
    addSnapshots(app.docRegistry, rendermime, app.serviceManager.contents, trans);
    launcher?.add({
      command: CommandIDs.tour,
      args: { isLauncher: true },
      category: trans.__('Other'),
      rank: 0
    });
    let before = '';
    follower.changed.connect(() => {
      const session = follower.current?.link.state?.session;
      const now = JSON.stringify([follower.current?.panel.id, session, follower.current?.link.doing]);
      if (now !== before) {
        before = now; // several times a second a cell only goes on: menus need not be drawn anew
        PALETTE.forEach(id => commands.notifyCommandChanged(id));
      }
    });

    const panel = new RanksPanel(follower, { commands, trans, ranks: () => settings.ranks });
    shell.add(panel, 'right', { rank: 700, type: 'Ranks' });
    restorer?.add(panel, panel.id);
    commands.addCommand(CommandIDs.panel, {
      label: trans.__('Show Ranks'),
      caption: trans.__('Show what each rank of the active notebook does'),
      execute: () => shell.activateById(panel.id)
    });
    for (const command of PALETTE) {
      const category = trans.__('Distributed Debugging');
      palette?.addItem({ command, category, args: { isPalette: true } });
    }
  }
};

export default plugin;
