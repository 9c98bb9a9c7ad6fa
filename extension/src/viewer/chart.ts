/** Draws the lanes of the ranks on a canvas, and lets a pointer pan and zoom them. */

import { scaleLinear } from 'd3-scale';
import { select } from 'd3-selection';
import { zoom, ZoomBehavior, zoomIdentity, zoomTransform } from 'd3-zoom';

import { ILane, ITimeline, labelOf } from './data';
import { TABLE } from './look';
import { ISSUED, Row, Track } from './track';

/** Space for the names of the ranks, at least and at most, and for the axis, in pixels of the page. */
const NARROW = 62;
const WIDE = 180;
const AXIS = 34;
/** The lanes share this height as far as the limits of one lane allow. */
const HEIGHT = 480;
const LEAST_LANE = 10;
const MOST_LANE = 34;
/** A stretch of this many microseconds is the shortest that can be shown. */
const SHORTEST = 5;
const FONT = '12px system-ui, sans-serif';
/** Alpha of a pixel in which little happened, and of what was not searched for. */
const FAINT = 70;
const DIMMED = 0.3;

/** One event in the lane of a rank. */
export interface IEvent {
  lane: ILane;
  track: Track;
  at: number;
}

export interface IListener {
  hovered(event: IEvent | null, x: number, y: number): void;
  clicked(event: IEvent | null): void;
  moved(from: number, to: number): void;
}

export class Chart {
  readonly node = document.createElement('div');
  /** The lanes that are shown. */
  lanes: ILane[];
  /** The events with an outline. */
  outlined: IEvent[] = [];
  /** Whether only events that were searched for are in full colour. */
  searching = { work: false, calls: false };

  constructor(
    private readonly _data: ITimeline,
    private readonly _listener: IListener
  ) {
    this.lanes = _data.lanes;
    this._gutter = this._widest();
    this._hasWork = _data.lanes.some(({ work }) => work.count > 0);
    this.node.className = 'ddt-viewer-chart';
    this.node.append(this._canvas);
    this._canvas.setAttribute('aria-hidden', 'true');
    this._zoom = zoom<HTMLDivElement, unknown>()
      .filter(event => (event.type === 'wheel' ? event.ctrlKey || event.metaKey : !event.button))
      .on('zoom', this.update);
    select(this.node).call(this._zoom);
    this.node.addEventListener('wheel', this._onWheel, { passive: false });
    this.node.addEventListener('pointermove', this._onMove);
    this.node.addEventListener('pointerleave', this._onLeave);
    this.node.addEventListener('click', this._onClick);
    this._observer = new ResizeObserver(() => this.layout());
    this._observer.observe(this.node);
    const themes = new MutationObserver(this.redraw); // JupyterLab's
    themes.observe(document.body, { attributeFilter: ['data-jp-theme-name', 'data-jp-theme-light'] });
    this._ends.push(() => themes.disconnect());
    for (const query of ['(prefers-color-scheme: dark)', '(forced-colors: active)']) {
      const media = matchMedia(query);
      media.addEventListener('change', this.redraw);
      this._ends.push(() => media.removeEventListener('change', this.redraw));
    }
  }

  dispose(): void {
    this._observer.disconnect();
    this._ends.forEach(end => end());
    cancelAnimationFrame(this._frame);
  }

  get from(): number {
    return this._scale().invert(0);
  }

  get to(): number {
    return this._scale().invert(this._width);
  }

  /** Show a stretch of time. */
  show(from: number, to: number): void {
    const span = Math.max(to - from, Math.min(SHORTEST, this._length));
    const k = this._length / span;
    const x = -(from / this._length) * this._width * k;
    select(this.node).call(this._zoom.transform, zoomIdentity.translate(x, 0).scale(k));
  }

  /** Move by a part of what is shown. */
  pan(part: number): void {
    const { k } = zoomTransform(this.node);
    select(this.node).call(this._zoom.translateBy, (-part * this._width) / k, 0);
  }

  /** Show a shorter or a longer stretch around its middle, or around a time. */
  zoomBy(factor: number, around = (this.from + this.to) / 2): void {
    const from = around - (around - this.from) / factor;
    const to = around + (this.to - around) / factor;
    this.show(Math.max(0, from), Math.min(this._length, to));
  }

