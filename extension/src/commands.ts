/** The commands behind palette, menu, launcher, keys and the panel's buttons. */

import { InputDialog, Notification } from '@jupyterlab/apputils';
import { CodeCell } from '@jupyterlab/cells';
import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';

import { Actions } from './actions';
import { runBelow, runOnRanks } from './cells';
import { RankChoices } from './choices';
import { Followed, Follower } from './follower';
import { CommandIDs } from './ids';
import { IAnswer } from './link';

/** Register the commands on the session of the active notebook and on its cells. */
export function addCommands(
  commands: CommandRegistry,
  follower: Follower,
  trans: TranslationBundle,
  ranks: () => number,
  choices: RankChoices
): void {
  const actions = new Actions(trans);
  const session = () => follower.current?.link.state?.session ?? null;
  const add = (
    id: string,
    label: string,
    caption: string,
    enabled: () => boolean,
    execute: (followed: Followed, args: { [key: string]: unknown }) => Promise<unknown>
  ): void => {
    commands.addCommand(id, {
      label,
      caption,
      isEnabled: enabled,
      execute: args => (follower.current ? execute(follower.current, args) : undefined)
    });
  };
  const notebook = () => follower.current !== null;
  const idle = () => session() !== null && !session()!.busy && !session()!.frozen;

  add(
    CommandIDs.start,
    trans.__('Start Ranks'),
    trans.__('Start a session: processes that run cells together'),
    () => notebook() && session() === null,
    ({ link }, args) => actions.start(link, Number(args.ranks) || ranks())
  );
  add(
    CommandIDs.stop,
    trans.__('Stop Ranks'),
    trans.__('End the session and all its processes'),
    idle,
    ({ link }) => actions.stop(link)
  );
  add(
    CommandIDs.restart,
    trans.__('Restart Ranks'),
    trans.__('Replace all ranks with new processes; their variables are lost'),
    idle,
    ({ link }) => actions.restart(link)
  );
  add(
    CommandIDs.interrupt,
    trans.__('Interrupt Ranks'),
    trans.__('End the cell on every rank; variables are kept'),
    () => session()?.busy ?? false,
    ({ link }) => link.interrupt()
  );
  add(
    CommandIDs.freeze,
    trans.__('Freeze Ranks'),
    trans.__('Hold the cell as it is now, for inspection'),
    () => session()?.busy ?? false,
    async ({ link }) => link.freeze()
  );
  add(
    CommandIDs.release,
    trans.__('Release Ranks'),
    trans.__('End the held cell; variables are kept'),
    () => session()?.frozen ?? false,
    ({ link }) => actions.release(link)
  );
  add(
    CommandIDs.runCell,
    trans.__('Run Cell on Ranks'),
    trans.__('Run the active cell on the chosen ranks; adds %%ddt on top if it is missing'),
    notebook,
    async followed => {
      const { link, panel } = followed;
      const cell = panel.content.activeCell; // another cell may be active once the ranks have started
      if (!(cell instanceof CodeCell) || link.doing) {
        return;
      }
      if (session() === null) {
        cell.setPrompt('*');
        const started = await actions.start(link, ranks());
        if (!started.ok) {
          cell.setPrompt('');
          return warn(started, trans);
        }
      }
      return runOnRanks(panel, cell, choices.get(followed), choices.size(followed));
    }
  );
  add(
    CommandIDs.diagnose,
    trans.__('Diagnose Last Run'),
    trans.__('Show the findings of the last run in a new cell'),
    () => session() !== null,
    ({ panel }) => runBelow(panel, '%ddt_debug')
  );
  add(
    CommandIDs.explain,
    trans.__('Explain Symptom…'),
    trans.__('Explain a symptom, a fault or an error message in a new cell'),
    notebook,
    async ({ panel, link }, args) => {
      const what = args.what ? String(args.what) : await ask(trans);
      if (what === null) {
        return;
      }
      const loaded = await actions.load(link);
      return loaded.ok ? runBelow(panel, `%ddt_explain ${what}`.trim()) : warn(loaded, trans);
    }
  );
}

async function ask(trans: TranslationBundle): Promise<string | null> {
  const answer = await InputDialog.getText({
    title: trans.__('Explain'),
    label: trans.__('A code such as D.2.1, or words of the error; empty for the list of symptoms')
  });
  return answer.button.accept ? (answer.value ?? '').replace(/\s+/g, ' ').trim() : null;
}

function warn(answer: IAnswer, trans: TranslationBundle): void {
  Notification.error(answer.text || trans.__('the ranks could not be started'), {
    autoClose: false
  });
}
