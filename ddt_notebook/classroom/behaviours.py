"""The behaviours that exercises require: each checks the evidence of a run.

A check returns an empty text if the behaviour holds, else what was observed. It never names the
line or the repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddt_notebook.views import safe, words

from . import reference
from .evidence import Evidence, NotReached

Check = Callable[[Evidence], str]

#: The accuracy on held-out data may be this much below that of one process.
_SHORT_OF = 0.03
#: Parameters are equal if they differ by less than this share of their change in training.
_SAME = 0.01
#: The work that a rank may do, relative to what is needed: it may compute the loss now and then.
_MOST_WORK = 1.6
#: The largest number of samples that a message names.
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that must hold.

    Attributes
    ----------
    key
        Its name in tables and tests, such as ``"parity"``.
    title
        What must hold, lower case, no full stop.
    check
        Returns what was observed if it does not hold, else an empty text.
    """

    key: str
    title: str
    check: Check


def _ends(seen: Evidence) -> str:
    if seen.ended:
        return ""
    reports = seen.snapshot.ranks
    died = [r.rank for r in reports if r.state == "died" and not r.killed]
    if died:
        return f"{words.ranks(died)} died during the cell"
    if seen.snapshot.outcome == "hung":
        return "the cell hangs: ranks wait in a collective that cannot complete"
    if seen.snapshot.outcome == "interrupted":
        return f"the cell did not end; it was stopped after {seen.seconds:.0f} s"
    # the first error first: those of other ranks may follow from it
    times = {r.rank: (r.error.released, r.error.at_s or 0.0) for r in reports if r.error}
    ranks = sorted(seen.errors, key=lambda rank: times.get(rank, (True, 0.0)))
    raised = "; ".join(f"rank {r} raised {safe.one_line(seen.errors[r], 160)}" for r in ranks)
    return raised or "not every rank finished the cell"


ENDS = Behaviour("ends", "every rank finishes the cell without an error", _ends)


def _reads_once(seen: Evidence) -> str:
    import numpy as np

    seen.require_end()
    data, passes = seen.data, seen.passes
    if passes in (1, data.setting.epochs) and (passes == data.setting.epochs or _whole(seen)):
        return _pieces(seen)
    reads = np.concatenate([journal.reads for journal in seen.journals.values()])
    if not len(reads):
        return "no rank read any training sample"
    counts = np.bincount(reads, minlength=len(data.labels))
    never = [int(i) for i in np.flatnonzero(counts == 0) if i not in data.damaged]
    wanted, epochs = len(data.labels) - len(data.damaged), data.setting.epochs
    if never:
        return f"{len(never)} of {wanted} samples were read by no rank: {_some(never)}"
    often = np.flatnonzero(counts > epochs)
    if len(often):
        most = int(counts[often[0]])
        return (
            f"sample {often[0]} was read {most} times in {words.count(epochs, 'epoch')}, by "
            f"{words.ranks(_readers(seen, int(often[0])))}; {words.count(len(often), 'sample')} "
            "were read more than once an epoch"
        )
    return (
        f"samples were read {counts[counts > 0].min()} to {counts.max()} times in {epochs} epochs"
    )


def _whole(seen: Evidence) -> bool:
    """Whether a rank may read its share once for all epochs, because the share is one batch."""
    return seen.data.setting.batch is None


def _pieces(seen: Evidence) -> str:
    """Check that each epoch has each sample once."""
    import numpy as np

    for epoch in range(seen.passes):
        read = np.concatenate([seen.epochs(rank)[epoch] for rank in seen.journals])
        if len(np.unique(read)) != len(read):
            twice = len(read) - len(np.unique(read))
            return f"in epoch {epoch} {words.count(twice, 'sample')} were read more than once"
    return ""


def _readers(seen: Evidence, index: int) -> list[int]:
    return [rank for rank, journal in seen.journals.items() if (journal.reads == index).any()]


READS_ONCE = Behaviour("reads-once", "each sample is read once in each epoch", _reads_once)


def _own_share(seen: Evidence) -> str:
    seen.require_end()
    total = sum(len(journal.reads) for journal in seen.journals.values())
    if not total:
        return "no rank read any training sample"
    slack = 1 + (seen.data.setting.batch or 1)
    fair = total / seen.data.world_size
    for rank, journal in seen.journals.items():
        if abs(len(journal.reads) - fair) > slack * max(1, seen.passes):
            read = len(journal.reads)
            return f"rank {rank} read {read} of {total} samples; a fair share is {fair:.0f}"
    return ""


OWN_SHARE = Behaviour("own-share", "each rank reads an equal share", _own_share)


def _works(seen: Evidence) -> str:
    seen.require_end()
    epochs = seen.data.setting.epochs
    for rank, journal in seen.journals.items():
        share = len(journal.reads) / max(1, seen.passes)
        wanted, done = share * epochs, int(journal.trained.sum())
        if not 0 < wanted - 1 <= done <= _MOST_WORK * wanted:
            return (
                f"on rank {rank} {done} samples went through the model of the exercise with "
                f"gradients enabled; {epochs} epochs of what it read are {wanted:.0f}"
            )
    return ""


WORKS = Behaviour("works", "each rank trains on what it read", _works)


def _new_order(seen: Evidence) -> str:
    seen.require_end()
    if seen.passes < 2:
        raise NotReached
    for rank in seen.journals:
        epochs = seen.epochs(rank)
        for number, (one, next_one) in enumerate(itertools.pairwise(epochs)):
            if list(one) == list(next_one):
                return (
                    f"rank {rank} reads the same samples in the same order in epochs {number} "
                    f"and {number + 1}"
                )
    return ""


NEW_ORDER = Behaviour("new-order", "the samples come in a new order in each epoch", _new_order)


