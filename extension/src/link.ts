/** The front end's end of the comm to one notebook's kernel. */

import { ISessionContext } from '@jupyterlab/apputils';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { JSONObject } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { asState, IState } from './state';

/** Name of the comm's target, and the id of the one comm: ddt_notebook/widgets/lab.py has it, too. */
const TARGET = 'ddt_notebook';

/** States of a kernel in which what was known of it no longer holds. */
const GONE = ['restarting', 'autorestarting', 'terminating', 'dead'];

/** What became of code that was run for a button. */
export interface IAnswer {
  ok: boolean;
  text: string;
}

/**
 * Knows how the session of one notebook is.
 *
 * It follows the notebook's kernel through restarts and changes, and is silent with a kernel that
 * has no ddt_notebook: such a kernel is asked only once, when it is connected.
 */
export class KernelLink implements IDisposable {
  constructor(context: ISessionContext) {
    this._context = context;
    context.kernelChanged.connect(this._onKernelChanged, this);
    context.statusChanged.connect(this._onStatusChanged, this);
    void this._recover();
  }

  /** Emitted when there is news. */
  get changed(): ISignal<KernelLink, void> {
    return this._changed;
  }

  /** How the session is; null as long as the kernel has told nothing. */
  get state(): IState | null {
    return this._state;
  }

  /** What is being done for a button, else empty. */
  get doing(): string {
    return this._doing;
  }

  /** What went wrong with it. */
  get trouble(): string {
    return this._trouble;
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this._context.session?.kernel ?? null;
  }

  get isDisposed(): boolean {
    return this._disposed;
  }

  dispose(): void {
    if (this._disposed) {
      return;
    }
    this._disposed = true;
    this._drop();
    Signal.clearData(this);
  }

  /** Greet the kernel: after a cell that may have loaded the extension. */
  async greet(): Promise<void> {
    const kernel = this.kernel;
    if (!kernel || !kernel.handleComms || this._state) {
      return;
    }
    if (!this._comm || this._comm.isDisposed) {
      if (kernel.hasComm(TARGET)) {
        return; // another connection of this page follows the kernel
      }
      const comm = kernel.createComm(TARGET, TARGET);
      comm.onMsg = message => this._onMessage(comm, message);
      comm.onClose = () => this._forget();
      this._comm = comm;
    }
    const comm = this._comm;
    await kernel.info;
    if (kernel.supportsSubshells) {
      await (comm as { subshellStarted?: Promise<void> }).subshellStarted;
    }
    this._send({ do: 'hello' });
  }

  /** End the running cell on every rank, also while it blocks the kernel. */
  async interrupt(): Promise<void> {
    if (this.kernel?.supportsSubshells) {
      this._send({ do: 'interrupt' });
    } else {
      await this.kernel?.interrupt();
    }
  }

  /** Hold the running cell as it is. */
  freeze(): void {
    this._send({ do: 'freeze' });
  }

  /** Run code in its turn, without a cell; `doing` says meanwhile what is being done. */
  async run(code: string, doing: string): Promise<IAnswer> {
    const kernel = this.kernel;
    if (!kernel) {
      return { ok: false, text: '' };
    }
    this._doing = doing;
    this._trouble = '';
    this._changed.emit();
    let text = '';
    const future = kernel.requestExecute({ code, store_history: false, stop_on_error: false });
    future.onIOPub = message => {
      if (KernelMessage.isErrorMsg(message)) {
        text += `${message.content.ename}: ${message.content.evalue}`;
      } else if (KernelMessage.isStreamMsg(message) && message.content.name === 'stderr') {
        text += message.content.text;
      }
    };
    let ok = false;
    try {
      ok = (await future.done).content.status === 'ok' && !text.startsWith('UsageError');
    } catch {
      text = text || 'the kernel ended meanwhile'; // and its future with it
    }
    this._doing = '';
    this._trouble = ok ? '' : text.trim();
    this._changed.emit();
    void this.greet();
    return { ok, text: text.trim() };
  }

  private async _recover(): Promise<void> {
    const kernel = this.kernel;
    if (!kernel || !kernel.handleComms) {
      return;
    }
    try {
      const info = await kernel.requestCommInfo({ target_name: TARGET });
      if (info.content.status === 'ok' && TARGET in info.content.comms && kernel === this.kernel) {
        await this.greet();
      }
    } catch {
      this._forget(); // the kernel went before it answered; the next one is asked again
    }
  }

  private _send(data: JSONObject): void {
    if (this._comm && !this._comm.isDisposed) {
      this._comm.send(data);
    }
  }

  private _onMessage(comm: Kernel.IComm, message: KernelMessage.ICommMsgMsg): void {
    const state = asState(message.content.data as JSONObject);
    if (state && comm === this._comm) {
      this._state = state;
      this._changed.emit();
    }
  }

  private _onKernelChanged(): void {
    this._drop();
    void this._recover();
  }

  private _onStatusChanged(_: ISessionContext, status: Kernel.Status): void {
    if (GONE.includes(status)) {
      this._drop();
    }
  }

  /** The kernel is gone, and the comm with it. */
  private _drop(): void {
    const comm = this._comm;
    this._forget();
    if (comm && !comm.isDisposed) {
      comm.dispose();
    }
  }

  private _forget(): void {
    this._comm = null;
    this._state = null;
    this._doing = this._trouble = '';
    this._changed.emit();
  }

  private readonly _context: ISessionContext;
  private readonly _changed = new Signal<this, void>(this);
  private _comm: Kernel.IComm | null = null;
  private _state: IState | null = null;
  private _doing = '';
  private _trouble = '';
  private _disposed = false;
}
