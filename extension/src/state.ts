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
  device: string;
  /** Of what it may allocate, 0 to 1; null without a limit. */
  share: number | null;
  allocated: string;
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
  /** What a button asked of the run, as soon as the kernel has heard it. */
  asked?: string;
  headline: string;
  rows: IRow[];
  notes: string[];
}

/** What came through the comm, if it has the form of a state. */
export function asState(data: JSONObject): IState | null {
  const state = data as unknown as IState;
  const known = 'session' in data && typeof data.headline === 'string';
  const lists = [state.rows, state.notes, state.report?.findings ?? [], state.earlier?.findings ?? []];
  return known && lists.every(Array.isArray) ? state : null;
}

/** A view, or the whole report; made in ddt_notebook/widgets/pages.py. */
export interface IPage {
  page: string;
  html: string;
  /** Why there is none. */
  missing: string;
}

/** The question for a page: a view of the last run by its name, or the whole report. */
export function askPage(page: string): JSONObject {
  return { do: 'page', page };
}

/** What came through the comm, if it has the form of a page. */
export function asPage(data: JSONObject): IPage | null {
  return 'page' in data && 'html' in data ? (data as unknown as IPage) : null;
}
