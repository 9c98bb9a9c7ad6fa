/** Tabs: one for all ranks together, and one for each rank. */

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

interface IProps {
  id: string;
  ranks: number;
  /** The rank whose tab is open, null for all. */
  chosen: number | null;
  choose: (rank: number | null) => void;
  trans: TranslationBundle;
}

/** The id of a tab's element. */
export function tabId(id: string, rank: number | null): string {
  return `${id}-tab-${rank ?? 'all'}`;
}

export function RankTabs(props: IProps): JSX.Element {
  const { id, ranks, chosen, trans } = props;
  const all = [null, ...Array.from({ length: ranks }, (_, rank) => rank)];
  const row = React.useRef<HTMLDivElement>(null);

  const onKeyDown = (event: React.KeyboardEvent): void => {
    const at = all.indexOf(chosen);
    const goal = {
      ArrowRight: (at + 1) % all.length,
      ArrowLeft: (at - 1 + all.length) % all.length,
      Home: 0,
      End: all.length - 1
    }[event.key];
    if (goal !== undefined) {
      event.preventDefault();
      event.stopPropagation();
      props.choose(all[goal]);
      const tab = row.current?.children[goal] as HTMLElement | undefined;
      tab?.focus(); // also scrolls it into view
    }
  };
  return (
    <div
      className="ddt-lab-output-tabs"
      role="tablist"
      aria-label={trans.__('Ranks')}
      onKeyDown={onKeyDown}
      ref={row}
    >
      {all.map(rank => (
        <button
          key={rank ?? 'all'}
          className="ddt-lab-output-tab"
          id={tabId(id, rank)}
          role="tab"
          aria-selected={rank === chosen}
          aria-controls={`${id}-lines`}
          tabIndex={rank === chosen ? 0 : -1}
          onClick={() => props.choose(rank)}
        >
          {rank === null ? trans.__('All ranks') : trans.__('Rank %1', rank)}
        </button>
      ))}
    </div>
  );
}
