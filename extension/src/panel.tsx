/** The side panel "Ranks": shows the session of the active notebook. */

import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { Chip, Findings, Place } from './findings';
import { Followed, Follower } from './follower';
import { ranksIcon } from './icon';
import { CommandIDs } from './ids';
import { IPlace, IRow, IState } from './state';
import { ViewButtons } from './viewbuttons';

interface IProps {
  commands: CommandRegistry;
  trans: TranslationBundle;
  ranks: () => number;
}

export class RanksPanel extends ReactWidget {
  constructor(
    private readonly _follower: Follower,
    private readonly _props: IProps
  ) {
    super();
    this.id = 'ddt-notebook-ranks';
    this.addClass('ddt-lab-panel');
    this.title.icon = ranksIcon;
    this.title.caption = _props.trans.__('Ranks');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', _props.trans.__('Ranks'));
  }

  protected render(): JSX.Element {
    return (
      <UseSignal
        signal={this._follower.changed}
        shouldUpdate={(_, followed) => followed === this._follower.current}
      >
        {() => <Body followed={this._follower.current} {...this._props} />}
      </UseSignal>
    );
  }
}

function Body(props: IProps & { followed: Followed | null }): JSX.Element {
  const { followed, trans } = props;
  if (!followed) {
    return <p className="ddt-lab-line">{trans.__('Open a notebook to see its ranks.')}</p>;
  }
  const { link, panel } = followed;
  const state = link.state;
  const reveal = (place: IPlace): void => void followed.reveal(place);
  const explain = (what: string): void => {
    void props.commands.execute(CommandIDs.explain, { what });
  };
  const open = (path: string): void => {
    void props.commands.execute(CommandIDs.lesson, { path });
  };
  const links = { trans, reveal, explain, open };
  return (
    <>
      <p className="ddt-lab-line">
        <b>{panel.title.label}</b>
        {state?.session && <> · {state.session.line}</>}
      </p>
      <Controls {...props} followed={followed} state={state} />
      <p className="ddt-lab-line" role="status">
        {link.doing}
        {link.error && (
          <>
            <Chip sign="✖" word={trans.__('failed')} colour="#D55E00" /> {link.error}
          </>
        )}
      </p>
      {state?.session ? (
        <>
          <p className="ddt-lab-line ddt-lab-title">{state.headline}</p>
          {state.report && <Findings report={state.report} {...links} />}
          <Rows rows={state.rows} trans={trans} reveal={reveal} />
          {state.notes.map((note, at) => (
            <p className="ddt-lab-line" key={at}>
              {note}
            </p>
          ))}
        </>
      ) : (
        !link.doing && (
          <p className="ddt-lab-line">
            {followed.starts
              ? trans.__('Ranks are starting …')
              : link.isShadowed
                ? trans.__(
                    'JupyterLab sends what this kernel says to another notebook or console of this page. Close that one, then reload the page, to see the ranks here.'
                  )
                : trans.__('No session in this notebook.')}
          </p>
        )
      )}
      {state && (
        <ViewButtons commands={props.commands} trans={trans} views={state.views} />
      )}
      {state?.earlier && (
        <details className="ddt-lab-earlier">
          <summary>{trans.__('Found earlier, in cell[%1]', state.earlier.cell)}</summary>
          <Findings report={state.earlier} {...links} />
        </details>
      )}
    </>
  );
}

function Controls(props: IProps & { followed: Followed; state: IState | null }): JSX.Element {
  const { commands, followed, state, trans } = props;
  const [ranks, setRanks] = React.useState<number | null>(null);
  const session = state?.session ?? null;
  const waits = followed.link.doing !== '';
  const button = (id: string, label: string, enabled: boolean, args = {}): JSX.Element => (
    <button
      className="jp-mod-styled ddt-lab-button"
      disabled={!enabled}
      title={commands.caption(id, args)}
      onClick={() => void commands.execute(id, args)}
    >
      {label}
    </button>
  );
  if (!session) {
    const wanted = ranks ?? props.ranks();
    return (
      <div className="ddt-lab-controls" role="group" aria-label={trans.__('Session')}>
        <label>
          {trans.__('Ranks')}{' '}
          <input
            className="jp-mod-styled ddt-lab-number"
            type="number"
            min={1}
            max={64}
            value={wanted}
            onChange={event => setRanks(Number(event.target.value) || 1)}
          />
        </label>
        {button(CommandIDs.start, trans.__('Start'), !waits && !followed.starts, {
          ranks: wanted
        })}
      </div>
    );
  }
  const idle = !session.busy && !session.frozen && !waits;
  return (
    <div className="ddt-lab-controls" role="group" aria-label={trans.__('Session')}>
      {button(CommandIDs.interrupt, trans.__('Interrupt'), session.busy)}
      {session.frozen
        ? button(CommandIDs.release, trans.__('Release'), !waits)
        : button(CommandIDs.freeze, trans.__('Freeze'), session.busy)}
      {button(CommandIDs.restart, trans.__('Restart'), idle)}
      {button(CommandIDs.stop, trans.__('Stop'), idle)}
      {button(CommandIDs.output, trans.__('Output'), true)}
    </div>
  );
}

function Rows(props: {
  rows: IRow[];
  trans: TranslationBundle;
  reveal: (place: IPlace) => void;
}): JSX.Element {
  const { rows, trans } = props;
  return (
    <table className="ddt-lab-ranks">
      <thead>
        <tr>
          <th scope="col">{trans.__('rank')}</th>
          <th scope="col">{trans.__('state, line, device, memory (RSS)')}</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(row => (
          <tr key={row.label}>
            <th scope="row">{row.label}</th>
            <td>
              <div>
                <Chip sign={row.sign} word={row.state} colour={row.colour} />{' '}
                <span>{row.wait}</span>
              </div>
              {row.where && (
                <div className="ddt-lab-where">
                  <Place place={row} text={row.where} reveal={props.reveal} trans={trans} />
                </div>
              )}
              <div>{[row.device, row.memory].filter(Boolean).join(' · ')}</div>
              {row.share !== null && (
                <div className="ddt-lab-share">
                  <meter value={row.share} high={0.9} aria-hidden="true" /> {row.allocated}
                </div>
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
