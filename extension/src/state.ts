/** What the kernel tells the panel; made in ddt_notebook/views/panel.py. */

import { JSONObject } from '@lumino/coreutils';

/** A line of the notebook, null where the place is in a file. */
export interface IPlace {
  cell: number | null;
  line: number | null;
}

/** One rank, or ranks that are alike. */
export interface IRow extends IPlace {
  ranks: number[];
  label: string;
  sign: string;
  state: string;
  colour: string;
  wait: string;
  where: string;
  memory: string;
}

export interface IFindingPlace extends IPlace {
  place: string;
  code: string;
  who: string;
}

export interface IFinding {
  symptom: string;
  name: string;
  about: string;
  sign: string;
  colour: string;
  title: string;
  places: IFindingPlace[];
  fixes: string[];
  explain: string[];
}

export interface ISession {
  line: string;
  ranks: number;
  busy: boolean;
  frozen: boolean;
}

export type Outcome = 'ok' | 'failed' | 'hung' | 'interrupted';

export interface IRun {
  number: number;
  cell: number;
  outcome: Outcome | null;
  frozen: boolean;
}

export interface IReport {
  cell: number;
  findings: IFinding[];
  summary: string;
}

export interface IState {
  session: ISession | null;
  run: IRun | null;
  report: IReport | null;
  /** Of the last run before that one in which something was found. */
  earlier: IReport | null;
  headline: string;
  rows: IRow[];
  notes: string[];
}

/** What came through the comm, if it has the form of a state. */
export function asState(data: JSONObject): IState | null {
  const whole = 'session' in data && 'headline' in data && Array.isArray(data.rows);
  return whole ? (data as unknown as IState) : null;
}
