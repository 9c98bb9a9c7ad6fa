/** The interactive timeline: search, filters, keys and words around the lanes. */

import { Chart, IEvent } from './chart';
import { ILane, IPlace, ITimeline } from './data';
import { addStyle, TABLE } from './look';
import { markOfCall } from './marks';
import { NONE, SEVERAL } from './track';
import { ENGLISH, ITranslate, ranksIn, time } from './words';

export interface IOptions {
  trans?: ITranslate;
  /** Go to a line of the program; without it, the line is only named. */
  reveal?: (place: IPlace) => void;
  /** Whether there is a line to go to; default: if it is in a cell. */
  canReveal?: (place: IPlace) => boolean;
  /** Mark these collectives and lines in other views. */
  picked?: (marks: string[]) => void;
}

export class Viewer {
  constructor(
    host: HTMLElement,
    private readonly _data: ITimeline,
    private readonly _options: IOptions = {}
  ) {
    addStyle(host.ownerDocument);
    const trans = (this._trans = _options.trans ?? ENGLISH);
    this.node.className = 'ddt-viewer';
    this._chart = new Chart(_data, {
      hovered: (event, x, y) => this._hover(event, x, y),
      clicked: event => this._pick(event, { reveal: false }),
      moved: (from, to) => this._say(from, to)
    });
    const chart = this._chart.node;
    chart.tabIndex = 0;
    chart.setAttribute('role', 'application');
    chart.setAttribute('aria-label', trans.__('timeline of the ranks; the keys are listed below it'));
    chart.append(this._tip);
    this._tip.className = 'ddt-viewer-tip';
    this._tip.hidden = true;
    this._picked.className = 'ddt-viewer-picked';
    this._picked.setAttribute('role', 'status');
    this.node.append(this._controls(), chart, this._picked, this._legend(), this._keys());
    for (const note of _data.notes) {
      this.node.append(element('p', note));
    }
    // before JupyterLab and Notebook 7, which move in the notebook or delete cells by some of the keys
    window.addEventListener('keydown', this._onKey, true);
    host.append(this.node);
    this._filter();
    this._tell();
  }

  readonly node = document.createElement('div');

  dispose(): void {
    this._chart.dispose();
    window.removeEventListener('keydown', this._onKey, true);
    this.node.remove();
  }

  /** Pick what has a mark: a collective, or the first that a line called. Returns whether there is one. */
  pick(mark: string): boolean {
    const { calls, places } = this._data;
    let call = calls.name.findIndex((_, at) => this._mark(at) === mark);
    if (call < 0) {
      const place = places.findIndex(one => one.mark === mark);
      call = place < 0 ? -1 : calls.place.indexOf(place + 1);
    }
    for (const lane of call < 0 ? [] : this._data.lanes) {
      const at = lane.calls.ofCall(call);
      if (at >= 0) {
        this._pick({ lane, track: lane.calls, at }, { tellOthers: false });
        return true;
      }
    }
    return false;
  }

  // -- parts -------------------------------------------------------------------------------------

  private _controls(): HTMLElement {
    const trans = this._trans;
    const bar = document.createElement('div');
    bar.className = 'ddt-viewer-bar';
    this._search.type = 'search';
    this._search.placeholder = trans.__('all_reduce, #12, backward …');
    this._ranks.type = 'text';
    this._ranks.placeholder = '0,2-3';
    this._groups.append(new Option(trans.__('all groups'), ''));
    this._data.groups.forEach((group, at) => this._groups.append(new Option(group.text, String(at))));
    const again = (): void => this._filter();
    this._search.addEventListener('input', again);
    this._ranks.addEventListener('input', again);
    this._groups.addEventListener('change', again);
    const chart = this._chart;
    bar.append(
      labelled(trans.__('Search'), this._search),
      this._button('‹', trans.__('previous found event'), () => this._next(-1)),
      this._button('›', trans.__('next found event'), () => this._next(1)),
      this._count,
      labelled(trans.__('Ranks'), this._ranks)
    );
    if (this._data.groups.length > 1) {
      bar.append(labelled(trans.__('Group'), this._groups));
    }
    bar.append(
      this._button('−', trans.__('show a longer stretch'), () => chart.zoomBy(1 / 2)),
      this._button('+', trans.__('show a shorter stretch'), () => chart.zoomBy(2)),
      this._button(trans.__('whole'), trans.__('show the whole run'), () => chart.show(0, this._data.length)),
      this._range
    );
    this._count.setAttribute('role', 'status');
    this._range.className = 'ddt-viewer-range';
    return bar;
  }

