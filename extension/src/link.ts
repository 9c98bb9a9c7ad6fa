/** The front end's side of the comm to the kernel of one notebook. */

import { ISessionContext } from '@jupyterlab/apputils';
import { Kernel, KernelMessage } from '@jupyterlab/services';
import { JSONObject } from '@lumino/coreutils';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { asState, IState } from './state';

/** Name of the comm's target and id of the only comm, as in ddt_notebook/widgets/lab.py. */
const TARGET = 'ddt_notebook';

/** Kernel states that make everything known about the kernel out of date. */
const GONE = ['restarting', 'autorestarting', 'terminating', 'dead'];

const ENDED = 'the kernel ended before it answered';

/** A kernel receives a message within this time; through a proxy, only after the cell. */
const HEARD_MS = 1000;

/** A kernel that was busy when this page was loaded makes a subshell within this time. */
const PAST_MS = 5000;

/** How code that was run for a button ended. */
export interface IAnswer {
  ok: boolean;
  text: string;
}

/**
 * Holds the state of the session of one notebook.
 *
 * It follows the notebook's kernel through restarts and changes. A kernel without ddt_notebook gets
 * one question, when it is connected, and nothing else.
 */
export class KernelLink implements IDisposable {
  constructor(context: ISessionContext) {
    this._context = context;
    context.kernelChanged.connect(this._onKernelChanged, this);
    context.statusChanged.connect(this._onStatusChanged, this);
    context.iopubMessage.connect(this._onIOPub, this);
    void this._recover();
  }

  /** Emitted when the state has changed. */
  get changed(): ISignal<KernelLink, void> {
    return this._changed;
  }

  /** Emitted with every other message of the kernel. */
  get received(): ISignal<KernelLink, JSONObject> {
    return this._received;
  }

  /** Whether the kernel answers while a cell runs. */
  get answersMeanwhile(): boolean {
    return this.kernel?.supportsSubshells ?? false;
  }

  /** The state of the session; null until the kernel has sent it. */
  get state(): IState | null {
    return this._state;
  }

  /** What is being done for a button; else empty. */
  get doing(): string {
    return this._doing;
  }

  /** The error of the last thing done for a button; else empty. */
  get error(): string {
    return this._error;
  }

  get kernel(): Kernel.IKernelConnection | null {
    return this._context.session?.kernel ?? null;
  }

  /** Whether another connection of this page, such as a second notebook's, has the kernel's comms. */
  get isShadowed(): boolean {
    return this.kernel?.handleComms === false;
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

  /** Ask the kernel for its state, after a cell that may have loaded the extension. */
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
      return; // the kernel ended, or was replaced, before it answered
    }
    if (fresh && !comm.isDisposed) {
      comm.open(); // the kernel knows the comm, but a proxy in front of it may not
    }
    this._send({ do: 'hello' });
  }

  /** End the running cell on every rank, even while it blocks the kernel. */
  async interrupt(): Promise<void> {
    if (!(await this._heard('interrupt'))) {
      await this.kernel?.interrupt();
    }
  }

  /** Hold the running cell as it is. */
  async freeze(): Promise<void> {
    if (!(await this._heard('freeze'))) {
      this._error = 'this kernel receives no message while a cell runs: the cell cannot be held';
      this._changed.emit();
    }
  }

  /** Send a request, which `received` answers; false if there is no comm. */
  ask(question: JSONObject): boolean {
    this._send(question);
    return this._comm !== null;
  }

  /** Run code after the cells that are queued; meanwhile, `doing` says what is being done. */
  async run(code: string, doing: string): Promise<IAnswer> {
    const kernel = this.kernel;
    if (!kernel) {
      return this._refuse('the notebook has no kernel');
    }
    this._doing = doing;
    this._error = '';
    this._changed.emit();
    const language = await kernel.info.then(info => info.language_info.name, () => '');
    if (language !== 'python') {
      return this._refuse(language ? `the kernel runs ${language}, not Python` : ENDED);
    }
    const future = kernel.requestExecute({ code, store_history: false, stop_on_error: false });
    let text = '';
    try {
      const reply = (await future.done).content;
      if (reply.status === 'error') {
        text = `${reply.ename}: ${reply.evalue}`;
      } else if (reply.status === 'abort') {
        text = ENDED;
      }
    } catch {
      text = ENDED; // the future was disposed with the kernel
    }
    this._doing = '';
    this._error = text;
    this._changed.emit();
    void this.greet();
    return { ok: !text, text };
  }

  private _refuse(text: string): IAnswer {
    this._doing = '';
    this._error = text;
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
      this._forget(); // the kernel ended before it answered; the next one is asked again
    }
  }

  /** The comm to the kernel; null if another connection of this page has it. */
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

  /** Send a request about the running cell; false if the cell goes on without a sign of it. */
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
    this._error = '';
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
   * Send a message to a kernel that has been busy since before this page was loaded.
   *
   * The kernel has not yet answered the page's first request, so its comms have no subshell. Its
   * control channel answers, and makes one.
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

  /** Take states from a kernel that a cell blocks: it answers no request of a new page. */
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
      this._received.emit(data);
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

  /** The kernel has gone, and with it the comm. */
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
    this._doing = this._error = '';
    this._changed.emit();
  }

  private readonly _context: ISessionContext;
  private readonly _changed = new Signal<this, void>(this);
  private readonly _received = new Signal<this, JSONObject>(this);
  private _comm: Kernel.IComm | null = null;
  private _state: IState | null = null;
  private _doing = '';
  private _error = '';
  private _disposed = false;
}

function passed(milliseconds: number): Promise<void> {
  return new Promise(done => setTimeout(done, milliseconds));
}
