/** Follows the notebooks: which one is active, and how each one's session is. */

import { Cell, CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, Notebook, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';

import { KernelLink } from './link';
import { annotate, badge, clear } from './marks';
import { IPlace } from './state';

/** Cells without this word cannot have loaded the extension. */
const WORD = 'ddt';

/** One notebook, its link, and its cells by the numbers that the kernel gave them. */
export class Followed {
  constructor(
    readonly panel: NotebookPanel,
    readonly link: KernelLink
  ) {
    panel.sessionContext.kernelChanged.connect(this._forget, this);
    panel.sessionContext.statusChanged.connect((_, status) => {
      if (status === 'restarting' || status === 'autorestarting') {
        this._forget();
      }
    });
  }

  /** A cell will run, after those that were scheduled before it. */
  schedule(cell: CodeCell): void {
    this._queue = this._queue.filter(other => other !== cell && isRunning(other));
    this._queue.push(cell);
  }

  /** Remember which cell has a number: after a restart of the kernel, numbers come again. */
  note(cell: CodeCell): void {
    this._queue = this._queue.filter(other => other !== cell);
    const number = cell.model.executionCount;
    if (number !== null) {
      this._cells.set(number, cell.model.id);
    }
  }

  /** The cell that the kernel calls `cell[number]`. */
  cell(number: number): CodeCell | null {
    const cells = this.panel.content.widgets.filter(
      (cell): cell is CodeCell => cell instanceof CodeCell
    );
    const run = this.link.state?.run;
    if (run?.cell === number && run.outcome === null) {
      return this._queue.find(isRunning) ?? null;
    }
    const known = this._cells.get(number);
    return (
      cells.find(cell => cell.model.id === known) ??
      cells.find(cell => cell.model.executionCount === number) ??
      null
    );
  }

  /** Bring a line into view, with the cursor on it. */
  async reveal(place: IPlace): Promise<void> {
    const cell = place.cell === null ? null : this.cell(place.cell);
    if (!cell) {
      return;
    }
    const notebook = this.panel.content;
    notebook.activeCellIndex = notebook.widgets.indexOf(cell);
    await notebook.scrollToCell(cell);
    await cell.ready;
    notebook.mode = 'edit';
    const position = { line: Math.max(0, (place.line ?? 1) - 1), column: 0 };
    cell.editor?.setCursorPosition(position);
    cell.editor?.revealPosition(position);
    cell.editor?.focus();
  }

  /** Say at the cell how its run went, and at the lines where its ranks stood; once a run. */
  mark(): void {
    const state = this.link.state;
    const run = state?.run;
    if (!state || !run?.outcome || run.number === this._marked) {
      return;
    }
    const cell = this.cell(run.cell);
    if (!cell || isRunning(cell) || state.report?.cell !== run.cell) {
      return; // what is missing comes in a moment
    }
    this._marked = run.number;
    const { findings } = state.report;
    const silent = run.outcome === 'ok' && findings.length > 0;
    badge(cell, silent ? 'found' : run.outcome, state.rows);
    const places = findings.flatMap(finding => finding.places);
    for (const number of new Set(places.map(place => place.cell))) {
      const stood = number === null ? null : this.cell(number);
      if (stood) {
        annotate(stood, places.filter(place => place.cell === number));
      }
    }
  }

  private _forget(): void {
    this._cells.clear();
    this._marked = 0;
  }

  private readonly _cells = new Map<number, string>();
  private _queue: CodeCell[] = [];
  private _marked = 0;
}

function isRunning(cell: CodeCell): boolean {
  return !cell.isDisposed && cell.model.executionState === 'running';
}

/** All notebooks of the page. */
export class Follower {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _marked: () => boolean
  ) {
    const tracker = _tracker;
    tracker.forEach(panel => this._follow(panel));
    tracker.widgetAdded.connect((_, panel) => this._follow(panel));
    tracker.currentChanged.connect(() => this._changed.emit(this.current));
    NotebookActions.executionScheduled.connect(this._onScheduled, this);
    NotebookActions.executed.connect(this._onExecuted, this);
  }

  /** Emitted with what changed; the active notebook may be another one. */
  get changed(): ISignal<Follower, Followed | null> {
    return this._changed;
  }

  /** The active notebook, null if there is none. */
  get current(): Followed | null {
    const panel = this._tracker.currentWidget;
    return panel ? this.of(panel) : null;
  }

  /** What is known of a notebook, null if it is gone or not yet there. */
  of(panel: NotebookPanel): Followed | null {
    return this._followed.get(panel) ?? null;
  }

  private _follow(panel: NotebookPanel): void {
    const link = new KernelLink(panel.sessionContext);
    const followed = new Followed(panel, link);
    this._followed.set(panel, followed);
    link.changed.connect(() => {
      this._mark(followed);
      this._changed.emit(followed);
    });
    panel.disposed.connect(() => {
      this._followed.delete(panel);
      link.dispose();
    });
    this._changed.emit(followed);
  }

  private _onScheduled(_: unknown, what: { notebook: Notebook; cell: Cell }): void {
    const followed = this._of(what.notebook);
    if (followed && what.cell instanceof CodeCell) {
      followed.schedule(what.cell);
      clear(what.cell);
    }
  }

  private _onExecuted(_: unknown, what: { notebook: Notebook; cell: Cell }): void {
    const followed = this._of(what.notebook);
    if (!followed || !(what.cell instanceof CodeCell)) {
      return;
    }
    followed.note(what.cell);
    if (!followed.link.state && what.cell.model.sharedModel.source.includes(WORD)) {
      void followed.link.greet();
    }
    this._mark(followed);
  }

  private _of(notebook: Notebook): Followed | undefined {
    return [...this._followed.values()].find(followed => followed.panel.content === notebook);
  }

  private _mark(followed: Followed): void {
    if (this._marked()) {
      followed.mark();
    }
  }

  private readonly _followed = new Map<NotebookPanel, Followed>();
  private readonly _changed = new Signal<this, Followed | null>(this);
}
