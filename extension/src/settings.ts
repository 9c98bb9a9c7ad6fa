/** The user's settings, as schema/plugin.json describes them. */

import { ISettingRegistry } from '@jupyterlab/settingregistry';

import { PLUGIN_ID } from './ids';

export class Settings {
  constructor(registry: ISettingRegistry | null) {
    void this._follow(registry);
  }

  /** Number of ranks that a button starts. */
  get ranks(): number {
    return this._ranks;
  }

  /** Whether cells show marks about their runs. */
  get marks(): boolean {
    return this._marks;
  }

  private async _follow(registry: ISettingRegistry | null): Promise<void> {
    if (!registry) {
      return;
    }
    try {
      const settings = await registry.load(PLUGIN_ID);
      const read = (): void => {
        this._ranks = settings.get('ranks').composite as number;
        this._marks = settings.get('marks').composite as boolean;
      };
      settings.changed.connect(read);
      read();
    } catch (reason) {
      console.warn(`ddt-notebook: settings are not read, defaults hold: ${reason}`);
    }
  }

  private _ranks = 4;
  private _marks = true;
}
