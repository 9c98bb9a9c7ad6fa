/** The events of one rank in order of time, with a tree of summaries so that any part is drawn fast. */

/** Kinds of events; the order is that of `KINDS` in ddt_notebook/views/viewer_data.py. */
export const NONE = 0;
export const KINDS = 10;
/** The parts of a collective. */
export const WAITS = 6;
export const MOVES = 7;
/** The call of a collective whose end is not known: a moment. */
export const ISSUED = 9;
/** Several short events that were too many to be sent one by one. */
export const SEVERAL = 0xffffffff;

/** Events or nodes of a node of the tree: at most so many are added up for a pixel. */
const FAN = 4;
/** An event without a length counts as this part of a pixel. */
const LEAST = 0.05;

/** The nodes of one height of the tree; times are in units. */
interface ILevel {
  start: Uint32Array;
  end: Uint32Array;
  /** Units in which something happened. */
  busy: Float32Array;
  /** The kind that took most time. */
  kind: Uint8Array;
}

/** The columns of events; times are in units. */
export interface IColumns {
  /** How much later than the event before; the track makes it the time from the beginning. */
  start: Uint32Array;
  length: Uint32Array;
  /** How long an event waited at its beginning; null: none did. */
  wait: Uint32Array | null;
  kind: Uint8Array;
  /** How many more events it stands for; null: none does. */
  more: Uint32Array | null;
  /** Reads its name, or its call; few pictures need them. */
  of: () => Uint32Array;
}

export class Track {
  /** `unit`: the microseconds of a unit. */
  constructor(
    private readonly _columns: IColumns,
    private readonly _unit: number
  ) {
    this.count = _columns.start.length;
    if (this.count > 0) {
      this._levels.push(this._lowest());
    }
    for (let top = this._levels[0]; top?.start.length > 1; ) {
      top = summary(top);
      this._levels.push(top);
    }
  }

  readonly count: number;

  /** For each kind, whether there is an event of it. */
  readonly kinds = new Uint8Array(KINDS);

  /** Microseconds. */
  start(at: number): number {
    return this._columns.start[at] * this._unit;
  }

  length(at: number): number {
    return this._columns.length[at] * this._unit;
  }

  wait(at: number): number {
    return (this._columns.wait?.[at] ?? 0) * this._unit;
  }

  end(at: number): number {
    return this.start(at) + this.length(at);
  }

  kind(at: number): number {
    return this._columns.kind[at];
  }

  /** How many events one stands for. */
  size(at: number): number {
    return (this._columns.more?.[at] ?? 0) + 1;
  }

  /** The number of its name, or of its call. */
  of(at: number): number {
    return this._of()[at];
  }

  /** Note which events were searched for; null: none. Returns how many. */
  search(wanted: ((at: number) => boolean) | null): number {
    if (wanted === null) {
      this._found = [];
      return 0;
    }
    const found = new Uint8Array(this.count);
    let count = 0;
    for (let i = 0; i < this.count; i++) {
      const hit = Number(wanted(i));
      found[i] = hit;
      count += hit;
    }
    this._found = [found];
    for (const level of this._levels) {
      const below = this._found[this._found.length - 1];
      const above = new Uint8Array(level.start.length);
      for (let i = 0; i < below.length; i++) {
        above[(i / FAN) | 0] |= below[i];
      }
      this._found.push(above);
    }
    return count;
  }

  isFound(at: number): boolean {
    return this._found[0]?.[at] === 1;
  }

  /** The next event that was searched for, later or earlier than a time; -1 if there is none. */
  nextFound(time: number, direction: 1 | -1, orAtIt: boolean): number {
    let at = direction > 0 ? this._before(time, !orAtIt) : this._before(time, orAtIt) - 1;
    while (at >= 0 && at < this.count && !this.isFound(at)) {
      at += direction;
    }
    return at < this.count ? at : -1;
  }