  private _button(text: string, title: string, action: () => void): HTMLButtonElement {
    const button = element('button', text);
    button.type = 'button';
    button.title = title;
    if (text.length === 1) {
      button.setAttribute('aria-label', title);
    }
    button.addEventListener('click', action);
    return button;
  }

  private _legend(): HTMLElement {
    const list = document.createElement('ul');
    list.className = 'ddt-viewer-legend';
    const tracks = this._data.lanes.flatMap(({ work, calls }) => [work, calls]);
    this._data.kinds.forEach((name, kind) => {
      if (kind !== NONE && tracks.some(track => track.kinds[kind])) {
        const item = document.createElement('li');
        item.append(sample(kind), element('span', name));
        list.append(item);
      }
    });
    return list;
  }

  private _keys(): HTMLElement {
    const trans = this._trans;
    const fold = document.createElement('details');
    fold.className = 'ddt-viewer-keys';
    const list = document.createElement('dl');
    for (const [key, does] of [
      ['← →', trans.__('move; with Shift: the previous and the next event of the rank')],
      ['↑ ↓', trans.__('the rank above and below')],
      ['+ −', trans.__('zoom; also Ctrl and the wheel')],
      ['Home', trans.__('show the whole run')],
      ['/', trans.__('search; Enter and Shift+Enter go to the next and the previous event')],
      ['Enter', trans.__('go to the line of the picked event')],
      ['Esc', trans.__('pick nothing')]
    ]) {
      list.append(element('dt', key), element('dd', does));
    }
    fold.append(element('summary', trans.__('keys')), list);
    return fold;
  }

  // -- search and filters ------------------------------------------------------------------------

  private _filter(): void {
    const { groups, lanes, calls, names, places } = this._data;
    const isAsked = ranksIn(this._ranks.value);
    this._ranks.setAttribute('aria-invalid', String(isAsked === null));
    const group = this._groups.value === '' ? null : Number(this._groups.value);
    const members = group === null ? null : new Set(groups[group].ranks);
    const shown = lanes.filter(
      ({ rank }) => (isAsked === null || isAsked(rank)) && (members === null || members.has(rank))
    );
    this._chart.lanes = shown;
    const words = this._search.value.trim().toLowerCase();
    const has = (text: string): boolean => text.toLowerCase().includes(words);
    const named = names.map(has);
    const placed = places.map(place => has(place.text));
    const number = /^#(\d+)$/.exec(words);
    const called = (call: number): boolean =>
      call !== SEVERAL &&
      (group === null || calls.group[call] === group) &&
      (!words ||
        (number
          ? calls.sequence[call] === Number(number[1])
          : named[calls.name[call]] || (calls.place[call] > 0 && placed[calls.place[call] - 1]) || has(this._numbered(call))));
    this._chart.searching = { work: words !== '', calls: words !== '' || group !== null };
    const known = this._chart.searching.calls ? Uint8Array.from(calls.name, (_, call) => Number(called(call))) : null;
    let count = 0;
    for (const { work, calls: track } of shown) {
      count += work.search(words ? at => work.of(at) !== SEVERAL && named[work.of(at)] : null);
      count += track.search(known && (at => track.of(at) !== SEVERAL && known[track.of(at)] === 1));
    }
    this._count.textContent = words ? this._trans.__('%1 found', count.toLocaleString('en')) : '';
    this._chart.layout();
  }

  /** Pick the next event that was searched for, in order of time and then of the lanes. */
  private _next(direction: 1 | -1): void {
    const from = this._event;
    const time = from ? from.track.start(from.at) : direction > 0 ? -1 : Infinity;
    const tracks = this._chart.lanes.flatMap(lane => [
      { lane, track: lane.work },
      { lane, track: lane.calls }
    ]);
    const here = tracks.findIndex(({ track }) => track === from?.track);
    let best: IEvent | null = null;
    tracks.forEach(({ lane, track }, order) => {
      const orAtIt = (order - here) * direction > 0;
      const at = track.nextFound(time, direction, orAtIt);
      const ahead = (one: IEvent): number => direction * one.track.start(one.at);
      const found = { lane, track, at };
      const isNearer = at >= 0 && (!best || ahead(found) < ahead(best) || (ahead(found) === ahead(best) && direction < 0));
      best = isNearer ? found : best;
    });
    if (best) {
      this._pick(best);
    }
  }

  // -- the picked event --------------------------------------------------------------------------

