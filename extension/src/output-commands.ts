/** Opens "Rank Output" below the notebook to which it belongs. */

import { ILabShell, ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { WidgetTracker } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';

import { Follower } from './follower';
import { CommandIDs } from './ids';
import type { OutputPanel } from './output-panel';

/** Register the command, and restore the panels that were open in the last visit. */
export function addOutput(
  app: JupyterFrontEnd,
  notebooks: INotebookTracker,
  follower: Follower,
  labShell: ILabShell | null,
  restorer: ILayoutRestorer | null,
  trans: TranslationBundle
): void {
  const { commands, shell } = app;
  const opened = new WidgetTracker<OutputPanel>({ namespace: 'ddt-notebook-output' });
  commands.addCommand(CommandIDs.output, {
    label: trans.__('Show Rank Output'),
    caption: trans.__('Show what the ranks of the active notebook printed, together or one by one'),
    isEnabled: args => args.path !== undefined || follower.current !== null,
    execute: async args => {
      const wanted = notebooks.find(notebook => notebook.context.path === args.path);
      const followed = wanted ? follower.of(wanted) : args.path ? null : follower.current;
      if (!followed) {
        return;
      }
      let panel = opened.find(other => other.notebook === followed.panel);
      if (!panel) {
        const { OutputPanel } = await import('./output-panel');
        panel = new OutputPanel(followed, trans);
        await opened.add(panel);
        followed.panel.context.pathChanged.connect(() => void opened.save(panel!), panel);
      }
      if (!panel.isAttached) {
        const below = { ref: followed.panel.id, mode: 'split-bottom' as const };
        // Notebook 7 shows one document at a time; other widgets go below it.
        const area = labShell ? 'main' : 'down';
        shell.add(panel, area, below);
      }
      shell.activateById(panel.id);
    }
  });
  void restorer?.restore(opened, {
    command: CommandIDs.output,
    args: panel => ({ path: panel.notebook.context.path }),
    name: panel => panel.notebook.context.path,
    when: notebooks.restored
  });
}
