/** Requests to the server's part of the extension, ddt_notebook/server.py. */

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

export interface ILesson {
  path: string;
  title: string;
}

/** A part of a snapshot's page; the first part is the diagnosis and has no title. */
export interface IPart {
  title: string;
  html: string;
}

export interface IRenderedSnapshot {
  parts: IPart[];
  /** The data of the interactive timeline; empty if the run has no times. */
  viewer: string;
}

/** The diagnosis and the views of a snapshot. */
export async function renderSnapshot(path: string): Promise<IRenderedSnapshot> {
  return (await request(`snapshot?path=${encodeURIComponent(path)}`)) as IRenderedSnapshot;
}

/** The project's notebooks. */
export async function listLessons(): Promise<ILesson[]> {
  return ((await request('lessons')) as { lessons: ILesson[] }).lessons;
}

/** Copy a notebook to a folder in `folder`, unless it is there; resolves to its path. */
export async function copyLesson(path: string, folder: string): Promise<string> {
  const init = { method: 'POST', body: JSON.stringify({ path, folder }) };
  return ((await request('lessons', init)) as { path: string }).path;
}

async function request(path: string, init: RequestInit = {}): Promise<unknown> {
  const settings = ServerConnection.makeSettings();
  const url = URLExt.join(settings.baseUrl, 'ddt-notebook', path);
  const response = await ServerConnection.makeRequest(url, init, settings);
  if (!response.ok) {
    const text = await response.text();
    let message = response.statusText;
    try {
      message = JSON.parse(text).reason ?? JSON.parse(text).message ?? message;
    } catch {
      message = `${response.status} ${message}`; // the server lacks its part of the extension
    }
    throw new Error(message);
  }
  return response.json();
}
