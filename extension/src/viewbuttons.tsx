/** The side panel's buttons that open views of the last run. */

import { TranslationBundle } from '@jupyterlab/translation';
import { CommandRegistry } from '@lumino/commands';
import * as React from 'react';

import { CommandIDs } from './ids';
import { IView } from './state';

export function ViewButtons(props: {
  commands: CommandRegistry;
  trans: TranslationBundle;
  views: IView[];
}): JSX.Element {
  const { commands, trans } = props;
  const button = (label: string, id: string, args: { [name: string]: string } = {}): JSX.Element => (
    <button
      className="jp-mod-styled ddt-lab-button"
      key={label}
      title={commands.caption(id, args)}
      onClick={() => void commands.execute(id, args)}
    >
      {label}
    </button>
  );
  return (
    <section aria-label={trans.__('Views of the last run')}>
      <h3 className="ddt-lab-heading">{trans.__('Last run')}</h3>
      <div className="ddt-lab-controls">
        {props.views.map(({ name, label }) => button(label, CommandIDs.view, { view: name, label }))}
        {button(trans.__('Export…'), CommandIDs.exportReport)}
      </div>
    </section>
  );
}