  /** The shortest event at a time, or within a distance of it; -1 if there is none. */
  at(time: number, near: number): number {
    const low = (time - near) / this._unit;
    const high = (time + near) / this._unit;
    const { start, length } = this._columns;
    let best = -1;
    const visit = (depth: number, from: number, to: number): void => {
      if (depth < 0) {
        for (let i = from; i < to && start[i] <= high; i++) {
          if (start[i] + length[i] >= low && (best < 0 || length[i] <= length[best])) {
            best = i;
          }
        }
        return;
      }
      const level = this._levels[depth];
      for (let i = from; i < to && level.start[i] <= high; i++) {
        if (level.end[i] >= low) {
          visit(depth - 1, i * FAN, Math.min((i + 1) * FAN, this._size(depth - 1)));
        }
      }
    };
    const top = this._levels.length - 1;
    visit(top, 0, this._size(top));
    return best;
  }

  /** The first event of a call; -1 if there is none. */
  ofCall(call: number): number {
    return this._of().indexOf(call);
  }

  /**
   * Draw the events of a stretch into one row of pixels.
   *
   * A pixel gets the kind that took most of it, the share of it in which anything happened (0 to
   * 255), and whether something in it was searched for. `first` counts pixels from the beginning of
   * the run, so a pixel looks the same in each stretch of the same scale.
   */
  paint(first: number, perPixel: number, row: Row): void {
    row.clear();
    if (this.count > 0) {
      const top = this._levels.length - 1;
      this._paint(top, 0, this._size(top), first, this._unit / perPixel, row);
      row.flush();
    }
  }

  private _paint(depth: number, from: number, to: number, first: number, scale: number, row: Row): void {
    if (depth < 0) {
      this._paintEvents(from, to, first, scale, row);
      return;
    }
    const { start, end, busy, kind } = this._levels[depth];
    const found = this._found.length ? this._found[depth + 1] : null;
    const last = first + row.width;
    for (let i = from; i < to; i++) {
      const low = start[i] * scale;
      if (low >= last) {
        return;
      }
      const high = end[i] * scale;
      if (high < first) {
        continue;
      }
      if (high - low <= 1) {
        row.add(Math.floor(low) - first, kind[i], busy[i] * scale, found === null ? 0 : found[i]);
      } else {
        this._paint(depth - 1, i * FAN, Math.min((i + 1) * FAN, this._size(depth - 1)), first, scale, row);
      }
    }
  }

  private _paintEvents(from: number, to: number, first: number, scale: number, row: Row): void {
    const { start, length, wait, kind } = this._columns;
    const found = this._found.length ? this._found[0] : null;
    const last = first + row.width;
    for (let i = from; i < to; i++) {
      const low = start[i] * scale;
      if (low >= last) {
        return;
      }
      const long = length[i] * scale;
      if (low + long < first) {
        continue;
      }
      const hit = found === null ? 0 : found[i];
      if (long <= 1) {
        row.add(Math.floor(low) - first, kind[i], long, hit);
      } else if (wait !== null && wait[i] > 0) {
        const parted = low + wait[i] * scale;
        row.fill(low - first, parted - first, WAITS, hit);
        row.fill(parted - first, low + long - first, kind[i], hit);
      } else {
        row.fill(low - first, low + long - first, kind[i], hit);
      }
    }
  }

  /** The lowest level; it also makes times of the steps from one event to the next. */
  private _lowest(): ILevel {
    const { start, length, wait, kind } = this._columns;
    const level = newLevel(this.count);
    const time = new Float64Array(KINDS);
    let now = 0;
    let used = 0;
    for (let node = 0, i = 0; i < this.count; node++) {
      const first = i;
      const last = Math.min(first + FAN, this.count);
      let end = 0;
      let busy = 0;
      let most = NONE;
      let longest = -1;
      for (; i < last; i++) {
        now += start[i];
        start[i] = now;
        const long = length[i];
        end = now + long > end ? now + long : end;
        busy += long;
        const waited = wait === null ? 0 : wait[i];
        if (waited > 0) {
          time[WAITS] += waited;
          used |= 1 << WAITS;
          if (time[WAITS] > longest) {
            longest = time[WAITS];
            most = WAITS;
          }
        }
        const sum = (time[kind[i]] += long - waited);
        used |= 1 << kind[i];
        if (sum > longest) {
          longest = sum;
          most = kind[i];
        }
      }
      for (let at = first; at < last; at++) {
        time[kind[at]] = 0;
      }
      time[WAITS] = 0;
      level.start[node] = start[first];
      level.end[node] = end;
      level.busy[node] = busy;
      level.kind[node] = most;
    }
    for (let one = 0; one < KINDS; one++) {
      this.kinds[one] = (used >> one) & 1;
    }
    return level;
  }