  /** Bring an event into view, if possible a few pixels wide, with what is around it. */
  reveal({ track, at }: IEvent): void {
    const start = track.start(at);
    const length = track.length(at);
    let span = this.to - this.from;
    const isSmall = length > 0 && (length / span) * this._width < 6;
    if (isSmall) {
      span = Math.min(span, Math.max(length * 40, this._length / 1000));
    }
    if (isSmall || start < this.from || start + length > this.to) {
      const from = Math.min(Math.max(0, start + length / 2 - span / 2), this._length - span);
      this.show(from, from + span);
    }
  }

  /** Take the size of the page and the number of lanes, and draw. */
  layout(): void {
    const width = Math.max(50, this.node.clientWidth - this._gutter);
    const { from, to } = this._width ? this : { from: 0, to: this._length };
    this._lane = Math.min(MOST_LANE, Math.max(LEAST_LANE, Math.floor(HEIGHT / this.lanes.length)));
    this.node.style.height = `${AXIS + this._lane * this.lanes.length}px`;
    if (width !== this._width) {
      this._width = width;
      const height = AXIS + this._lane * this.lanes.length;
      this._zoom
        .extent([[0, 0], [width, height]])
        .translateExtent([[0, -Infinity], [width, Infinity]])
        .scaleExtent([1, Math.max(1, this._length / SHORTEST)]);
      this.show(from, to);
    }
    this.redraw();
  }

  /** Draw all anew before the page is shown next. */
  readonly redraw = (): void => {
    this._drawn = null;
    this._colour = '';
    this.update();
  };

  /** Draw what changed before the page is shown next: what is in view, or outlined. */
  readonly update = (): void => {
    if (!this._frame) {
      this._frame = requestAnimationFrame(() => {
        this._frame = 0;
        this._draw();
        this._listener.moved(this.from, this.to);
      });
    }
  };

  /** The space for the names of the ranks; only those with hosts need more than the least. */
  private _widest(): number {
    const context = this._canvas.getContext('2d');
    const named = this.lanes.filter(({ host }) => host);
    if (!context || !named.length) {
      return NARROW;
    }
    context.font = FONT;
    const widths = named.map(lane => context.measureText(labelOf(lane)).width);
    const widest = widths.reduce((one, other) => Math.max(one, other), 0);
    return Math.min(WIDE, Math.max(NARROW, Math.ceil(widest) + 12));
  }

  private get _length(): number {
    return Math.max(this._data.length, 1);
  }

  private _scale() {
    const whole = scaleLinear([0, this._length], [0, this._width]);
    const { k, x } = zoomTransform(this.node);
    return scaleLinear([0, this._width].map(at => whole.invert((at - x) / k)), [0, this._width]);
  }