def _parity(seen: Evidence) -> str:
    held = seen.models()
    apart = {rank: _distance(arrays, held[0]) for rank, arrays in held.items()}
    differ = [rank for rank, distance in apart.items() if not distance < 1e-5]
    if not differ:
        return ""
    worst = max(differ, key=lambda rank: apart[rank])
    return (
        f"the parameters of {words.ranks(differ)} differ from those of rank 0, by up to "
        f"{apart[worst]:.3g}"
    )


PARITY = Behaviour("parity", "all ranks hold the same parameters", _parity)


def as_one(*references: Callable[[Evidence], Any], within: float = _SAME) -> Behaviour:
    """The ranks reach the same parameters as one process that takes the same steps.

    Parameters
    ----------
    references
        Functions that compute the right parameters; one of them has to fit. Default:
        `reference.expected`.
    within
        The largest difference of the parameters, relative to their change in training.
    """

    def check(seen: Evidence) -> str:
        held = seen.models()[0]
        computed = [compute(seen) for compute in references or (reference.expected,)]
        right = min(computed, key=lambda weights: _distance(held, weights))
        change = _distance(right, seen.data.initial)
        off = _distance(held, right)
        if off <= within * change:
            return ""
        moved = _distance(held, seen.data.initial)
        if not moved > 0:
            return "training did not change the parameters of rank 0"
        return (
            "the parameters of rank 0 are not those of one process that takes the same steps with "
            f"the mean gradient of all samples: they moved {moved / change:.2f} times as far, and "
            f"differ by up to {off:.2g}"
        )

    title = "the ranks reach the same parameters as one process that takes the same steps"
    return Behaviour("as-one", title, check)


AS_ONE = as_one()


def accuracy(short_of: float = _SHORT_OF) -> Behaviour:
    """The accuracy on held-out digits is almost that of one process.

    Parameters
    ----------
    short_of
        How much lower the accuracy may be.
    """

    def check(seen: Evidence) -> str:
        data = seen.data
        held = seen.models()[0]
        steps = [list(set(range(len(data.labels))) - set(data.damaged))] * _steps_wanted(seen)
        trained = reference.train(data.initial, data.inputs, data.labels, steps, data.setting.rate)
        reached = reference.accuracy(held, data.held_inputs, data.held_labels)
        wanted = reference.accuracy(trained, data.held_inputs, data.held_labels) - short_of
        if reached >= wanted:
            return ""
        return f"the model of rank 0 is right for {reached:.0%} of new digits, not for {wanted:.0%}"

    return Behaviour("accuracy", "the model recognises digits that it has not seen", check)


ACCURACY = accuracy()


def _steps_wanted(seen: Evidence) -> int:
    """The number of steps that the exercise asks for."""
    setting, data = seen.data.setting, seen.data
    if setting.batch is None:
        return setting.epochs
    share = len(data.labels) / data.world_size
    return max(1, int(setting.epochs * share / (setting.batch * setting.accumulate)))


def value(
    key: str,
    title: str,
    name: str,
    reference: Callable[[Evidence], Any],
    *,
    only: Callable[[int], bool] = lambda rank: True,
    within: float = 1e-4,
) -> Behaviour:
    """A variable has the value that the grader computes, on every rank or on one.

    Parameters
    ----------
    key, title
        As in `Behaviour`.
    name
        Name of the variable.
    reference
        Computes the right value.
    only
        Whether a rank must have the value; default: all ranks.
    within
        The largest difference, relative to the largest number of the right value.
    """

    def check(seen: Evidence) -> str:
        import numpy as np

        held = seen.values(name)
        right = np.asarray(reference(seen), "float64")
        for rank, what in held.items():
            if not only(rank):
                continue
            if what is None:
                return f"rank {rank} has no variable `{name}`"
            try:
                given = np.asarray(what, "float64")
            except (TypeError, ValueError):
                return f"`{name}` of rank {rank} is not a number"
            if given.shape != right.shape:
                return f"`{name}` of rank {rank} has the shape {given.shape}, not {right.shape}"
            off = np.abs(given - right)
            if not (off <= within * max(1e-9, float(np.abs(right).max()))).all():
                at = int(off.argmax()) if off.size > 1 else None
                where = "" if at is None else f"[{at}]"
                shown = float(given.reshape(-1)[at or 0])
                return (
                    f"`{name}{where}` of rank {rank} is {shown:.4g}, which is not the value over "
                    "all ranks"
                )
        return ""

    return Behaviour(key, title, check)


def _validation_shared(seen: Evidence) -> str:
    import numpy as np

    seen.require_end()
    reads = np.concatenate([journal.validation_reads for journal in seen.journals.values()])
    counts = np.bincount(reads, minlength=len(seen.data.validation_labels))
    never, often = int((counts == 0).sum()), int((counts > 1).sum())
    if never:
        return f"{never} of {len(counts)} validation samples were read by no rank"
    return f"{often} of {len(counts)} validation samples were read more than once" if often else ""


VALIDATION_SHARED = Behaviour(
    "validation-shared", "each validation sample is read once, by one rank", _validation_shared
)


def _distance(one: Any, other: Any) -> float:
    """The largest difference between two lists of arrays; infinity if it is NaN."""
    import numpy as np

    found = max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))
    return found if found == found else float("inf")  # noqa: PLR0124  (NaN differs from itself)


def _some(indices: list[int]) -> str:
    named = ", ".join(map(str, indices[:_NAMED]))
    return f"{named}, …" if len(indices) > _NAMED else named


#: What most exercises require of training.
TRAINING = (ENDS, READS_ONCE, OWN_SHARE, WORKS, PARITY, AS_ONE, ACCURACY)
