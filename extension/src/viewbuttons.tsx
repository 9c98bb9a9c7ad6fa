/** The side panel's buttons that open views of the last run. */

import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from './ids';
import { viewLabels, VIEWS } from './views';

export function ViewButtons(props: {
  commands: CommandRegistry;
  trans: TranslationBundle;
}): JSX.Element {
  const { commands, trans } = props;
  const labels = viewLabels(trans);
  return (
    <section aria-label={trans.__('Views of the last run')}>
      <h3 className="ddt-lab-heading">{trans.__('Last run')}</h3>
      <div className="ddt-lab-controls">
        {VIEWS.map(view => (
          <button
            className="jp-mod-styled ddt-lab-button"
            key={view}
            title={commands.caption(CommandIDs.view, { view })}
            onClick={() => void commands.execute(CommandIDs.view, { view })}
          >
            {labels[view]}
          </button>
        ))}
        <button
          className="jp-mod-styled ddt-lab-button"
          title={commands.caption(CommandIDs.exportReport)}
          onClick={() => void commands.execute(CommandIDs.exportReport)}
        >
          {trans.__('Export…')}
        </button>
      </div>
    </section>
  );
}
