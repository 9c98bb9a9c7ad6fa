/** Shows the last findings in the side panel, with links to their lines. */

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IFinding, IFindingPlace, IPlace, IReport } from './state';

interface IProps {
  report: IReport;
  trans: TranslationBundle;
  reveal: (place: IPlace) => void;
  explain: (what: string) => void;
  open: (lesson: string) => void;
}

/** A state as sign, word and colour, as in the cells' outputs. */
export function Chip(props: { sign: string; word: string; colour: string }): JSX.Element {
  return (
    <span className="ddt-lab-chip" style={{ backgroundColor: props.colour }}>
      <span aria-hidden="true">{props.sign} </span>
      {props.word}
    </span>
  );
}

export function Findings(props: IProps): JSX.Element {
  const { report, trans } = props;
  return (
    <section aria-label={trans.__('Findings')}>
      <h3 className="ddt-lab-heading">{trans.__('Found in cell[%1]', report.cell)}</h3>
      {report.findings.map((finding, at) => (
        <Finding key={at} finding={finding} {...props} />
      ))}
      {report.summary && <p className="ddt-lab-line">{report.summary}</p>}
      {!report.summary && report.findings.length === 0 && (
        <p className="ddt-lab-line">{trans.__('no finding; the output below the cell has details')}</p>
      )}
    </section>
  );
}

function Finding(props: IProps & { finding: IFinding }): JSX.Element {
  const { finding, trans } = props;
  return (
    <article className="ddt-lab-finding" style={{ borderLeftColor: finding.colour }}>
      <p className="ddt-lab-line">
        <Chip sign={finding.sign} word={finding.name} colour={finding.colour} /> {finding.about}
      </p>
      <p className="ddt-lab-line ddt-lab-title">{finding.title}</p>
      <ul className="ddt-lab-places">
        {finding.places.map((place, at) => (
          <li key={at}>
            <Place place={place} text={place.place} reveal={props.reveal} trans={trans} />{' '}
            <code>{place.code}</code> {place.who && <span>◀ {place.who}</span>}
          </li>
        ))}
      </ul>
      {finding.fixes.slice(0, 2).map((fix, at) => (
        <p className="ddt-lab-line" key={at}>
          <b>{trans.__('fix')}</b> {withCode(fix)}
        </p>
      ))}
      <p className="ddt-lab-line">
        {finding.explain.map(what => (
          <button
            className="ddt-lab-link"
            key={what}
            title={trans.__('Explain %1 in a new cell', what)}
            onClick={() => props.explain(what)}
          >
            {trans.__('explain %1', what)}
          </button>
        ))}
        {finding.lesson !== null && (
          <button
            className="ddt-lab-link"
            title={trans.__('Open the lesson on this symptom')}
            onClick={() => props.open(finding.lesson as string)}
          >
            {trans.__('lesson %1', finding.symptom)}
          </button>
        )}
      </p>
    </article>
  );
}

/** Text in which code is between backticks. */
function withCode(text: string): JSX.Element[] {
  return text
    .split('`')
    .map((part, at) => (at % 2 ? <code key={at}>{part}</code> : <span key={at}>{part}</span>));
}

/** The text of a place; a button if it is in a cell. */
export function Place(props: {
  place: IFindingPlace | IPlace;
  text: string;
  trans: TranslationBundle;
  reveal: (place: IPlace) => void;
}): JSX.Element {
  const { place, text, trans } = props;
  if (place.cell === null) {
    return <span>{text}</span>;
  }
  return (
    <button
      className="ddt-lab-link"
      title={trans.__('Go to line %1 of cell[%2]', place.line ?? 1, place.cell)}
      onClick={() => props.reveal(place)}
    >
      {text}
    </button>
  );
}
