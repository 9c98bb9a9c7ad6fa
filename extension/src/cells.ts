/** Writes our magics into the notebook's cells, where a reader sees what ran. */

import { CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

import { onRanks } from './magic';

/** Run a cell on ranks, as its magic says; false if the cell is empty. See `onRanks`. */
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

/** Insert a cell with this line below the active one, and run it. */
export async function runBelow(panel: NotebookPanel, line: string): Promise<boolean> {
  NotebookActions.insertBelow(panel.content);
  panel.content.activeCell?.model.sharedModel.setSource(line);
  return NotebookActions.run(panel.content, panel.sessionContext);
}
