"""Behaviours that an exercise asks for: each is a check of what was seen, and says what fails.

A check returns what was observed if the behaviour fails, and nothing if it holds. It never tells
the line or the repair.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ddt_notebook.views import words

from . import reference_training as replay
from .evidence import Evidence, NotReached
from .reference import expected

Check = Callable[[Evidence], str]

#: Held-out accuracy may fall this much short of what one process reaches.
_SHORT_OF = 0.03
#: Parameters are equal if they differ by less than this share of the way that training took them.
_SAME = 0.01
#: A look at the loss now and then is no further training.
_MOST_WORK = 1.6
_NAMED = 4


@dataclass(frozen=True, slots=True)
class Behaviour:
    """Something that must hold.

    Attributes
    ----------
    key
        Its name in tables and tests, such as ``"parity"``.
    title
        What holds, lower case, no full stop.
    check
        Says what was seen if it does not.
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
        return f"{words.ranks(died)} died in the middle of the cell"
    if seen.snapshot.outcome == "hung":
        return "the cell hangs: ranks wait in a collective that cannot complete"
    if seen.snapshot.outcome == "interrupted":
        return f"the cell did not end by itself; it was stopped after {seen.seconds:.0f} s"
    told = "; ".join(f"rank {r} raised {words.one_line(e, 160)}" for r, e in seen.errors.items())
    return told or "not every rank finished the cell"


ENDS = Behaviour("ends", "every rank finishes the cell without an error", _ends)


def _reads_once(seen: Evidence) -> str:
    import numpy as np

    seen.need_end()
    task, passes = seen.task, seen.passes
    if passes in (1, task.setting.epochs) and (passes == task.setting.epochs or _whole(seen)):
        return _pieces(seen)
    reads = np.concatenate([journal.reads for journal in seen.journals.values()])
    if not len(reads):
        return "no rank read any training sample"
    counts = np.bincount(reads, minlength=len(task.labels))
    never = [int(i) for i in np.flatnonzero(counts == 0) if i not in task.damaged]
    wanted, epochs = len(task.labels) - len(task.damaged), task.setting.epochs
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
    """Whether a share may be read once and used in every epoch: it is one batch."""
    return seen.task.setting.batch is None


def _pieces(seen: Evidence) -> str:
    """Whether also each single epoch holds each sample once."""
    import numpy as np

    for epoch in range(seen.passes):
        read = np.concatenate([seen.epochs(rank)[epoch] for rank in seen.journals])
        if len(np.unique(read)) != len(read):
            twice = len(read) - len(np.unique(read))
            return f"in epoch {epoch} {words.count(twice, 'sample')} came more than once"
    return ""


def _readers(seen: Evidence, index: int) -> list[int]:
    return [rank for rank, journal in seen.journals.items() if (journal.reads == index).any()]


READS_ONCE = Behaviour("reads-once", "each sample is read once in each epoch", _reads_once)


def _own_share(seen: Evidence) -> str:
    seen.need_end()
    total = sum(len(journal.reads) for journal in seen.journals.values())
    if not total:
        return "no rank read any training sample"
    slack = 1 + (seen.task.setting.batch or 1)
    fair = total / seen.task.world_size
    for rank, journal in seen.journals.items():
        if abs(len(journal.reads) - fair) > slack * max(1, seen.passes):
            return f"rank {rank} read {len(journal.reads)} of {total} samples; {fair:.0f} is fair"
    return ""


OWN_SHARE = Behaviour("own-share", "each rank reads an equal share", _own_share)


def _works(seen: Evidence) -> str:
    seen.need_end()
    epochs = seen.task.setting.epochs
    for rank, journal in seen.journals.items():
        share = len(journal.reads) / max(1, seen.passes)
        wanted, done = share * epochs, int(journal.trained.sum())
        if not 0 < wanted - 1 <= done <= _MOST_WORK * wanted:
            return (
                f"on rank {rank} {done} samples went through the model of the exercise while "
                f"gradients were kept; {epochs} epochs of what it read are {wanted:.0f}"
            )
    return ""


WORKS = Behaviour("works", "each rank trains on what it read", _works)


def _new_order(seen: Evidence) -> str:
    seen.need_end()
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


