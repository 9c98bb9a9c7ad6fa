/** Draws many lines of output: only the visible lines are in the document, a spacer replaces the rest. */

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { parts } from './output-choice';
import { ILine, Source } from './output-lines';

/** Lines drawn above and below the visible ones, so that a quick scroll meets lines. */
const MARGIN_LINES = 20;
/** Height of a line until one has been measured. */
const LINE_PX = 18;
/** Okabe-Ito, as in ddt_notebook/views/memory.py; they repeat after six ranks. */
const COLOURS = ['#0072B2', '#D55E00', '#009E73', '#CC79A7', '#56B4E9', '#E69F00'];

export interface ILineNumber {
  readonly number: number;
}

interface IProps {
  lines: readonly ILine[];
  /** The number of each line. */
  numbers: readonly number[];
  /** Unfinished lines, shown below the others. */
  unfinished: readonly ILine[];
  find: RegExp | null;
  /** The line of the current match; a new object for each step to it. */
  at: ILineNumber | null;
  follow: boolean;
  onFollow: (follow: boolean) => void;
  labelledBy: string;
  id: string;
  trans: TranslationBundle;
}

export function LineList(props: IProps): JSX.Element {
  const { lines, numbers, unfinished, at, follow } = props;
  const scroller = React.useRef<HTMLDivElement>(null);
  const probe = React.useRef<HTMLDivElement>(null);
  const read = React.useRef({ number: 0, offset: 0 }); // the top line, and how much of it is scrolled away
  const [sight, setSight] = React.useState({ top: 0, height: 0, line: LINE_PX });
  const count = lines.length + unfinished.length;

  const look = React.useCallback(() => {
    const { scrollTop: top, clientHeight: height } = scroller.current!;
    const line = probe.current!.getBoundingClientRect().height || LINE_PX;
    setSight(seen =>
      seen.top === top && seen.height === height && seen.line === line ? seen : { top, height, line }
    );
  }, []);
  React.useEffect(() => {
    const observer = new ResizeObserver(look);
    observer.observe(scroller.current!);
    observer.observe(probe.current!);
    return () => observer.disconnect();
  }, [look]);
  React.useLayoutEffect(() => {
    if (follow) {
      scroller.current!.scrollTop = scroller.current!.scrollHeight;
    }
    look();
  }, [follow, count, sight.height, look]);
  React.useLayoutEffect(() => {
    const place = numbers.findIndex(number => number >= read.current.number);
    const top = place * sight.line + read.current.offset;
    if (!follow && place >= 0 && Math.abs(scroller.current!.scrollTop - top) >= 1) {
      scroller.current!.scrollTop = top; // lines above were dropped, or the selection changed
      look(); // else the list is blank until the browser reports the scrolling
    }
  }, [numbers]);
  React.useLayoutEffect(() => {
    const { scrollTop, clientHeight } = scroller.current!;
    const place = at ? numbers.indexOf(at.number) : -1;
    const top = place * sight.line;
    if (place >= 0 && (top < scrollTop || top + sight.line > scrollTop + clientHeight)) {
      scroller.current!.scrollTop = top - clientHeight / 2;
      look();
    }
  }, [at]);

  const onScroll = (): void => {
    const { scrollTop, clientHeight, scrollHeight } = scroller.current!;
    if (clientHeight > 0) {
      props.onFollow(scrollTop + clientHeight >= scrollHeight - 2); // any scrolling up ends it
    }
    const place = Math.floor(scrollTop / sight.line);
    read.current = {
      number: numbers[place] ?? Infinity,
      offset: scrollTop - place * sight.line
    };
    look();
  };
  // At once: new lines would undo a scrolling that has only just begun.
  const onKeyDown = (event: React.KeyboardEvent): void => {
    if (event.target !== scroller.current) {
      return;
    }
    if (['ArrowUp', 'PageUp', 'Home'].includes(event.key)) {
      props.onFollow(false);
    }
    if (event.key === 'Home') {
      event.preventDefault();
      scroller.current.scrollTop = 0;
    } else if (event.key === 'End') {
      event.preventDefault();
      props.onFollow(true);
    }
  };
  const first = Math.max(0, Math.floor(sight.top / sight.line) - MARGIN_LINES);
  const end = Math.min(count, Math.ceil((sight.top + sight.height) / sight.line) + MARGIN_LINES);
  const rows: JSX.Element[] = [];
  for (let place = first; place < end; place++) {
    const done = place < lines.length;
    rows.push(
      <Row
        key={place}
        line={done ? lines[place] : unfinished[place - lines.length]}
        place={place + 1}
        count={count}
        done={done}
        current={done && numbers[place] === at?.number}
        find={props.find}
        trans={props.trans}
      />
    );
  }
  return (
    <div
      className="ddt-lab-output-lines"
      id={props.id}
      onKeyDown={onKeyDown}
      onScroll={onScroll}
      onWheel={event => event.deltaY < 0 && props.onFollow(false)}
      ref={scroller}
      role="tabpanel"
      aria-labelledby={props.labelledBy}
      tabIndex={0}
    >
      <div className="ddt-lab-output-line ddt-lab-output-probe" ref={probe} aria-hidden="true" />
      <div style={{ height: count * sight.line }}>
        <div
          role={rows.length ? 'list' : undefined}
          style={{ transform: `translateY(${first * sight.line}px)` }}
        >
          {rows}
        </div>
      </div>
    </div>
  );
}

interface IRowProps {
  line: ILine;
  place: number;
  count: number;
  done: boolean;
  current: boolean;
  find: RegExp | null;
  trans: TranslationBundle;
}

const Row = React.memo(function Row(props: IRowProps): JSX.Element {
  const { line, trans } = props;
  const names: { [source in Source]: string } = {
    stdout: '',
    stderr: trans.__('stderr'),
    display: trans.__('shown'),
    '': ''
  };
  const name = props.done ? names[line.source] : trans.__('unfinished');
  const style = { borderLeftColor: COLOURS[line.rank % COLOURS.length] };
  return (
    <div
      className={`ddt-lab-output-line${props.current ? ' ddt-mod-current' : ''}`}
      role="listitem"
      aria-posinset={props.place}
      aria-setsize={props.count}
      aria-current={props.current || undefined}
    >
      <span className="ddt-lab-output-rank" style={style}>
        {trans.__('rank %1', line.rank)}
      </span>{' '}
      {name && (
        <>
          <span className="ddt-lab-output-source">{name}</span>{' '}
        </>
      )}
      <span className="ddt-lab-output-text">
        {parts(line.text, props.find).map((part, at) =>
          at % 2 ? <mark key={at}>{part}</mark> : part
        )}
      </span>
    </div>
  );
});
