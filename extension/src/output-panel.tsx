/** "Rank Output": shows what the ranks of one notebook printed, interleaved or rank by rank. */

import { Clipboard } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';
import { ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { Followed } from './follower';
import { ranksIcon } from './icon';
import { asText, choose, finder, IChoice } from './output-choice';
import { OutputLines } from './output-lines';
import { ILineNumber, LineList } from './output-list';
import { RankTabs, tabId } from './output-tabs';
import { parseRanks } from './ranks';

export class OutputPanel extends ReactWidget {
  constructor(
    followed: Followed,
    private readonly _trans: TranslationBundle
  ) {
    super();
    this.notebook = followed.panel;
    this._lines = new OutputLines(followed.link);
    this.id = `ddt-notebook-output-${followed.panel.id}`;
    this.addClass('ddt-lab-output');
    this.title.icon = ranksIcon;
    this.title.closable = true;
    const name = (): void => {
      this.title.label = _trans.__('Rank Output: %1', followed.panel.title.label);
    };
    followed.panel.title.changed.connect(name, this);
    name();
    followed.panel.disposed.connect(() => this.dispose());
  }

  /** The notebook to which it belongs. */
  readonly notebook: Followed['panel'];

  dispose(): void {
    this._lines.dispose();
    super.dispose();
  }

  protected onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._lines.active = true;
  }

  protected onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._lines.active = this.isVisible;
  }

  protected onBeforeHide(message: Message): void {
    this._lines.active = false;
    super.onBeforeHide(message);
  }

  protected onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this.node.querySelector<HTMLElement>('[role="tabpanel"]')?.focus();
  }

  protected render(): JSX.Element {
    return (
      <UseSignal signal={this._lines.changed}>
        {() => <Body id={this.id} lines={this._lines} trans={this._trans} />}
      </UseSignal>
    );
  }

  private readonly _lines: OutputLines;
}

interface IProps {
  id: string;
  lines: OutputLines;
  trans: TranslationBundle;
}

function Body(props: IProps): JSX.Element {
  const { id, lines: log, trans } = props;
  const [tab, setTab] = React.useState<number | null>(null);
  const [ranks, setRanks] = React.useState('');
  const [search, setSearch] = React.useState('');
  const [onlyHits, setOnlyHits] = React.useState(false);
  const [at, setAt] = React.useState<ILineNumber | null>(null); // the current match
  const [follow, setFollow] = React.useState(true);

  const shownTab = tab !== null && tab < log.ranks ? tab : null;
  const typed = ranks.trim() ? parseRanks(ranks) : [];
  const find = React.useMemo(() => finder(search), [search]);
  const wanted = shownTab !== null ? new Set([shownTab]) : typed?.length ? new Set(typed) : null;
  const key = wanted === null ? '' : [...wanted].join();
  const choice = React.useMemo(
    () => choose(log.lines, log.first, wanted, find, onlyHits),
    [log.lines, key, find, onlyHits]
  );
  const unfinished = React.useMemo(
    () => choose(log.unfinished, 0, wanted, find, onlyHits).lines,
    [log.unfinished, key, find, onlyHits]
  );
  const hit = choice.hits.findIndex(place => choice.numbers[place] === at?.number);

  React.useEffect(() => {
    setAt(null);
    setFollow(true);
  }, [log.page?.run]);

  const step = (by: 1 | -1): void => {
    const number = nextHit(choice, at?.number ?? null, by);
    if (number !== null) {
      setAt({ number });
      setFollow(false);
    }
  };
  const change = (text: string): void => {
    setSearch(text);
    setAt(null);
  };
  return (
    <>
      <div className="ddt-lab-controls" role="group" aria-label={trans.__('Lines shown')}>
        <label>
          {trans.__('Ranks')}{' '}
          <input
            className="jp-mod-styled ddt-lab-output-ranks"
            type="text"
            placeholder={trans.__('all, or 0,2-3')}
            value={ranks}
            disabled={shownTab !== null}
            aria-invalid={typed === null}
            onChange={event => setRanks(event.target.value)}
          />
        </label>
        <label>
          {trans.__('Search')}{' '}
          <input
            className="jp-mod-styled ddt-lab-output-search"
            type="search"
            value={search}
            title={trans.__('Enter: next line; Shift+Enter: the one before')}
            onChange={event => change(event.target.value)}
            onKeyDown={event => {
              if (event.key === 'Enter') {
                event.preventDefault();
                step(event.shiftKey ? -1 : 1);
              }
            }}
          />
        </label>
        <Button label="↑" title={trans.__('Previous line found')} off={!find} do={() => step(-1)} />
        <Button label="↓" title={trans.__('Next line found')} off={!find} do={() => step(1)} />
        <span className="ddt-lab-output-found" role="status">
          {typed === null && trans.__('write ranks such as 0,2-3')}
          {find && found(hit, choice.hits.length, trans)}
        </span>
        <label>
          <input
            type="checkbox"
            checked={onlyHits}
            onChange={event => setOnlyHits(event.target.checked)}
          />{' '}
          {trans.__('Only matching lines')}
        </label>
        <label>
          <input
            type="checkbox"
            checked={follow}
            onChange={event => setFollow(event.target.checked)}
          />{' '}
          {trans.__('Follow the end')}
        </label>
        <Button
          label={trans.__('Copy')}
          title={trans.__('Copy the lines shown here')}
          off={choice.lines.length === 0}
          do={() => Clipboard.copyToSystem(asText(choice.lines))}
        />
      </div>
      <RankTabs id={id} ranks={log.ranks} chosen={shownTab} choose={setTab} trans={trans} />
      <About log={log} choice={choice} trans={trans} />
      <LineList
        lines={choice.lines}
        numbers={choice.numbers}
        unfinished={unfinished}
        find={find}
        at={at}
        follow={follow}
        onFollow={setFollow}
        labelledBy={tabId(id, shownTab)}
        id={`${id}-lines`}
        trans={trans}
      />
    </>
  );
}