def as_one(*truths: Callable[[Evidence], Any], within: float = _SAME) -> Behaviour:
    """Training together comes to the same as one process that takes the same steps.

    Parameters
    ----------
    truths
        Compute the right parameters; one of them has to fit. Default: `expected`.
    within
        How far the parameters may be off, relative to the way that training takes them.
    """

    def check(seen: Evidence) -> str:
        held = seen.models()[0]
        computed = [compute(seen) for compute in truths or (expected,)]
        truth = min(computed, key=lambda weights: _distance(held, weights))
        way = _distance(truth, seen.task.initial)
        off = _distance(held, truth)
        if off <= within * way:
            return ""
        moved = _distance(held, seen.task.initial)
        if not moved > 0:
            return "training did not change the parameters of rank 0"
        return (
            "the parameters of rank 0 are not those of one process that takes the same steps with "
            f"the mean gradient of all samples: they moved {moved / way:.2f} times as far, and are "
            f"off by up to {off:.2g}"
        )

    title = "the ranks come to the same parameters as one process that takes the same steps"
    return Behaviour("as-one", title, check)


AS_ONE = as_one()


def accuracy(short_of: float = _SHORT_OF) -> Behaviour:
    """The model tells digits that only the grader has, nearly as well as that of one process.

    Parameters
    ----------
    short_of
        How far it may fall short.
    """

    def check(seen: Evidence) -> str:
        task = seen.task
        held = seen.models()[0]
        steps = [list(set(range(len(task.labels))) - set(task.damaged))] * _steps_wanted(seen)
        truth = replay.train(task.initial, task.inputs, task.labels, steps, task.setting.rate)
        reached = replay.accuracy(held, task.held_inputs, task.held_labels)
        wanted = replay.accuracy(truth, task.held_inputs, task.held_labels) - short_of
        if reached >= wanted:
            return ""
        return f"on held-out digits the model of rank 0 is right in {reached:.0%}, not {wanted:.0%}"

    return Behaviour("accuracy", "the model tells held-out digits", check)


ACCURACY = accuracy()


def _steps_wanted(seen: Evidence) -> int:
    """As many steps as the exercise asks for, each on all samples."""
    setting, task = seen.task.setting, seen.task
    if setting.batch is None:
        return setting.epochs
    share = len(task.labels) / task.world_size
    return max(1, int(setting.epochs * share / (setting.batch * setting.accumulate)))


def value(
    key: str,
    title: str,
    name: str,
    truth: Callable[[Evidence], Any],
    *,
    only: Callable[[int], bool] = lambda rank: True,
    within: float = 1e-4,
) -> Behaviour:
    """A variable has the value that the grader computes, on every rank or on one.

    Parameters
    ----------
    key, title
        Of the behaviour.
    name
        Of the variable.
    truth
        Computes what it must be.
    only
        Says of a rank whether it must have it; default: all.
    within
        How far it may be off, relative to the largest number of the truth.
    """

    def check(seen: Evidence) -> str:
        import numpy as np

        held = seen.values(name)
        right = np.asarray(truth(seen), "float64")
        for rank, what in held.items():
            if not only(rank):
                continue
            if what is None:
                return f"rank {rank} has no variable `{name}`"
            try:
                given = np.asarray(what, "float64")
            except (TypeError, ValueError):
                return f"`{name}` of rank {rank} is no number"
            if given.shape != right.shape:
                return f"`{name}` of rank {rank} has the shape {given.shape}, not {right.shape}"
            off = np.abs(given - right)
            if not (off <= within * max(1e-9, float(np.abs(right).max()))).all():
                at = int(off.argmax()) if off.size > 1 else None
                where = "" if at is None else f"[{at}]"
                shown = float(given.reshape(-1)[at or 0])
                return (
                    f"`{name}{where}` of rank {rank} is {shown:.4g}; that is not the value over "
                    "all ranks"
                )
        return ""

    return Behaviour(key, title, check)


def _validation_shared(seen: Evidence) -> str:
    import numpy as np

    seen.need_end()
    reads = np.concatenate([journal.validation_reads for journal in seen.journals.values()])
    counts = np.bincount(reads, minlength=len(seen.task.validation_labels))
    never, often = int((counts == 0).sum()), int((counts > 1).sum())
    if never:
        return f"{never} of {len(counts)} validation samples were read by no rank"
    return f"{often} of {len(counts)} validation samples were read more than once" if often else ""


VALIDATION_SHARED = Behaviour(
    "validation-shared", "each validation sample is read once, by one rank", _validation_shared
)


def _distance(one: Any, other: Any) -> float:
    """The largest difference of two lists of arrays; NaN counts as infinite."""
    import numpy as np

    found = max(float(np.abs(a - b).max()) for a, b in zip(one, other, strict=True))
    return found if found == found else float("inf")  # noqa: PLR0124  (NaN differs from itself)


def _some(indices: list[int]) -> str:
    told = ", ".join(map(str, indices[:_NAMED]))
    return f"{told}, …" if len(indices) > _NAMED else told


#: What most exercises ask of training.
TRAINING = (ENDS, READS_ONCE, OWN_SHARE, WORKS, PARITY, AS_ONE, ACCURACY)
