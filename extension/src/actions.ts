/** The actions of buttons and commands on a session. */

import { TranslationBundle } from '@jupyterlab/translation';

import { IAnswer, KernelLink } from './link';

/** Loads the magics, or raises a one-line error if the kernel has no ddt_notebook. */
const LOAD = [
  'from importlib.util import find_spec as _ddt_find',
  "if _ddt_find('ddt_notebook') is None:",
  "    raise ModuleNotFoundError('this kernel has no ddt_notebook: %pip install ddt-notebook')",
  'del _ddt_find',
  "get_ipython().run_line_magic('load_ext', 'ddt_notebook')"
].join('\n');

/** Starts, restarts and ends sessions; each action resolves when it is done. */
export class Actions {
  constructor(private readonly _trans: TranslationBundle) {}

  /** Start `ranks` ranks; loads the magics first if necessary. */
  async start(link: KernelLink, ranks: number): Promise<IAnswer> {
    const loaded = await this.load(link);
    if (!loaded.ok) {
      return loaded;
    }
    return link.run(`%ddt_start -n ${ranks}`, this._trans.__('starting %1 ranks …', ranks));
  }

  /** Load the magics, unless they are loaded. */
  async load(link: KernelLink): Promise<IAnswer> {
    if (link.state) {
      return { ok: true, text: '' };
    }
    return link.run(LOAD, this._trans.__('loading ddt_notebook …'));
  }

  stop(link: KernelLink): Promise<IAnswer> {
    return link.run('%ddt_stop', this._trans.__('stopping …'));
  }

  restart(link: KernelLink): Promise<IAnswer> {
    return link.run('%ddt_restart', this._trans.__('restarting …'));
  }

  release(link: KernelLink): Promise<IAnswer> {
    return link.run('%ddt_release', this._trans.__('releasing …'));
  }
}
