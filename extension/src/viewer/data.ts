/** The timeline of a run in columns; ddt_notebook/views/viewer_data.py makes it. */

import { Track } from './track';

/** A line of the program. */
export interface IPlace {
  text: string;
  cell: number | null;
  line: number | null;
  /** Connects it with elements of other views; see marks.ts. */
  mark: string;
}

export interface IGroup {
  text: string;
  /** Its name in the program, of which marks are made. */
  name: string;
  ranks: number[];
}

/** Collectives that ranks entered, and messages of one rank, in columns. */
export interface ICalls {
  /** Number in `names`. */
  name: Uint32Array;
  group: Uint32Array;
  /** Number within the group; 0 for a message. */
  sequence: Uint32Array;
  /** Number in `places` plus 1, else 0. */
  place: Uint32Array;
  /** How many ranks entered. */
  entered: Uint32Array;
  /** The rank that came last plus 1; 0 if some never came. */
  last: Uint32Array;
  /** How much later than the median of the others, in microseconds. */
  late: Uint32Array;
}

export interface ITimeline {
  /** Microseconds. */
  length: number;
  kinds: string[];
  names: string[];
  groups: IGroup[];
  places: IPlace[];
  calls: ICalls;
  /** When each step ended, in microseconds. */
  steps: number[];
  /** What the data leaves out; empty if nothing. */
  notes: string[];
  lanes: ILane[];
}

/** What one rank did. */
export interface ILane {
  rank: number;
  /** Empty unless the ranks ran on several hosts. */
  host: string;
  /** Its own work and its waits, and below them what it sent and received. */
  work: Track;
  calls: Track;
}

/** `rank 5`, or `rank 5 · nodeB`, as the other views name it. */
export function labelOf({ rank, host }: ILane): string {
  return host ? `rank ${rank} · ${host}` : `rank ${rank}`;
}

interface IHeader extends Omit<ITimeline, 'lanes' | 'calls'> {
  /** Microseconds of one unit of time in the columns. */
  unit: number;
  calls: number;
  lanes: { rank: number; host: string; work: number; calls: number }[];
}

/** Read the text that Python wrote; throws an error if it is damaged. */
export async function decode(text: string): Promise<ITimeline> {
  const bytes = await inflate(packed(text.trim()));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))) as IHeader;
  const columns = new Columns(bytes, 4 + size);
  const track = (count: number): Track =>
    new Track(
      {
        start: columns.numbers(count),
        length: columns.numbers(count),
        wait: columns.numbersIfAny(count),
        kind: columns.bytes(count),
        more: columns.numbersIfAny(count),
        of: columns.later(count)
      },
      header.unit
    );
  const count = header.calls;
  const calls: ICalls = {
    name: columns.numbers(count),
    group: columns.numbers(count),
    sequence: columns.numbers(count),
    place: columns.numbers(count),
    entered: columns.numbers(count),
    last: columns.numbers(count),
    late: columns.numbers(count).map(units => units * header.unit)
  };
  const lanes = header.lanes.map(lane => ({
    rank: lane.rank,
    host: lane.host,
    work: track(lane.work),
    calls: track(lane.calls)
  }));
  return { ...header, calls, lanes };
}

/**
 * Reads one column after the other: a byte says how many bytes its numbers have (0: all are 0); then
 * come the lowest bytes of all numbers, the next ones, and so on, which compresses better.
 */
class Columns {
  constructor(
    private readonly _bytes: Uint8Array,
    private _at: number
  ) {}

  numbers(count: number): Uint32Array {
    return this.later(count)();
  }

  /** Null if all are 0. */
  numbersIfAny(count: number): Uint32Array | null {
    return this._bytes[this._at] === 0 ? this._skip(count) : this.numbers(count);
  }

  /** Numbers below 256. */
  bytes(count: number): Uint8Array {
    const at = this._at + 1;
    const width = this._bytes[this._at];
    this._skip(count);
    return width ? this._bytes.subarray(at, at + count) : new Uint8Array(count);
  }

  /** Numbers that are read when they are needed. */
  later(count: number): () => Uint32Array {
    const bytes = this._bytes;
    const at = this._at + 1;
    const width = bytes[this._at];
    this._skip(count);
    return () => {
      const found = new Uint32Array(count);
      found.set(bytes.subarray(at, width ? at + count : at));
      for (let byte = 1; byte < width; byte++) {
        const from = at + byte * count;
        for (let i = 0; i < count; i++) {
          found[i] |= bytes[from + i] << (8 * byte);
        }
      }
      return found;
    };
  }

  private _skip(count: number): null {
    this._at += 1 + count * this._bytes[this._at];
    return null;
  }
}

function packed(text: string): Uint8Array {
  // not in browsers from before 2025
  const known = Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array };
  if (known.fromBase64) {
    return known.fromBase64(text);
  }
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) {
    found[i] = letters.charCodeAt(i);
  }
  return found;
}

async function inflate(bytes: Uint8Array): Promise<Uint8Array> {
  const { readable, writable } = new DecompressionStream('deflate');
  const writer = writable.getWriter();
  // an error of damaged data reaches the reader
  writer.write(bytes).catch(() => undefined);
  writer.close().catch(() => undefined);
  return new Uint8Array(await new Response(readable).arrayBuffer());
}
