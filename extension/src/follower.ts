/** Follows all notebooks: which one is active, and the state of each one's session. */

import { Cell, CodeCell } from '@jupyterlab/cells';
import { INotebookTracker, Notebook, NotebookActions, NotebookPanel } from '@jupyterlab/notebook';
import { ISignal, Signal } from '@lumino/signaling';

import { KernelLink } from './link';
import { annotate, badge, clear } from './marks';
import { IPlace } from './state';
import { markIn } from './viewer/marks';

/** A cell without this word cannot have loaded the extension. */
const WORD = 'ddt';

/** A line that starts ranks if there is no session. */
const STARTS = /^\s*%(ddt_start|%ddt_debug)\b/m;

/** One notebook, its link to the kernel, and its cells by execution number. */
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

  /** What was picked last in a view of the last run. */
  marks: string[] = [];

  /** Emitted with the marks of what was picked in a view of this notebook. */
  get picked(): ISignal<Followed, string[]> {
    return this._picked;
  }

  /** Mark a collective or a line in the notebook and in all its views. */
  pick(marks: string[]): void {
    this.marks = marks;
    markIn(this.panel.content.node, marks);
    this._picked.emit(marks);
  }

  /** Remember that a cell will run after those that were scheduled before it. */
  schedule(cell: CodeCell): void {
    this._queue = this._queue.filter(other => other !== cell && isRunning(other));
    this._queue.push(cell);
  }

  /** Whether a running cell has a line that starts ranks: until they are there, nothing is sent. */
  get starts(): boolean {
    return this._queue.some(
      cell => isRunning(cell) && STARTS.test(cell.model.sharedModel.getSource())
    );
  }

  /** Remember which cell has a number, since numbers repeat after a restart of the kernel. */
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

  /** Mark the cell with how its run ended, and the lines where ranks were; once for each run. */
  mark(): void {
    const state = this.link.state;
    const run = state?.run;
    if (!state || !run?.outcome || run.number === this._marked) {
      return;
    }
    const cell = this.cell(run.cell);
    if (!cell || isRunning(cell) || state.report?.cell !== run.cell) {
      return; // the rest of the state arrives in a moment
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

  private readonly _picked = new Signal<this, string[]>(this);
  private readonly _cells = new Map<number, string>();
  private _queue: CodeCell[] = [];
  private _marked = 0;
}

function isRunning(cell: CodeCell): boolean {
  return !cell.isDisposed && cell.model.executionState === 'running';
}

/** All open notebooks. */
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

  /** Emitted with the notebook that changed, or when another notebook becomes active. */
  get changed(): ISignal<Follower, Followed | null> {
    return this._changed;
  }

  /** The active notebook, null if there is none. */
  get current(): Followed | null {
    const panel = this._tracker.currentWidget;
    return panel ? this.of(panel) : null;
  }

  /** What is known about a notebook; null if it is closed or not open yet. */
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
      setTimeout(() => this._changed.emit(followed)); // the cell runs when this signal has returned
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
    this._changed.emit(followed);
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
