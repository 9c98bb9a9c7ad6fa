/** The events of one rank in order of time, with a tree of summaries so that any part is drawn fast. */

/** Kinds of events; the order is that of `KINDS` in ddt_notebook/views/viewer_data.py. */
export const NONE = 0;
export const KINDS = 10;
/** The parts of a collective. */
export const WAITS = 6;
export const MOVES = 7;
/** Several short events that were too many to be sent one by one. */
export const SEVERAL = 0xffffffff;

/** Events of a node of the tree. */
const FAN = 16;
/** An event without a length counts as this part of a pixel. */
const LEAST = 0.05;

interface ILevel {
  start: Float64Array;
  end: Float64Array;
  /** Microseconds in which something happened. */
  busy: Float32Array;
  /** The kind that took most time. */
  kind: Uint8Array;
  /** Whether an event in it was searched for. */
  found: Uint8Array;
}

export class Track {
  /**
   * `wait`: how long an event waited at its beginning. `what`: its kind in the lowest byte, and how
   * many events it stands for in the others. `of`: its name, or its call.
   */
  constructor(
    readonly start: Float64Array,
    readonly length: Float32Array,
    readonly wait: Float32Array,
    readonly what: Uint32Array,
    readonly of: Uint32Array
  ) {
    const count = start.length;
    const found = new Uint8Array(count);
    const end = new Float64Array(count);
    const kind = new Uint8Array(count);
    for (let i = 0; i < count; i++) {
      end[i] = start[i] + length[i];
      kind[i] = what[i] & 0xff;
      this.kinds[kind[i]] = 1;
      this.kinds[WAITS] |= Number(wait[i] > 0);
    }
    this._levels.push({ start, end, busy: length, kind, found });
    for (let below = this._levels[0]; below.start.length > 1; ) {
      below = this._summary(below);
      this._levels.push(below);
    }
  }

  /** For each kind, whether there is an event of it. */
  readonly kinds = new Uint8Array(KINDS);

  get count(): number {
    return this.start.length;
  }

  end(at: number): number {
    return this._levels[0].end[at];
  }

  kind(at: number): number {
    return this._levels[0].kind[at];
  }

  /** How many events one stands for. */
  size(at: number): number {
    return (this.what[at] >>> 8) + 1;
  }

  /** Note which events were searched for; null: none. Returns how many. */
  search(wanted: ((at: number) => boolean) | null): number {
    const [events, ...above] = this._levels;
    if (wanted === null) {
      this._levels.forEach(level => level.found.fill(0));
      return 0;
    }
    let count = 0;
    for (let i = 0; i < this.count; i++) {
      const hit = wanted(i);
      events.found[i] = hit ? 1 : 0;
      count += hit ? 1 : 0;
    }
    let below = events;
    for (const level of above) {
      level.found.fill(0);
      for (let i = 0; i < below.found.length; i++) {
        level.found[(i / FAN) | 0] |= below.found[i];
      }
      below = level;
    }
    return count;
  }

  isFound(at: number): boolean {
    return this._levels[0].found[at] === 1;
  }

  /** The next event that was searched for, later or earlier than a time; -1 if there is none. */
  nextFound(time: number, direction: 1 | -1, orAtIt: boolean): number {
    let at = direction > 0 ? this._count(time, !orAtIt) : this._count(time, orAtIt) - 1;
    while (at >= 0 && at < this.count && !this.isFound(at)) {
      at += direction;
    }
    return at < this.count ? at : -1;
  }

  /** The shortest event at a time, or within a distance of it; -1 if there is none. */
  at(time: number, near: number): number {
    let best = -1;
    const visit = (depth: number, from: number, to: number): void => {
      const level = this._levels[depth];
      for (let i = from; i < to && level.start[i] <= time + near; i++) {
        if (level.end[i] < time - near) {
          continue;
        }
        if (depth > 0) {
          visit(depth - 1, i * FAN, Math.min((i + 1) * FAN, this._levels[depth - 1].start.length));
        } else if (best < 0 || this.length[i] <= this.length[best]) {
          best = i;
        }
      }
    };
    const top = this._levels.length - 1;
    visit(top, 0, this._levels[top].start.length);
    return best;
  }