  private _draw(): void {
    const context = this._canvas.getContext('2d');
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const width = Math.round(this._width * ratio);
    const lane = Math.round(this._lane * ratio);
    const height = lane * this.lanes.length;
    if (!context || !width || !height) {
      return;
    }
    const size = [Math.round((this._gutter + this._width) * ratio), Math.round(AXIS * ratio) + height];
    if (this._canvas.width !== size[0] || this._canvas.height !== size[1]) {
      [this._canvas.width, this._canvas.height] = size;
    }
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, size[0], size[1]);
    if (this._colour === '') {
      this._colour = getComputedStyle(this.node).color;
    }
    context.font = FONT;
    context.fillStyle = context.strokeStyle = this._colour;
    context.putImageData(
      this._pixels(width, lane, opaque(String(context.fillStyle))),
      Math.round(this._gutter * ratio),
      Math.round(AXIS * ratio)
    );
    context.scale(ratio, ratio);
    const scale = this._scale();
    this._words(context, scale);
    this._outlines(context, scale, ratio);
  }

  /**
   * The lanes as pixels. Pixels are counted from the beginning of the run, so that after a move only
   * those are drawn that were not in view before.
   */
  private _pixels(width: number, lane: number, ink: number): ImageData {
    const { k, x } = zoomTransform(this.node);
    const perPixel = this._length / k / width;
    const first = Math.round((-x * width) / this._width);
    const height = lane * this.lanes.length;
    let image = this._image;
    if (image?.width !== width || image.height !== height) {
      image = this._image = new ImageData(width, height);
      this._drawn = null;
    }
    const pixels = new Uint32Array(image.data.buffer);
    const by = this._drawn?.perPixel === perPixel ? first - this._drawn.first : width;
    this._drawn = { perPixel, first };
    if (by === 0) {
      return image;
    }
    const count = Math.min(width, Math.abs(by));
    const left = by > 0 ? width - count : 0;
    if (count === width) {
      pixels.fill(0);
    } else {
      pixels.copyWithin(Math.max(0, -by), Math.max(0, by));
      for (let y = 0; y < height; y++) {
        pixels.fill(0, y * width + left, y * width + left + count);
      }
    }
    if (this._row.width !== count) {
      this._row = new Row(count);
    }
    const { work, gap, calls } = heights(lane, this._hasWork);
    this.lanes.forEach((shown, number) => {
      const top = number * lane;
      for (const [track, high, y, searched] of [
        [shown.work, work, top, this.searching.work],
        [shown.calls, calls, top + work + gap, this.searching.calls]
      ] as const) {
        track.paint(first + left, perPixel, this._row);
        write(pixels, y * width + left, width, high, this._row, first + left, searched, ink);
      }
    });
    return image;
  }

  private _words(context: CanvasRenderingContext2D, scale: Scale): void {
    context.textBaseline = 'middle';
    context.textAlign = 'right';
    const every = Math.ceil(13 / this._lane);
    this.lanes.forEach((lane, number) => {
      if (number % every === 0) {
        const y = AXIS + (number + 0.45) * this._lane;
        context.fillText(labelOf(lane), this._gutter - 8, y, this._gutter - 8);
      }
    });
    const ticks = scale.ticks(Math.max(2, this._width / 90));
    const name = naming(ticks, scale.domain()[1]);
    context.textAlign = 'center';
    context.globalAlpha = 0.25;
    for (const tick of ticks) {
      context.fillRect(Math.round(this._gutter + scale(tick)), AXIS - 5, 1, this._canvas.height);
    }
    context.globalAlpha = 1;
    let taken = 0;
    for (const tick of ticks) {
      const text = name(tick);
      const half = context.measureText(text).width / 2;
      const at = Math.min(Math.max(this._gutter + scale(tick), half), this._gutter + this._width - half);
      if (at - half > taken) {
        context.fillText(text, at, 8);
        taken = at + half + 6;
      }
    }
    this._steps(context, scale);
  }

  /** The ends of the steps below the axis, and their numbers where there is room. */
  private _steps(context: CanvasRenderingContext2D, scale: Scale): void {
    let before = this._gutter;
    this._data.steps.forEach((end, number) => {
      const at = this._gutter + scale(end);
      if (at < this._gutter || before > this._gutter + this._width || at - before < 4) {
        before = Math.max(before, Math.min(at, before + 4));
        return;
      }
      if (at <= this._gutter + this._width) {
        context.fillRect(Math.round(at), 17, 1, 12);
      }
      const right = Math.min(at, this._gutter + this._width);
      const text = `step ${number + 1}`;
      if (right - before > context.measureText(text).width + 6) {
        context.fillText(text, (before + right) / 2, 23);
      }
      before = at;
    });
  }

  private _outlines(context: CanvasRenderingContext2D, scale: Scale, ratio: number): void {
    const lane = Math.round(this._lane * ratio);
    const { work, gap, calls } = heights(lane, this._hasWork);
    context.save();
    context.beginPath();
    context.rect(this._gutter - 2, AXIS - 2, this._width + 4, this._canvas.height);
    context.clip();
    context.lineWidth = 2;
    for (const { lane: of, track, at } of this.outlined) {
      const number = this.lanes.indexOf(of);
      if (number < 0) {
        continue;
      }
      const isCall = track === of.calls;
      const top = AXIS + (number * lane + (isCall ? work + gap : 0)) / ratio;
      const low = this._gutter + scale(track.start(at));
      const wide = Math.max(3, this._gutter + scale(track.end(at)) - low);
      context.strokeRect(low - 1, top - 1, wide + 2, (isCall ? calls : work) / ratio + 2);
    }
    context.restore();
  }

  /** The event below the pointer. */
  private _at(event: MouseEvent): IEvent | null {
    const box = this.node.getBoundingClientRect();
    const x = event.clientX - box.left - this._gutter;
    const y = event.clientY - box.top - AXIS;
    const lane = this.lanes[Math.floor(y / this._lane)];
    if (!lane || x < 0) {
      return null;
    }
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    const { work } = heights(Math.round(this._lane * ratio), this._hasWork);
    const track = (y % this._lane) * ratio >= work ? lane.calls : lane.work;
    const near = (2 * (this.to - this.from)) / this._width;
    const at = track.at(this._scale().invert(x), near);
    return at < 0 ? null : { lane, track, at };
  }

  private readonly _onMove = (event: PointerEvent): void => {
    const box = this.node.getBoundingClientRect();
    const found = event.buttons ? null : this._at(event);
    this._listener.hovered(found, event.clientX - box.left, event.clientY - box.top);
  };

  private readonly _onLeave = (): void => this._listener.hovered(null, 0, 0);

  private readonly _onClick = (event: MouseEvent): void => this._listener.clicked(this._at(event));

  /** A wheel that turns sideways pans; with Ctrl it zooms (d3), and else the page scrolls. */
  private readonly _onWheel = (event: WheelEvent): void => {
    const by = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (!event.ctrlKey && !event.metaKey && (event.shiftKey || Math.abs(by) > Math.abs(event.deltaY))) {
      event.preventDefault();
      this.pan(by / this._width);
    }
  };

  private readonly _canvas = document.createElement('canvas');
  private readonly _gutter: number;
  /** Whether anything but collectives and messages is known of a rank. */
  private readonly _hasWork: boolean;
  private readonly _zoom: ZoomBehavior<HTMLDivElement, unknown>;
  private readonly _observer: ResizeObserver;
  private readonly _ends: (() => void)[] = [];
  private _row = new Row(0);
  private _image: ImageData | null = null;
  /** What the image shows; null: what it has to show is another. */
  private _drawn: { perPixel: number; first: number } | null = null;
  /** The colour of words; empty: not known yet. */
  private _colour = '';
  private _width = 0;
  private _lane = MOST_LANE;
  private _frame = 0;
}