/** The number of the matching line after (or before) line `at`; wraps around at the ends. */
function nextHit(choice: IChoice, at: number | null, by: 1 | -1): number | null {
  const numbers = choice.hits.map(place => choice.numbers[place]);
  if (numbers.length === 0) {
    return null;
  }
  if (by > 0) {
    return numbers.find(number => at === null || number > at) ?? numbers[0];
  }
  const before = numbers.filter(number => at !== null && number < at);
  return before.length ? before[before.length - 1] : numbers[numbers.length - 1];
}

function found(hit: number, hits: number, trans: TranslationBundle): string {
  return hit >= 0
    ? trans.__('line %1 of %2 found', hit + 1, hits)
    : trans._n('%1 line found', '%1 lines found', hits);
}

function Button(props: {
  label: string;
  title: string;
  off: boolean;
  do: () => void;
}): JSX.Element {
  return (
    <button
      className="jp-mod-styled ddt-lab-button"
      disabled={props.off}
      title={props.title}
      aria-label={props.label.length === 1 ? props.title : undefined}
      onClick={props.do}
    >
      {props.label}
    </button>
  );
}

/** Says which cell it is, how many lines it printed, and which of them are not shown. */
function About(props: {
  log: OutputLines;
  choice: IChoice;
  trans: TranslationBundle;
}): JSX.Element {
  const { log, choice, trans } = props;
  const { page } = log;
  if (!page || page.run === 0) {
    return (
      <p className="ddt-lab-line">{trans.__('No cell of this notebook has run on ranks yet.')}</p>
    );
  }
  const number = (value: number): string => value.toLocaleString();
  const parts = [
    trans.__('cell[%1]', page.cell),
    page.running ? trans.__('runs') : log.held ? trans.__('is held') : trans.__('has ended'),
    trans._n('%2 line', '%2 lines', page.total, number(page.total))
  ];
  if (choice.lines.length < log.lines.length) {
    parts.push(trans.__('%1 of them shown', number(choice.lines.length)));
  }
  if (log.behind) {
    parts.push(trans.__('loading …'));
  }
  return (
    <>
      <p className="ddt-lab-line">{parts.join(' · ')}</p>
      {log.first > 0 && (
        <p className="ddt-lab-line">
          {trans.__('The first %1 lines are left out.', number(log.first))}{' '}
          {page.folder &&
            trans.__('Everything that the ranks of this session printed is in %1.', page.folder)}
        </p>
      )}
      {!page.ordered && page.total > 0 && (
        <p className="ddt-lab-line">
          {trans.__(
            'This cell began before JupyterLab was connected: its lines are listed rank by rank, not in order of time.'
          )}
        </p>
      )}
    </>
  );
}
