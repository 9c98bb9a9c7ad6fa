/** Puts code of ours into the notebook, where a reader sees what was run. */

import { CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

import { onRanks } from './magic';

/** Run a cell on ranks, as its magic says; false for no code. See `onRanks`. */
export async function runOnRanks(
  panel: NotebookPanel,
  cell: CodeCell,
  ranks: number[] | null | undefined,
  size: number
): Promise<boolean> {
  const source = cell.isDisposed ? '' : cell.model.sharedModel.getSource();
  if (!source.trim()) {
    return false;
  }
  const change = onRanks(source, ranks, size);
  if (change) {
    cell.model.sharedModel.updateSource(change.start, change.end, change.text);
  }
  return NotebookActions.runCells(panel.content, [cell], panel.sessionContext);
}

/** Insert a cell below the active one, with this line in it, and run it. */
export async function runBelow(panel: NotebookPanel, line: string): Promise<boolean> {
  NotebookActions.insertBelow(panel.content);
  panel.content.activeCell?.model.sharedModel.setSource(line);
  return NotebookActions.run(panel.content, panel.sessionContext);
}
