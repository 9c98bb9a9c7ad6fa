/** Commands for files: lessons, the tour, snapshots. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import { PathExt } from '@jupyterlab/coreutils';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

import { Follower } from './follower';
import { ranksIcon } from './icon';
import { CommandIDs } from './ids';
import { copyLesson, listLessons } from './server';

const TOUR = '00-quickstart.ipynb';
/** Saves the last run's snapshot; `%1` is the name of the file as a string literal. */
const SAVE = [
  'from ddt_notebook.host.session import active as _ddt_active',
  '_ddt_active.last_run().snapshot.save(%1)',
  'del _ddt_active'
].join('\n');

/** Register the commands; `folder` is the user's current folder. */
export function addDocumentCommands(
  commands: CommandRegistry,
  follower: Follower,
  trans: TranslationBundle,
  folder: () => string
): void {
  const open = async (lesson: string): Promise<void> => {
    try {
      const path = await copyLesson(lesson, folder());
      await commands.execute('docmanager:open', { path });
    } catch (reason) {
      warn(reason);
    }
  };
  commands.addCommand(CommandIDs.tour, {
    label: args =>
      args.isLauncher ? trans.__('Distributed debugging tour') : trans.__('Quick Start Tour'),
    caption: trans.__('Train on four ranks, break it, and see what is found'),
    icon: args => (args.isPalette ? undefined : ranksIcon),
    execute: () => open(TOUR)
  });
  commands.addCommand(CommandIDs.lesson, {
    label: trans.__('Open Lesson…'),
    caption: trans.__('Open a worked example of a symptom'),
    execute: async args => {
      if (args.path) {
        return open(String(args.path));
      }
      try {
        const lessons = await listLessons();
        const answer = await InputDialog.getItem({
          title: trans.__('Open Lesson'),
          items: lessons.map(lesson => lesson.title)
        });
        const chosen = lessons.find(lesson => lesson.title === answer.value);
        if (answer.button.accept && chosen) {
          await open(chosen.path);
        }
      } catch (reason) {
        warn(reason);
      }
    }
  });
  commands.addCommand(CommandIDs.save, {
    label: trans.__('Save Snapshot…'),
    caption: trans.__('Save everything observed in the last run to a file beside the notebook'),
    isEnabled: () => (follower.current?.link.state?.report ?? null) !== null,
    execute: async () => {
      const followed = follower.current;
      if (!followed) {
        return;
      }
      const path = followed.panel.context.path;
      const answer = await InputDialog.getText({
        title: trans.__('Save Snapshot'),
        label: trans.__('File beside the notebook'),
        text: `${PathExt.basename(path, '.ipynb')}.ddt.json`
      });
      const name = (answer.value ?? '').trim();
      if (!answer.button.accept || !name) {
        return;
      }
      const file = name.endsWith('.ddt.json') ? name : `${name}.ddt.json`;
      const code = SAVE.replace('%1', () => JSON.stringify(file));
      const saved = await followed.link.run(code, trans.__('saving …'));
      if (saved.ok) {
        Notification.success(trans.__('saved: %1', file));
      }
    }
  });

  function warn(reason: unknown): void {
    const text = reason instanceof Error ? reason.message : String(reason);
    Notification.error(trans.__('this server cannot provide the lessons: %1', text));
  }
}
