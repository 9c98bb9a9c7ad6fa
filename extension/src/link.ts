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

const ENDED = 'the kernel ended meanwhile';

/** A kernel hears a word in this time; behind a proxy it comes when the cell has ended. */
const HEARD_MS = 1000;

/** A kernel that this page met while it was busy makes a subshell in this time, if it can. */
const PAST_MS = 5000;

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
    context.iopubMessage.connect(this._onIOPub, this);
    void this._recover();
  }

  /** Emitted when there is news. */
  get changed(): ISignal<KernelLink, void> {
    return this._changed;
  }

  /** Emitted with what the kernel tells beside that. */
  get told(): ISignal<KernelLink, JSONObject> {
    return this._told;
  }

  /** Whether the kernel answers while a cell runs. */
  get answersMeanwhile(): boolean {
    return this.kernel?.supportsSubshells ?? false;
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
    const fresh = !this._comm || this._comm.isDisposed;
    const comm = this._connect(kernel);
    if (!comm) {
      return;
    }
    try {
      await kernel.info;
      if (kernel.supportsSubshells) {
        await (comm as { subshellStarted?: Promise<void> }).subshellStarted;
      }
    } catch {
      return; // the kernel went, or was replaced, before it answered
    }
    if (fresh && !comm.isDisposed) {
      comm.open(); // the kernel knows the comm; a proxy before it may not
    }
    this._send({ do: 'hello' });
  }

  /** End the running cell on every rank, also while it blocks the kernel. */
  async interrupt(): Promise<void> {
    if (!(await this._heard('interrupt'))) {
      await this.kernel?.interrupt();
    }
  }

  /** Hold the running cell as it is. */
  async freeze(): Promise<void> {
    if (!(await this._heard('freeze'))) {
      this._trouble = 'this kernel does not listen while a cell runs: the cell cannot be held';
      this._changed.emit();
    }
  }

  /** Ask for what `told` brings; false if nobody is there. */
  ask(question: JSONObject): boolean {
    this._send(question);
    return this._comm !== null;
  }

  /** Run code in its turn, without a cell; `doing` says meanwhile what is being done. */
  async run(code: string, doing: string): Promise<IAnswer> {
    const kernel = this.kernel;
    if (!kernel) {
      return this._refuse('the notebook has no kernel');
    }
    this._doing = doing;
    this._trouble = '';
    this._changed.emit();
    const language = await kernel.info.then(info => info.language_info.name, () => '');
    if (language !== 'python') {
      return this._refuse(language ? `the kernel runs ${language}, not Python` : ENDED);
    }
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
      text = text || ENDED; // and its future with it
    }
    this._doing = '';
    this._trouble = ok ? '' : text.trim();
    this._changed.emit();
    void this.greet();
    return { ok, text: text.trim() };
  }

  private _refuse(text: string): IAnswer {
    this._doing = '';
    this._trouble = text;
    this._changed.emit();
    return { ok: false, text };
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

  /** The comm to the kernel; null if another connection of this page follows it. */
  private _connect(kernel: Kernel.IKernelConnection): Kernel.IComm | null {
    if (this._comm && !this._comm.isDisposed) {
      return this._comm;
    }
    if (kernel.hasComm(TARGET)) {
      return null;
    }
    const comm = kernel.createComm(TARGET, TARGET);
    comm.onMsg = message => this._onMessage(comm, message);
    comm.onClose = () => this._forget();
    this._comm = comm;
    return comm;
  }

  /** Say a word about the running cell; false if the cell goes on and the kernel has not heard. */
  private async _heard(word: string): Promise<boolean> {
    const kernel = this.kernel;
    if (!kernel) {
      return false;
    }
    const known = (await Promise.race([kernel.info, null])) !== null;
    if (known && !kernel.supportsSubshells) {
      return false;
    }
    const run = this._state?.run?.number;
    this._trouble = '';
    if (known) {
      this._send({ do: word });
    } else {
      await Promise.race([this._sendPast(kernel, { do: word }), passed(PAST_MS)]);
    }
    await passed(HEARD_MS);
    const state = this._state;
    return !state?.session?.busy || state.run?.number !== run || Boolean(state.asked);
  }

  private _send(data: JSONObject): void {
    if (this._comm && !this._comm.isDisposed) {
      this._comm.send(data);
    }
  }

  /**
   * Say something to a kernel that has been busy since before this page was loaded.
   *
   * It has not answered yet what every page asks first, so that its comms have no subshell; its
   * control channel makes one all the same.
   */
  private async _sendPast(kernel: Kernel.IKernelConnection, data: JSONObject): Promise<void> {
    const sender = { username: kernel.username, session: kernel.clientId };
    const request = KernelMessage.createMessage<KernelMessage.ICreateSubshellRequestMsg>({
      ...sender,
      msgType: 'create_subshell_request',
      channel: 'control',
      content: {}
    });
    const reply = await kernel.sendControlMessage(request, true).done;
    const { subshell_id } = reply.content as { subshell_id?: string };
    if (subshell_id) {
      const message = KernelMessage.createMessage<KernelMessage.ICommMsgMsg<'shell'>>({
        ...sender,
        msgType: 'comm_msg',
        channel: 'shell',
        subshellId: subshell_id,
        content: { comm_id: TARGET, data }
      });
      kernel.sendShellMessage(message, false, true);
    }
  }

  /** A page that is loaded while a cell blocks the kernel gets no answer, but it hears this. */
  private _onIOPub(_: ISessionContext, message: KernelMessage.IMessage): void {
    const kernel = this.kernel;
    if (this._comm || !kernel?.handleComms || !KernelMessage.isCommMsgMsg(message)) {
      return;
    }
    if (message.content.comm_id === TARGET) {
      const comm = this._connect(kernel);
      if (comm) {
        this._onMessage(comm, message);
      }
    }
  }

  private _onMessage(comm: Kernel.IComm, message: KernelMessage.ICommMsgMsg): void {
    if (comm !== this._comm) {
      return;
    }
    const data = message.content.data as JSONObject;
    const state = asState(data);
    if (state) {
      this._state = state;
      this._changed.emit();
    } else {
      this._told.emit(data);
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
  private readonly _told = new Signal<this, JSONObject>(this);
  private _comm: Kernel.IComm | null = null;
  private _state: IState | null = null;
  private _doing = '';
  private _trouble = '';
  private _disposed = false;
}

function passed(milliseconds: number): Promise<void> {
  return new Promise(done => setTimeout(done, milliseconds));
}
