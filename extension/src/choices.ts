/** On which ranks each notebook's cells run. */

import { ISignal, Signal } from '@lumino/signaling';

import { Followed, Follower } from './follower';

export class RankChoices {
  constructor(
    follower: Follower,
    private readonly _ranks: () => number
  ) {
    follower.changed.connect((_, followed) => followed && this._drop(followed));
  }

  /** Emitted with the notebook for which something was chosen. */
  get changed(): ISignal<RankChoices, Followed> {
    return this._changed;
  }

  /** How many ranks there are, or would be started. */
  size(followed: Followed): number {
    return followed.link.state?.session?.ranks ?? this._ranks();
  }

  /** The ranks; null: all of them; undefined: nobody has chosen. */
  get(followed: Followed): number[] | null | undefined {
    const chosen = this._chosen.get(followed);
    return chosen && within(chosen, this.size(followed));
  }

  set(followed: Followed, ranks: number[]): void {
    this._chosen.set(followed, within(ranks, this.size(followed)));
    this._changed.emit(followed);
  }

  /** Ranks that a session does not have are not chosen any more. */
  private _drop(followed: Followed): void {
    const chosen = this._chosen.get(followed);
    const session = followed.link.state?.session;
    if (chosen && session && chosen.some(rank => rank >= session.ranks)) {
      if (chosen.some(rank => rank < session.ranks)) {
        this.set(followed, chosen);
      } else {
        this._chosen.delete(followed); // as if nobody had chosen
        this._changed.emit(followed);
      }
    }
  }

  private readonly _chosen = new WeakMap<Followed, number[] | null>();
  private readonly _changed = new Signal<this, Followed>(this);
}

/** Those of the ranks that there are; null if that is all of them, or none. */
function within(ranks: number[], size: number): number[] | null {
  const there = ranks.filter(rank => rank < size);
  return there.length === 0 || there.length === size ? null : there;
}