  private _pick(event: IEvent | null, { reveal = true, tellOthers = true } = {}): void {
    this._event = event;
    const call = event ? this._callOf(event) : null;
    if (event && call !== null) {
      this._chart.outlined = this._data.lanes
        .map(lane => ({ lane, track: lane.calls, at: lane.calls.ofCall(call) }))
        .filter(one => one.at >= 0);
    } else {
      this._chart.outlined = event ? [event] : [];
    }
    if (event && reveal) {
      this._chart.reveal(event);
    }
    this._chart.update();
    this._tell();
    if (tellOthers) {
      const place = call === null ? null : this._placeOf(call);
      const marks = call === null ? [] : [this._mark(call), place?.mark ?? ''];
      this._options.picked?.(marks.filter(Boolean));
    }
  }

  private _tell(): void {
    const event = this._event;
    const nodes: Node[] = [];
    if (event) {
      nodes.push(element('p', this._describe(event)));
      const call = this._callOf(event);
      const place = call === null ? null : this._placeOf(call);
      const { reveal, canReveal = ({ cell }) => cell !== null } = this._options;
      if (place && reveal && canReveal(place)) {
        nodes.push(this._button(place.text, this._trans.__('go to this line'), () => reveal(place)));
      } else if (place) {
        nodes.push(element('p', place.text));
      }
    } else {
      nodes.push(element('p', this._trans.__('Click an event, or search: what belongs to it is marked in all lanes and views.')));
    }
    this._picked.replaceChildren(...nodes);
  }

  private _hover(event: IEvent | null, x: number, y: number): void {
    this._tip.hidden = event === null;
    if (event) {
      this._tip.textContent = this._describe(event);
      const { clientWidth: width, clientHeight: height } = this._chart.node;
      const { style } = this._tip;
      style.left = style.right = style.top = style.bottom = '';
      style[x > width / 2 ? 'right' : 'left'] = `${x > width / 2 ? width - x + 12 : x + 12}px`;
      style[y > height / 2 ? 'bottom' : 'top'] = `${y > height / 2 ? height - y + 12 : y + 12}px`;
    }
  }

  private _describe({ lane, track, at }: IEvent): string {
    const trans = this._trans;
    const length = track.length(at);
    const parts = [trans.__('rank %1', lane.rank), ...(lane.host ? [lane.host] : [])];
    const kind = this._data.kinds[track.kind(at)];
    const call = this._callOf({ lane, track, at });
    if (track.of(at) === SEVERAL) {
      parts.push(trans.__('%1 short events, most of them: %2', track.size(at), kind), time(length));
    } else if (call === null) {
      const name = this._data.names[track.of(at)];
      parts.push(...(name === kind ? [name] : [name, kind]), time(length));
    } else {
      const { calls, groups, names } = this._data;
      const group = groups[calls.group[call]];
      parts.push(this._numbered(call) + detailsOf(names[calls.name[call]]), group.text);
      const wait = track.wait(at);
      if (wait > 0) {
        parts.push(trans.__('waited %1', time(wait)));
      }
      if (length > wait) {
        parts.push(`${kind} ${time(length - wait)}`);
      }
      if (calls.sequence[call]) {
        parts.push(trans.__('%1 of %2 ranks entered', calls.entered[call], group.ranks.length || '?'));
      }
      if (calls.last[call]) {
        parts.push(trans.__('rank %1 came last, %2 after the others', calls.last[call] - 1, time(calls.late[call])));
      }
    }
    parts.push(trans.__('from %1 on', time(track.start(at))));
    return parts.join(' · ');
  }

  private _callOf({ lane, track, at }: IEvent): number | null {
    return track === lane.calls && track.of(at) !== SEVERAL ? track.of(at) : null;
  }

  private _placeOf(call: number): IPlace | null {
    return this._data.places[this._data.calls.place[call] - 1] ?? null;
  }

  private _mark(call: number): string {
    const { calls, groups } = this._data;
    const sequence = calls.sequence[call];
    return sequence ? markOfCall(groups[calls.group[call]].name, sequence) : '';
  }

  /** `all_reduce #12`. */
  private _numbered(call: number): string {
    const { calls, names } = this._data;
    const [operation] = names[calls.name[call]].split(' ', 1);
    return calls.sequence[call] ? `${operation} #${calls.sequence[call]}` : operation;
  }

  private _say(from: number, to: number): void {
    const text = this._trans.__('%1 to %2 of %3', time(from), time(to), time(this._data.length));
    if (this._range.textContent !== text) {
      this._range.textContent = text;
    }
  }