  /** The first event of a call; -1 if there is none. */
  ofCall(call: number): number {
    return this.of.indexOf(call);
  }

  /**
   * Draw the events of a stretch into one row of pixels.
   *
   * A pixel gets the kind that took most of it, the share of it in which anything happened (0 to
   * 255), and whether something in it was searched for.
   */
  paint(from: number, perPixel: number, row: Row): void {
    row.clear();
    const top = this._levels.length - 1;
    if (this.count > 0) {
      this._paint(top, 0, this._levels[top].start.length, from, 1 / perPixel, row);
      row.flush();
    }
  }

  private _paint(depth: number, first: number, last: number, from: number, scale: number, row: Row): void {
    const level = this._levels[depth];
    const { start, end, busy, kind, found } = level;
    const width = row.kinds.length;
    for (let i = first; i < last; i++) {
      const low = (start[i] - from) * scale;
      if (low >= width) {
        return;
      }
      const high = (end[i] - from) * scale;
      if (high < 0) {
        continue;
      }
      if (high - low <= 1) {
        row.add(Math.max(0, low | 0), kind[i], Math.max(LEAST, busy[i] * scale), found[i]);
      } else if (depth > 0) {
        const below = this._levels[depth - 1].start.length;
        this._paint(depth - 1, i * FAN, Math.min((i + 1) * FAN, below), from, scale, row);
      } else if (this.wait[i] > 0) {
        const parted = low + this.wait[i] * scale;
        row.fill(low, parted, WAITS, found[i]);
        row.fill(parted, high, kind[i], found[i]);
      } else {
        row.fill(low, high, kind[i], found[i]);
      }
    }
  }

  private _summary(below: ILevel): ILevel {
    const total = below.start.length;
    const count = Math.ceil(total / FAN);
    const level: ILevel = {
      start: new Float64Array(count),
      end: new Float64Array(count),
      busy: new Float32Array(count),
      kind: new Uint8Array(count),
      found: new Uint8Array(count)
    };
    const isLowest = this._levels.length === 1;
    const time = new Float64Array(KINDS);
    for (let node = 0; node < count; node++) {
      let end = 0;
      let busy = 0;
      time.fill(0);
      const last = Math.min((node + 1) * FAN, total);
      for (let i = node * FAN; i < last; i++) {
        end = below.end[i] > end ? below.end[i] : end;
        busy += below.busy[i];
        const wait = isLowest ? this.wait[i] : 0;
        time[below.kind[i]] += below.busy[i] - wait;
        time[WAITS] += wait;
      }
      let most = below.kind[node * FAN];
      for (let kind = 1; kind < KINDS; kind++) {
        most = time[kind] > time[most] ? kind : most;
      }
      level.start[node] = below.start[node * FAN];
      level.end[node] = end;
      level.busy[node] = busy;
      level.kind[node] = most;
    }
    return level;
  }

  /** How many events begin before a time, or until it. */
  private _count(time: number, until: boolean): number {
    let low = 0;
    let high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.start[middle] < time || (until && this.start[middle] === time)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  private readonly _levels: ILevel[] = [];
}

/** One row of pixels. */
export class Row {
  readonly kinds: Uint8Array;
  readonly shares: Uint8Array;
  readonly found: Uint8Array;

  constructor(width: number) {
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
    const last = Math.min(this.kinds.length, Math.round(high));
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
    if (pixel !== this._pixel) {
      this.flush();
      this._pixel = pixel;
    }
    const sum = (this._sums[kind] += share);
    this._total += share;
    if (this._most === NONE || sum > this._sums[this._most]) {
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
      this.kinds[at] = this._most;
      this.shares[at] = Math.max(this.shares[at], Math.min(255, 255 * this._total));
    }
    this.found[at] |= this._foundHere;
    this._sums.fill(0);
    this._total = this._foundHere = 0;
    this._most = NONE;
    this._pixel = -1;
  }

  private readonly _sums = new Float64Array(KINDS);
  private _total = 0;
  private _most = NONE;
  private _pixel = -1;
  private _foundHere = 0;
}
