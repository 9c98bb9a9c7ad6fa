/** Writes the report on the last run as one HTML page beside the notebook. */

import { Dialog, InputDialog, Notification, showDialog } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { Contents } from '@jupyterlab/services';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import { JSONObject } from '@lumino/coreutils';

import { Follower } from './follower';
import { CommandIDs } from './ids';
import { KernelLink } from './link';
import { askPage, asPage } from './state';

/** Name of the page with the diagnosis and all views, as in ddt_notebook/widgets/pages.py. */
const REPORT = 'report';
const LIMIT_S = 30;

export function addExportCommand(
  commands: CommandRegistry,
  follower: Follower,
  contents: Contents.IManager,
  trans: TranslationBundle
): void {
  commands.addCommand(CommandIDs.exportReport, {
    label: trans.__('Export Report…'),
    caption: trans.__('Write the diagnosis and the views of the last run as one HTML page'),
    isEnabled: () => (follower.current?.link.state ?? null) !== null,
    execute: async () => {
      const followed = follower.current;
      if (!followed) {
        return;
      }
      try {
        const html = await fetchReport(followed.link, trans);
        const path = await askForPath(followed.panel.context.path, contents, trans);
        if (!path) {
          return;
        }
        await contents.save(path, { type: 'file', format: 'text', content: html });
        Notification.success(trans.__('Report written: %1', contents.localPath(path)), {
          autoClose: false,
          actions: [
            {
              label: trans.__('Open'),
              callback: () => void commands.execute('docmanager:open', { path })
            }
          ]
        });
      } catch (reason) {
        const text = reason instanceof Error ? reason.message : String(reason);
        Notification.error(trans.__('No report was written: %1', text), { autoClose: false });
      }
    }
  });
}

/** The page; throws an error that says why there is none. */
function fetchReport(link: KernelLink, trans: TranslationBundle): Promise<string> {
  if (link.state?.session?.busy && !link.answersMeanwhile) {
    throw new Error(trans.__('this kernel answers only when the cell has ended'));
  }
  return new Promise((resolve, reject) => {
    const done = (): void => {
      window.clearTimeout(timer);
      link.received.disconnect(take);
    };
    const take = (_: KernelLink, data: JSONObject): void => {
      const page = asPage(data);
      if (page?.page === REPORT) {
        done();
        page.html ? resolve(page.html) : reject(new Error(page.missing));
      }
    };
    const timer = window.setTimeout(() => {
      done();
      reject(new Error(trans.__('the kernel did not answer within %1 s', LIMIT_S)));
    }, 1000 * LIMIT_S);
    link.received.connect(take);
    link.ask(askPage(REPORT));
  });
}

/** The path of the file to write; empty if the user cancels. */
async function askForPath(
  notebook: string,
  contents: Contents.IManager,
  trans: TranslationBundle
): Promise<string> {
  const answer = await InputDialog.getText({
    title: trans.__('Export Report'),
    label: trans.__('File beside the notebook'),
    text: `${PathExt.basename(notebook, '.ipynb')}-report.html`,
    okLabel: trans.__('Export')
  });
  const name = (answer.value ?? '').trim();
  if (!answer.button.accept || !name) {
    return '';
  }
  const path = PathExt.join(
    PathExt.dirname(notebook),
    name.endsWith('.html') ? name : `${name}.html`
  );
  if (!(await exists(path, contents))) {
    return path;
  }
  const replace = await showDialog({
    title: trans.__('Replace this file?'),
    body: trans.__('%1 exists already.', contents.localPath(path)),
    buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: trans.__('Replace') })]
  });
  return replace.button.accept ? path : '';
}

async function exists(path: string, contents: Contents.IManager): Promise<boolean> {
  try {
    await contents.get(path, { content: false });
    return true;
  } catch {
    return false;
  }
}
