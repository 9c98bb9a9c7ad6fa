/** Puts code of ours into the notebook, where a reader sees what was run. */

import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

const MAGIC = /^\s*%%ddt/;

/** Run the active cell on the ranks, with the magic on top if it lacks one; false for no code. */
export async function runOnRanks(panel: NotebookPanel): Promise<boolean> {
  const cell = panel.content.activeCell;
  if (!cell || cell.model.type !== 'code') {
    return false;
  }
  const source = cell.model.sharedModel.getSource();
  if (!source.trim()) {
    return false;
  }
  if (!MAGIC.test(source)) {
    cell.model.sharedModel.updateSource(0, 0, '%%ddt\n');
  }
  return NotebookActions.run(panel.content, panel.sessionContext);
}

/** Insert a cell below the active one, with this line in it, and run it. */
export async function runBelow(panel: NotebookPanel, line: string): Promise<boolean> {
  NotebookActions.insertBelow(panel.content);
  panel.content.activeCell?.model.sharedModel.setSource(line);
  return NotebookActions.run(panel.content, panel.sessionContext);
}
