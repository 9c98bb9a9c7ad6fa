/** In a notebook's toolbar: a button that runs the cell on ranks, and a list to choose the ranks. */

import { NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { Widget } from '@lumino/widgets';

import { RankChoices } from './choices';
import { Followed, Follower } from './follower';
import { ranksIcon } from './icon';
import { CommandIDs } from './ids';
import { spans } from './ranks';

const LANGUAGE = 'python';

export class RankPicker extends Widget {
  constructor(
    private readonly _panel: NotebookPanel,
    private readonly _follower: Follower,
    private readonly _choices: RankChoices,
    private readonly _trans: TranslationBundle,
    commands: CommandRegistry
  ) {
    super();
    this.addClass('ddt-lab-picker');
    const run = document.createElement('button');
    run.title = commands.caption(CommandIDs.runCell);
    run.setAttribute('aria-label', commands.label(CommandIDs.runCell));
    run.append(ranksIcon.element({ elementSize: 'normal' }), '▶');
    run.onclick = () => void commands.execute(CommandIDs.runCell);
    this._list.id = `ddt-lab-ranks-of-${_panel.id}`;
    this._list.className = 'ddt-lab-picker-list';
    this._list.popover = 'auto';
    this._list.setAttribute('role', 'group');
    this._list.setAttribute('aria-label', _trans.__('Ranks that run cells'));
    this._list.addEventListener('beforetoggle', event => this._place(event as ToggleEvent));
    this._list.addEventListener('toggle', event => this._onToggle(event as ToggleEvent));
    this._button.title = _trans.__('Choose the ranks on which cells run');
    this._button.setAttribute('popovertarget', this._list.id);
    this._button.setAttribute('aria-expanded', 'false');
    this._button.setAttribute('aria-controls', this._list.id);
    this.node.append(run, this._button, this._list);
    this.node.addEventListener('keydown', event => this._onKey(event));
    this._list.addEventListener('focusout', event => {
      if (event.relatedTarget && !this.node.contains(event.relatedTarget as Node)) {
        this._list.hidePopover();
      }
    });
    _choices.changed.connect(this._draw, this);
    _follower.changed.connect(this._draw, this);
    _panel.sessionContext.kernelChanged.connect(this._askForLanguage, this);
    this.hide();
    void this._askForLanguage();
  }

  private get _followed(): Followed | null {
    return this._follower.of(this._panel);
  }

  /** Hide the picker unless the kernel runs Python, as ranks do. */
  private async _askForLanguage(): Promise<void> {
    const kernel = this._panel.sessionContext.session?.kernel ?? null;
    const language = (await kernel?.info)?.language_info.name;
    if (!this.isDisposed && kernel === (this._panel.sessionContext.session?.kernel ?? null)) {
      this.setHidden(language !== LANGUAGE);
      this._draw();
    }
  }

  /** Show what is chosen; makes new boxes only if the number of ranks has changed. */
  private _draw(): void {
    const followed = this._followed;
    if (!followed || this.isHidden) {
      return;
    }
    const size = this._choices.size(followed);
    const chosen = this._choices.get(followed) ?? null;
    const text = chosen ? spans(chosen).join(', ') : this._trans.__('all');
    const label = `${this._trans.__('on ranks: %1', text)} ▾`;
    if (this._button.textContent !== label) {
      this._button.textContent = label;
    }
    if (this._boxes.length !== size) {
      const names = [...Array(size).keys()].map(rank => this._trans.__('rank %1', rank));
      this._boxes = names.map(name => this._box(name));
      this._all = this._box(this._trans.__('all ranks'));
      this._list.replaceChildren(
        ...[this._all, ...this._boxes].map(box => box.parentElement as HTMLElement)
      );
    }
    this._all.checked = chosen === null;
    this._all.disabled = size === 1;
    this._boxes.forEach((box, rank) => {
      box.checked = chosen === null || chosen.includes(rank);
      box.disabled = box.checked && (size === 1 || chosen?.length === 1); // at least one rank stays chosen
    });
  }

  private _box(name: string): HTMLInputElement {
    const label = document.createElement('label');
    const box = document.createElement('input');
    box.type = 'checkbox';
    box.onchange = () => this._choose(box);
    label.append(box, ` ${name}`);
    return box;
  }

  private _choose(box: HTMLInputElement): void {
    const followed = this._followed;
    if (followed) {
      const all = this._boxes.map((_, rank) => rank);
      const one = box.checked ? all : all.slice(0, 1);
      const some = all.filter(rank => this._boxes[rank].checked);
      this._choices.set(followed, box === this._all ? one : some);
    }
  }

  /** Place the list below its button, within the window. */
  private _place(event: ToggleEvent): void {
    if (event.newState === 'open') {
      this._draw(); // the number of ranks in the settings may have changed
      const { left, bottom } = this._button.getBoundingClientRect();
      this._list.style.left = `${Math.max(0, Math.min(left, window.innerWidth - 160))}px`;
      this._list.style.top = `${bottom + 2}px`;
    }
  }

  private _onToggle(event: ToggleEvent): void {
    const open = event.newState === 'open';
    this._button.setAttribute('aria-expanded', String(open));
    if (open) {
      this._enabled()[0]?.focus();
    }
  }

  private _onKey(event: KeyboardEvent): void {
    const open = this._list.matches(':popover-open');
    const down = event.key === 'ArrowDown';
    if (event.key === 'Escape' && open) {
      this._list.hidePopover();
      this._button.focus();
    } else if (down && !open && event.target === this._button) {
      this._list.showPopover();
    } else if (open && (down || event.key === 'ArrowUp')) {
      const boxes = this._enabled();
      const at = boxes.indexOf(document.activeElement as HTMLInputElement) + (down ? 1 : -1);
      boxes[(at + boxes.length) % boxes.length]?.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  private _enabled(): HTMLInputElement[] {
    return [this._all, ...this._boxes].filter(box => !box.disabled);
  }

  private readonly _button = document.createElement('button');
  private readonly _list = document.createElement('div');
  private _all = document.createElement('input');
  private _boxes: HTMLInputElement[] = [];
}