  /** How many nodes a level has; below the lowest are the events. */
  private _size(depth: number): number {
    return depth < 0 ? this.count : this._levels[depth].start.length;
  }

  private _of(): Uint32Array {
    return (this._ofs ??= this._columns.of());
  }

  /** How many events begin before a time, or until it. */
  private _before(time: number, until: boolean): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start(middle) < time || (until && this.start(middle) === time)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  /** From the lowest; each node stands for some nodes of the level before, or for events. */
  private readonly _levels: ILevel[] = [];
  /** Whether an event was searched for, and then for each level whether one in a node was; else empty. */
  private _found: Uint8Array[] = [];
  private _ofs: Uint32Array | null = null;
}

function newLevel(below: number): ILevel {
  const count = Math.ceil(below / FAN);
  return {
    start: new Uint32Array(count),
    end: new Uint32Array(count),
    busy: new Float32Array(count),
    kind: new Uint8Array(count)
  };
}

function summary(below: ILevel): ILevel {
  const total = below.start.length;
  const level = newLevel(total);
  const time = new Float64Array(KINDS);
  for (let node = 0, i = 0; i < total; node++) {
    const first = i;
    const last = Math.min(first + FAN, total);
    let end = 0;
    let busy = 0;
    let most = NONE;
    let longest = -1;
    for (; i < last; i++) {
      end = below.end[i] > end ? below.end[i] : end;
      busy += below.busy[i];
      const sum = (time[below.kind[i]] += below.busy[i]);
      if (sum > longest) {
        longest = sum;
        most = below.kind[i];
      }
    }
    for (let at = first; at < last; at++) {
      time[below.kind[at]] = 0;
    }
    level.start[node] = below.start[first];
    level.end[node] = end;
    level.busy[node] = busy;
    level.kind[node] = most;
  }
  return level;
}

/** One row of pixels. */
export class Row {
  readonly kinds: Uint8Array;
  readonly shares: Uint8Array;
  readonly found: Uint8Array;

  constructor(readonly width: number) {
    this.kinds = new Uint8Array(width);
    this.shares = new Uint8Array(width);
    this.found = new Uint8Array(width);
  }

  clear(): void {
    this.kinds.fill(NONE);
    this.shares.fill(0);
    this.found.fill(0);
  }

  /** An event of several pixels. */
  fill(low: number, high: number, kind: number, found: number): void {
    this.flush();
    const first = Math.max(0, Math.round(low));
    const last = Math.min(this.width, Math.round(high));
    if (last > first) {
      this.kinds.fill(kind, first, last);
      this.shares.fill(255, first, last);
      if (found) {
        this.found.fill(1, first, last);
      }
    }
  }

  /** A part of a pixel. */
  add(pixel: number, kind: number, share: number, found: number): void {
    if (pixel < 0) {
      return;
    }
    if (pixel !== this._pixel) {
      this.flush();
      this._pixel = pixel;
      this._most = kind;
    }
    share = share > LEAST ? share : LEAST;
    const sum = (this._sums[kind] += share);
    this._total += share;
    this._used |= 1 << kind;
    if (sum > this._sums[this._most]) {
      this._most = kind;
    }
    this._foundHere |= found;
  }

  /** Write the pixel whose parts were added. */
  flush(): void {
    const at = this._pixel;
    if (at < 0) {
      return;
    }
    // a long event below stays in view where short ones take less than half of the pixel
    if (this.kinds[at] === NONE || this._total > 0.5) {
      const share = this._total < 1 ? 255 * this._total : 255;
      this.kinds[at] = this._most;
      this.shares[at] = share > this.shares[at] ? share : this.shares[at];
    }
    this.found[at] |= this._foundHere;
    for (let kind = 0; this._used; kind++, this._used >>= 1) {
      this._sums[kind] = 0;
    }
    this._total = this._foundHere = 0;
    this._pixel = -1;
  }

  private readonly _sums = new Float64Array(KINDS);
  /** A bit for each kind with a sum. */
  private _used = 0;
  private _total = 0;
  private _most = NONE;
  private _pixel = -1;
  private _foundHere = 0;
}
