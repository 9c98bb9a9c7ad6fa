/** Shows views of a notebook's last run as documents beside it. */

import { JupyterFrontEnd } from '@jupyterlab/application';
import { IRenderMimeRegistry } from '@jupyterlab/rendermime';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { JSONObject } from '@lumino/coreutils';
import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

import { Followed, Follower } from './follower';
import { ranksIcon } from './icon';
import { CommandIDs } from './ids';
import { KernelLink } from './link';
import { Rendered } from './rendered';
import { askPage, asPage } from './state';
import { Timeline } from './timeline';
import { markIn, markOf } from './viewer/marks';

/** Register the command that opens a view; its arguments are the view's name and label. */
export function addViewCommand(
  commands: CommandRegistry,
  follower: Follower,
  shell: JupyterFrontEnd.IShell,
  rendermime: IRenderMimeRegistry,
  trans: TranslationBundle
): void {
  const open: View[] = [];
  commands.addCommand(CommandIDs.view, {
    label: args =>
      args.isPalette
        ? trans.__('Show View: %1', String(args.label))
        : String(args.label ?? trans.__('Show View of Last Run')),
    caption: trans.__('Open it beside the notebook; it follows the last run'),
    isEnabled: () => (follower.current?.link.state ?? null) !== null,
    execute: args => {
      const followed = follower.current;
      const name = String(args.view);
      if (!followed || !args.view) {
        return;
      }
      const mine = open.filter(view => view.followed === followed);
      let view = mine.find(other => other.name === name);
      if (!view) {
        view = new View(followed, name, String(args.label ?? name), rendermime, trans);
        view.disposed.connect(closed => open.splice(open.indexOf(closed), 1));
        const beside = mine.filter(other => other.isAttached).pop();
        shell.add(
          view,
          'main',
          beside
            ? { ref: beside.id, mode: 'tab-after' }
            : { ref: followed.panel.id, mode: 'split-right' }
        );
        if (!view.isAttached) {
          view.addClass('ddt-lab-below'); // Notebook 7 shows only one document
          shell.add(view, 'down');
        }
        open.push(view);
      }
      shell.activateById(view.id);
      view.ask();
    }
  });
}

class View extends Widget {
  constructor(
    readonly followed: Followed,
    readonly name: string,
    label: string,
    rendermime: IRenderMimeRegistry,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.id = `ddt-notebook-${name}-${followed.panel.id}`;
    this.addClass('ddt-lab-snapshot');
    this.node.tabIndex = 0;
    this.title.icon = ranksIcon;
    this.title.closable = true;
    this._line.node.setAttribute('role', 'status');
    this._line.addClass('ddt-lab-line');
    this._rendered = new Rendered(rendermime);
    this._timeline = new Timeline(_trans, {
      reveal: place => void followed.reveal(place),
      picked: marks => followed.pick(marks)
    });
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(this._line);
    layout.addWidget(this._timeline);
    layout.addWidget(this._rendered);
    this._rendered.node.addEventListener('click', event => {
      const mark = markOf(event.target);
      if (mark) {
        followed.pick([mark]);
      }
    });
    followed.picked.connect(this._onPicked, this);
    const entitle = (): void => {
      this.title.label = `${label} · ${followed.panel.title.label}`;
    };
    followed.panel.title.changed.connect(entitle, this);
    entitle();
    followed.link.changed.connect(this._onChanged, this);
    followed.link.received.connect(this._onReceived, this);
    followed.panel.disposed.connect(() => this.dispose(), this);
    this._seen = runOf(followed.link);
  }

  /** Ask the kernel for the view. */
  ask(): void {
    this._waits = this.followed.link.ask(askPage(this.name));
    this._tell();
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.focus();
  }

  protected onCloseRequest(message: Message): void {
    super.onCloseRequest(message);
    this.dispose();
  }

  private _onChanged(link: KernelLink): void {
    const run = runOf(link);
    const news = run !== this._seen;
    this._seen = run;
    if (link.state && news && (link.state.report || this._gone)) {
      this._gone = false;
      this.followed.marks = []; // numbers of collectives repeat in another run
      this.ask();
    } else {
      this._gone = this._gone || !link.state;
      this._tell();
    }
  }

  private _onReceived(_: KernelLink, data: JSONObject): void {
    const page = asPage(data);
    if (page?.page === this.name) {
      this._waits = false;
      this._shown = true;
      void this._timeline.draw(page.viewer ?? '');
      const drawn = page.html
        ? this._rendered.draw([{ title: '', html: page.html }])
        : this._rendered.say(page.missing);
      void drawn.then(() => markIn(this._rendered.node, this.followed.marks));
      this._tell();
    }
  }

  private _onPicked(_: Followed, marks: string[]): void {
    markIn(this._rendered.node, marks);
    if (marks.length === 1) {
      this._timeline.pick(marks[0]);
    }
  }

  /** Say above the view which run it shows, if that is not obvious. */
  private _tell(): void {
    const { link } = this.followed;
    const cell = link.state?.session?.busy ? link.state.run?.cell ?? '' : null;
    let text = '';
    if (!link.state) {
      text = this._trans.__('The kernel has gone: this view is from before.');
    } else if (this._waits && cell !== null && !link.answersMeanwhile) {
      text = this._trans.__(
        'This kernel answers when cell[%1] has ended; ipykernel 7 and JupyterLab 4.4 answer at once.',
        cell
      );
    } else if (cell !== null) {
      text = this._trans.__('Cell[%1] is running: this view shows the last run that has ended.', cell);
    } else if (this._waits && !this._shown) {
      text = this._trans.__('Asking the kernel …');
    }
    if (this._line.node.textContent !== text) {
      this._line.node.textContent = text;
    }
  }

  private readonly _line = new Widget();
  private readonly _rendered: Rendered;
  private readonly _timeline: Timeline;
  private _seen: string;
  private _gone = false;
  private _waits = false;
  private _shown = false;
}

/** Differs between one run that has ended and the next. */
function runOf({ state }: KernelLink): string {
  return state ? `${state.run?.number} ${state.report !== null}` : '';
}
