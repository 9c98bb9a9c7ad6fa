/** Names of the commands; schema/plugin.json binds keys and menu entries to them. */

export const PLUGIN_ID = 'ddt-notebook:plugin';

export namespace CommandIDs {
  export const panel = 'ddt-notebook:show-ranks';
  export const output = 'ddt-notebook:show-output';
  export const start = 'ddt-notebook:start';
  export const stop = 'ddt-notebook:stop';
  export const restart = 'ddt-notebook:restart';
  export const interrupt = 'ddt-notebook:interrupt';
  export const freeze = 'ddt-notebook:freeze';
  export const release = 'ddt-notebook:release';
  export const runCell = 'ddt-notebook:run-cell-on-ranks';
  export const diagnose = 'ddt-notebook:diagnose';
  export const explain = 'ddt-notebook:explain';
  export const lesson = 'ddt-notebook:open-lesson';
  export const save = 'ddt-notebook:save-snapshot';
  export const view = 'ddt-notebook:show-view';
  export const exportReport = 'ddt-notebook:export-report';
  export const tour = 'ddt-notebook:tour';
}