  // -- keys --------------------------------------------------------------------------------------

  private readonly _onKey = (event: KeyboardEvent): void => {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.node.contains(event.target as Node)) {
      return;
    }
    const isChart = event.target === this._chart.node;
    const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    let done = true;
    if (event.target === this._search && event.key === 'Enter') {
      this._next(event.shiftKey ? -1 : 1);
    } else if (event.key === '/' && !isTyping) {
      this._search.focus();
    } else if (event.key === 'Escape' && !isTyping) {
      this._pick(null);
    } else {
      done = isChart && this._onChartKey(event);
    }
    if (done) {
      event.preventDefault();
      event.stopPropagation();
    }
  };

  private _onChartKey({ key, shiftKey }: KeyboardEvent): boolean {
    const chart = this._chart;
    const direction = key === 'ArrowLeft' || key === 'ArrowUp' ? -1 : 1;
    const picked = this._event;
    const middle = picked ? picked.track.start(picked.at) + picked.track.length(picked.at) / 2 : undefined;
    switch (key) {
      case 'ArrowLeft':
      case 'ArrowRight':
        shiftKey ? this._beside(direction) : chart.pan(0.15 * direction);
        return true;
      case 'ArrowUp':
      case 'ArrowDown':
        this._above(direction);
        return true;
      case '+':
      case '=':
        chart.zoomBy(2, middle);
        return true;
      case '-':
        chart.zoomBy(1 / 2, middle);
        return true;
      case 'Home':
      case '0':
        chart.show(0, this._data.length);
        return true;
      case 'Enter': {
        const call = picked ? this._callOf(picked) : null;
        const place = call === null ? null : this._placeOf(call);
        if (place) {
          this._options.reveal?.(place);
        }
        return true;
      }
    }
    return false;
  }

  /** Pick the previous or the next event of the rank. */
  private _beside(direction: number): void {
    const picked = this._event;
    const at = picked ? picked.at + direction : 0;
    const lane = picked?.lane ?? this._chart.lanes[0];
    const track = picked?.track ?? (lane?.calls.count ? lane.calls : lane?.work);
    if (lane && track && at >= 0 && at < track.count) {
      this._pick({ lane, track, at });
    }
  }

  /** Pick an event at about the same time on the rank above or below. */
  private _above(direction: number): void {
    const { lanes, from, to } = this._chart;
    const picked = this._event;
    const number = picked ? lanes.indexOf(picked.lane) + direction : 0;
    const lane: ILane | undefined = lanes[number];
    if (!lane) {
      return;
    }
    const isCall = !picked || picked.track === picked.lane.calls;
    const track = isCall && lane.calls.count ? lane.calls : lane.work;
    const call = picked ? this._callOf(picked) : null;
    const same = call === null ? -1 : lane.calls.ofCall(call);
    const at = same >= 0 ? same : track.at(picked ? picked.track.start(picked.at) : (from + to) / 2, to - from);
    if (at >= 0) {
      this._pick({ lane, track, at });
    }
  }

  private readonly _trans: ITranslate;
  private readonly _chart: Chart;
  private readonly _tip = document.createElement('div');
  private readonly _picked = document.createElement('div');
  private readonly _search = document.createElement('input');
  private readonly _ranks = document.createElement('input');
  private readonly _groups = document.createElement('select');
  private readonly _count = document.createElement('span');
  private readonly _range = document.createElement('span');
  private _event: IEvent | null = null;
}

/** What follows the operation in the name of a call. */
function detailsOf(name: string): string {
  const at = name.indexOf(' ');
  return at < 0 ? '' : name.slice(at);
}

function element<Name extends keyof HTMLElementTagNameMap>(name: Name, text: string): HTMLElementTagNameMap[Name] {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function labelled(text: string, control: HTMLElement): HTMLElement {
  const label = element('label', `${text} `);
  label.append(control);
  return label;
}

/** A box with the colour and the pattern of a kind. */
function sample(kind: number): HTMLCanvasElement {
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [24, 12];
  canvas.setAttribute('aria-hidden', 'true');
  const image = new ImageData(24, 12);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at++) {
    const [x, y] = [at % 24, Math.floor(at / 24)];
    pixels[at] = TABLE[(kind << 6) | ((y & 7) << 3) | (x & 7)] | (255 << 24);
  }
  canvas.getContext('2d')?.putImageData(image, 0, 0);
  return canvas;
}
