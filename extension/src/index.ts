/** The JupyterLab and Notebook 7 extension of ddt_notebook. */

import {
  ILabShell,
  ILayoutRestorer,
  JupyterFrontEnd,
  JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette, IToolbarWidgetRegistry } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { IFileBrowserFactory } from '@jupyterlab/filebrowser';
import { ILauncher } from '@jupyterlab/launcher';
import { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { RankChoices } from './choices';
import { addCommands } from './commands';
import { addDocumentCommands } from './documents';
import { addExportCommand } from './export';
import { Follower } from './follower';
import { CommandIDs, PLUGIN_ID } from './ids';
import { addOutput } from './output-commands';
import { RanksPanel } from './panel';
import { RankPicker } from './picker';
import { Settings } from './settings';
import { addSnapshots } from './snapshot';
import { addViewCommand } from './views';

const PALETTE = [
  CommandIDs.panel,
  CommandIDs.output,
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
  CommandIDs.exportReport,
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
    IFileBrowserFactory,
    ILabShell,
    ILauncher,
    ILayoutRestorer,
    ISettingRegistry,
    IToolbarWidgetRegistry,
    ITranslator
  ],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    rendermime: IRenderMimeRegistry,
    palette: ICommandPalette | null,
    browsers: IFileBrowserFactory | null,
    labShell: ILabShell | null,
    launcher: ILauncher | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    toolbars: IToolbarWidgetRegistry | null,
    translator: ITranslator | null
  ): void => {
    const trans = (translator ?? nullTranslator).load('ddt_notebook');
    const settings = new Settings(registry);
    const follower = new Follower(tracker, () => settings.marks);
    const { commands, shell } = app;
    const choices = new RankChoices(follower, () => settings.ranks);
    addCommands(commands, follower, trans, () => settings.ranks, choices);
    addViewCommand(commands, follower, shell, rendermime, trans);
    addExportCommand(commands, follower, app.serviceManager.contents, trans);
    toolbars?.addFactory<NotebookPanel>(
      'Notebook',
      'ddt-ranks',
      notebook => new RankPicker(notebook, follower, choices, trans, commands)
    );
    addDocumentCommands(commands, follower, trans, () => {
      const alone = labShell ? null : follower.current; // Notebook 7 shows only one document
      return alone
        ? PathExt.dirname(alone.panel.context.localPath)
        : (browsers?.tracker.currentWidget?.model.path ?? '');
    });
    addOutput(app, tracker, follower, labShell, restorer, trans);
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
        before = now; // states come several times per second; most of them change no menu
        [...PALETTE, CommandIDs.view].forEach(id => commands.notifyCommandChanged(id));
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
    const category = trans.__('Distributed Debugging');
    // Notebook 7 itself adds an entry for each side panel.
    for (const command of PALETTE.filter(id => labShell || id !== CommandIDs.panel)) {
      palette?.addItem({ command, category, args: { isPalette: true } });
    }
    const offered = new Set<string>();
    follower.changed.connect(() => {
      for (const { name, label } of follower.current?.link.state?.views ?? []) {
        if (!offered.has(name)) {
          offered.add(name);
          const args = { isPalette: true, view: name, label };
          palette?.addItem({ command: CommandIDs.view, category, args });
        }
      }
    });
  }
};

export default plugin;
