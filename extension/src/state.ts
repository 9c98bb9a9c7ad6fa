/** What the kernel sends to the panel; ddt_notebook/views/panel.py makes it. */

import { JSONObject } from '@lumino/coreutils';

/** A line of a cell; null for a line of a file. */
export interface IPlace {
  cell: number | null;
  line: number | null;
}

/** One rank, or several ranks in the same state. */
export interface IRow extends IPlace {
  ranks: number[];
  /** Whether the ranks were asked to run the cell. */
  asked: boolean;
  label: string;
  sign: string;
  state: string;
  colour: string;
  wait: string;
  where: string;
  memory: string;
  device: string;
  /** The allocated part of what a rank may allocate, 0 to 1; null without a limit. */
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
  /** The path of the symptom's lesson below the folder of lessons; null if there is none. */
  lesson: string | null;
}

/** A view of the last run; ddt_notebook/views/registry.py lists them. */
export interface IView {
  name: string;
  label: string;
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
  views: IView[];
  session: ISession | null;
  run: IRun | null;
  report: IReport | null;
  /** Of the last earlier run that had findings. */
  earlier: IReport | null;
  /** What a button requested, once the kernel has received it. */
  asked?: string;
  headline: string;
  rows: IRow[];
  notes: string[];
}

/** A message of the comm as a state; null if it is not one. */
export function asState(data: JSONObject): IState | null {
  const state = data as unknown as IState;
  const known = 'session' in data && typeof data.headline === 'string';
  const lists = [state.views, state.rows, state.notes, state.report?.findings ?? [], state.earlier?.findings ?? []];
  return known && lists.every(Array.isArray) ? state : null;
}

/** A view or the whole report; ddt_notebook/widgets/pages.py makes it. */
export interface IPage {
  page: string;
  html: string;
  /** Why there is no page; else empty. */
  missing: string;
  /** The data of the interactive timeline; empty for other pages. */
  viewer: string;
}

/** The request for a page: the name of a view of the last run, or of the whole report. */
export function askPage(page: string): JSONObject {
  return { do: 'page', page };
}

/** A message of the comm as a page; null if it is not one. */
export function asPage(data: JSONObject): IPage | null {
  return 'page' in data && 'html' in data ? (data as unknown as IPage) : null;
}