type Scale = ReturnType<typeof scaleLinear<number, number>>;

/** The parts of a lane: the rank's work, a gap, its collectives, and the space to the next lane. */
function heights(lane: number, hasWork: boolean): { work: number; gap: number; calls: number } {
  if (!hasWork) { // of a run without a trace
    return { work: 0, gap: 0, calls: Math.max(3, Math.round(lane * 0.8)) };
  }
  const gap = lane > 16 ? 2 : 0;
  const work = Math.max(3, Math.round(lane * 0.5));
  return { work, gap, calls: Math.max(2, Math.round(lane * 0.8) - work - gap) };
}

/**
 * Write a row of pixels several times, so that it is some pixels high: `at` is the place of its first
 * pixel in the picture of some `width`, `first` is that pixel's number from the beginning of the run.
 */
function write(
  pixels: Uint32Array, at: number, width: number, high: number, row: Row, first: number, searched: boolean, ink: number
): void {
  const { kinds, shares, found } = row;
  for (let y = 0; y < Math.min(8, high); y++) {
    const line = at + y * width;
    for (let x = 0; x < row.width; x++) {
      const kind = kinds[x];
      if (kind) {
        const share = kind === ISSUED ? 255 : shares[x] < FAINT ? FAINT : shares[x];
        const alpha = searched && !found[x] ? share * DIMMED : share;
        pixels[line + x] = TABLE[(kind << 6) | ((y & 7) << 3) | ((first + x) & 7)] | (alpha << 24);
      }
    }
  }
  for (let y = 8; y < high; y++) { // the pattern repeats
    const above = at + (y - 8) * width;
    pixels.copyWithin(at + y * width, above, above + row.width);
  }
  for (let y = 0; searched && y < 2; y++) {
    const line = at + y * width;
    for (let x = 0; x < row.width; x++) {
      if (found[x]) {
        pixels[line + x] = ink;
      }
    }
  }
}

/** A colour as a canvas writes it, as a pixel without transparency. */
function opaque(colour: string): number {
  const hex = /^#([0-9a-f]{6})$/i.exec(colour);
  const [red, green, blue] = hex
    ? [0, 2, 4].map(at => parseInt(hex[1].slice(at, at + 2), 16))
    : (colour.match(/\d+/g) ?? []).map(Number);
  return ((255 << 24) | ((blue ?? 128) << 16) | ((green ?? 128) << 8) | (red ?? 128)) >>> 0;
}

/** The names of the ticks of an axis, with as many digits as tell them apart. */
function naming(ticks: number[], to: number): (tick: number) => string {
  const [unit, name] = to < 1e3 ? [1, 'µs'] : to < 1e6 ? [1e3, 'ms'] : to < 6e8 ? [1e6, 's'] : [6e7, 'min'];
  const step = ticks.length > 1 ? (ticks[1] - ticks[0]) / unit : 1;
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step) + 1e-9)));
  return tick => (tick ? `${(tick / unit).toFixed(digits)} ${name}` : '0');
}
