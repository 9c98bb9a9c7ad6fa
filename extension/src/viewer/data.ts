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
  /** Its own work and its waits, and below them what it sent and received. */
  work: Track;
  calls: Track;
}

interface IHeader extends Omit<ITimeline, 'lanes' | 'calls'> {
  /** Microseconds of one unit of time in the columns. */
  unit: number;
  calls: number;
  lanes: { rank: number; work: number; calls: number }[];
}

/** Read the text that Python wrote; throws an error if it is damaged. */
export async function decode(text: string): Promise<ITimeline> {
  const bytes = await inflate(packed(text.trim()));
  const size = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size))) as IHeader;
  const { unit } = header;
  let at = 4 + size;
  const column = (count: number): Uint32Array => {
    const found = joined(bytes, at, count);
    at += 4 * count;
    return found;
  };
  const times = (count: number): Float32Array => {
    const units = column(count);
    const found = new Float32Array(count);
    for (let i = 0; i < count; i++) {
      found[i] = units[i] * unit;
    }
    return found;
  };
  const track = (count: number): Track => {
    const steps = column(count);
    const start = new Float64Array(count);
    let now = 0;
    for (let i = 0; i < count; i++) {
      now += steps[i] * unit;
      start[i] = now;
    }
    return new Track(start, times(count), times(count), column(count), column(count));
  };
  const count = header.calls;
  const calls: ICalls = {
    name: column(count),
    group: column(count),
    sequence: column(count),
    place: column(count),
    entered: column(count),
    last: column(count),
    late: column(count)
  };
  const lanes = header.lanes.map(lane => ({
    rank: lane.rank,
    work: track(lane.work),
    calls: track(lane.calls)
  }));
  return { ...header, calls, lanes };
}

/** The bytes of a column's numbers stand apart, the lowest first: they compress better. */
function joined(bytes: Uint8Array, at: number, count: number): Uint32Array {
  const found = new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    found[i] =
      bytes[at + i] |
      (bytes[at + count + i] << 8) |
      (bytes[at + 2 * count + i] << 16) |
      (bytes[at + 3 * count + i] << 24);
  }
  return found;
}

function packed(text: string): Uint8Array {
  const letters = atob(text);
  const found = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) {
    found[i] = letters.charCodeAt(i);
  }
  return found;
}

async function inflate(bytes: Uint8Array): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
