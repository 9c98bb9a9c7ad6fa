/** The lines that the ranks of one notebook printed in their last cell; lab_output.py sends them. */

import { JSONObject } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { KernelLink } from './link';

/** Where a line comes from; empty if that is not known. */
export type Source = 'stdout' | 'stderr' | 'display' | '';

export interface ILine {
  rank: number;
  source: Source;
  text: string;
}

type RawLine = [rank: number, source: Source, text: string];

/** One message of the kernel; lines count from 0, and `first` is the first that it still has. */
interface IPage {
  run: number;
  cell: number;
  running: boolean;
  ordered: boolean;
  first: number;
  from: number;
  next: number;
  total: number;
  lines: RawLine[];
  unfinished: RawLine[];
  folder: string;
}

/** Time between two requests: a Jupyter server cuts off a kernel that sends much more. */
const ASK_EVERY_MS = 200;

/** Requests lines while it is `active`, and keeps the lines that the kernel keeps. */
export class OutputLines implements IDisposable {
  constructor(private readonly _link: KernelLink) {
    _link.received.connect(this._onReceived, this);
    _link.changed.connect(this._onChanged, this);
  }

  get changed(): ISignal<OutputLines, void> {
    return this._changed;
  }

  /** The lines, oldest first; each change makes a new array. */
  get lines(): readonly ILine[] {
    return this._lines;
  }

  /** The number of the first line that is kept. */
  get first(): number {
    return this._next - this._lines.length;
  }

  /** Lines that ranks have not finished yet, such as progress bars. */
  get unfinished(): readonly ILine[] {
    return this._unfinished;
  }

  /** The last message about the cell; null before the first. */
  get page(): Pick<IPage, 'run' | 'cell' | 'running' | 'ordered' | 'total' | 'folder'> | null {
    return this._page;
  }

  /** Whether the kernel has lines that have not arrived yet. */
  get behind(): boolean {
    return this._page !== null && this._next < this._page.total;
  }

  /** Whether the cell is held: it has not ended, and goes on when it is released. */
  get held(): boolean {
    return this._link.state?.session?.frozen ?? false;
  }

  /** The number of ranks that is known so far. */
  get ranks(): number {
    return Math.max(this._link.state?.session?.ranks ?? 0, this._ranks);
  }

  /** Whether the lines are visible. */
  set active(active: boolean) {
    if (active === this._active) {
      return;
    }
    this._active = active;
    if (active) {
      this._ask();
    } else if (this._link.state) {
      this._link.ask({ do: 'enough output' });
    }
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this.active = false;
    this._disposed = true;
    window.clearTimeout(this._timer);
    Signal.clearData(this);
  }

  private _ask(): void {
    if (this._active && this._link.state) {
      this._asked = true;
      this._link.ask({ do: 'output', run: this._page?.run ?? 0, after: this._next });
    }
  }

  private _askSoon(): void {
    window.clearTimeout(this._timer);
    this._timer = window.setTimeout(() => this._ask(), ASK_EVERY_MS);
  }

  private _onReceived(_: KernelLink, data: JSONObject): void {
    const page = data.output as unknown as IPage | undefined;
    if (!page) {
      return;
    }
    if (page.run !== this._page?.run) {
      this._lines = [];
      this._next = this._ranks = 0;
    }
    this._page = page;
    this._ended = !page.running;
    if (page.first > this._next) {
      this._lines = []; // the kernel no longer has the lines in between
      this._next = page.first;
    }
    const gap = page.from > this._next;
    if (!gap && page.next > this._next) {
      const added = page.lines.slice(this._next - page.from).map(asLine);
      this._lines = this._lines.slice(page.first - this.first).concat(added);
      this._next = page.next;
      this._ranks = added.reduce((most, { rank }) => Math.max(most, rank + 1), this._ranks);
    }
    this._unfinished = this.behind ? [] : page.unfinished.map(asLine);
    if (this.behind && (gap || !page.running)) {
      this._askSoon(); // while a cell runs, the kernel sends lines unasked
    }
    this._changed.emit();
  }

  private _onChanged(): void {
    const state = this._link.state;
    if (!state) {
      window.clearTimeout(this._timer);
      this._asked = false;
      this._page = null;
      this._lines = [];
      this._unfinished = [];
      this._next = this._ranks = 0;
      this._changed.emit();
      return;
    }
    const outcome = state.run?.outcome ?? '';
    const run = [state.session?.ranks, state.run?.number, outcome].join();
    const news = run !== this._run;
    const ended = news && outcome !== '';
    this._run = run;
    if (!this._asked || (ended && !this._ended)) {
      this._ask(); // no message has said that the cell ended
    }
    if (ended) {
      this._ended = false;
    }
    if (news) {
      this._changed.emit(); // the number of ranks may have changed
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _lines: readonly ILine[] = [];
  private _unfinished: readonly ILine[] = [];
  private _next = 0;
  private _ranks = 0;
  private _page: IPage | null = null;
  private _run = '';
  private _ended = false;
  private _asked = false;
  private _active = false;
  private _disposed = false;
  private _timer = 0;
}

function asLine([rank, source, text]: RawLine): ILine {
  return { rank, source, text };
}
