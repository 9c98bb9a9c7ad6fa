/** The ranks on which the cells of each notebook run. */

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

  /** Number of ranks of the session, or of the one that a button would start. */
  size(followed: Followed): number {
    return followed.link.state?.session?.ranks ?? this._ranks();
  }

  /** The chosen ranks; null for all of them, undefined if the user has chosen none. */
  get(followed: Followed): number[] | null | undefined {
    const chosen = this._chosen.get(followed);
    return chosen && within(chosen, this.size(followed));
  }

  set(followed: Followed, ranks: number[]): void {
    this._chosen.set(followed, within(ranks, this.size(followed)));
    this._changed.emit(followed);
  }

  /** Forget chosen ranks that the session does not have. */
  private _drop(followed: Followed): void {
    const chosen = this._chosen.get(followed);
    const session = followed.link.state?.session;
    if (chosen && session && chosen.some(rank => rank >= session.ranks)) {
      if (chosen.some(rank => rank < session.ranks)) {
        this.set(followed, chosen);
      } else {
        this._chosen.delete(followed); // as if the user had not chosen
        this._changed.emit(followed);
      }
    }
  }

  private readonly _chosen = new WeakMap<Followed, number[] | null>();
  private readonly _changed = new Signal<this, Followed>(this);
}

/** Those ranks that exist; null if these are all ranks, or none. */
function within(ranks: number[], size: number): number[] | null {
  const there = ranks.filter(rank => rank < size);
  return there.length === 0 || there.length === size ? null : there;
}
