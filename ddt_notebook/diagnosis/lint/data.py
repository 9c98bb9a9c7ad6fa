"""Rules about samplers, loaders and data sets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .facts import Event, Facts
from .note import Note
from .program import Program
from .shape import written
from .values import DIFFERS, LOCAL, Foreign, Items, Object, Value

#: Others that divide the data or wrap the model themselves.
_DIVIDED = (
    r"prepare\(|split_dataset_by_node|get_worker_info|lightning|accelerat|\.shard\(|transformers"
)
_RANDOM = r"\brand(n|int|perm)?\("
_OWN_DATA = ("torch.utils.data.", "torchvision.datasets.", "datasets.", "torchvision.")


def trains(facts: Facts, loop: Event) -> bool:
    """Whether a gradient is computed in a loop."""
    return any(
        any(around.loop and around.line == loop.line for around in event.around)
        for event in facts.of("backward")
    )


def loops_over(facts: Facts, loader: Foreign) -> list[Event]:
    """The loops that go through a loader."""
    return [event for event in facts.of("loop") if event.values[0].value is loader]


def _sampler(loader: Foreign) -> Foreign | None:
    sampler = loader.argument("sampler", 3)
    held = sampler.value if sampler is not None else None
    return held if isinstance(held, Foreign) else None


def _has_sampler(loader: Foreign) -> bool:
    given = (loader.argument("sampler", 3), loader.argument("batch_sampler", 4))
    return any(value is not None and value.value is not None for value in given)


def _says_true(value: Value | None) -> bool:
    return value is not None and value.value is True


def _wraps(facts: Facts) -> bool:
    return bool(facts.kind("DistributedDataParallel"))


def no_sampler(program: Program) -> Iterator[Note]:
    """Every rank trains on all of the data."""
    if program.mentions(_DIVIDED) or not program.facts:
        return
    facts = program.facts[0]
    if not _wraps(facts) or any(event.values[0].marks for event in facts.of("seed")):
        return
    random = program.mentions(_RANDOM) and not program.mentions("manual_seed|seed_everything")
    for loader in facts.kind("DataLoader"):
        data = loader.argument("dataset", 0)
        if _has_sampler(loader) or data is None or random or not _is_whole(data, program):
            continue
        loop = next((loop for loop in loops_over(facts, loader) if trains(facts, loop)), None)
        if loop is not None:
            yield Note(
                symptom="D.2.2",
                title="every rank trains on all of the data: the loader has no sampler",
                cause="no-distributed-sampler",
                line=loader.line,
                also=((loop.line, "trains on it"),),
            )


def _is_whole(data: Value, program: Program, depth: int = 0) -> bool:
    """Whether a data set is known to be the same on every rank."""
    held = data.value
    if data.marks & DIFFERS or depth > 4:
        return False
    if isinstance(held, Object):
        text = written(held.of.node)
        if not held.of.derives_from("Dataset") or "rank" in text or "replica" in text:
            return False
        return all(not value.marks & DIFFERS for value in held.attributes.values())
    if isinstance(held, Foreign):
        if not str(held.facts.get("path", "")).startswith(_OWN_DATA):
            return False
        values = [*held.args, *held.keywords.values()]
        if held.kind in ("Subset", "ConcatDataset", "TensorDataset"):
            return not any(value.marks & DIFFERS or _own_share(value) for value in values)
        return not any(value.marks & DIFFERS for value in values)
    if isinstance(held, Items):
        return held.items is not None and not any(one.marks & DIFFERS for one in held.items)
    return isinstance(held, range)


def _own_share(value: Value) -> bool:
    held = value.value
    return isinstance(held, Items) and (
        held.items is None or any(one.marks & DIFFERS for one in held.items)
    )


def epochs(program: Program) -> Iterator[Note]:
    """A sampler that shuffles, over several epochs, without being told the epoch."""
    if not program.facts or program.mentions(r"set_epoch|prepare\("):
        return
    facts = program.facts[0]
    for loader in facts.kind("DataLoader"):
        sampler = _sampler(loader)
        if sampler is None or sampler.kind != "DistributedSampler":
            continue
        shuffle = sampler.argument("shuffle", 3)
        if shuffle is not None and shuffle.value is not True:
            continue
        for loop in loops_over(facts, loader):
            outer = next((around for around in loop.around if around.loop), None)
            if outer is not None and trains(facts, loop):
                yield Note(
                    symptom="D.2.5",
                    title="every epoch goes through the data in the same order: no set_epoch",
                    cause="set-epoch-forgotten",
                    line=sampler.line,
                    also=((outer.line, "repeats the pass over the data"),),
                )
                break


def samplers(program: Program) -> Iterator[Note]:
    """Samplers that do not go with their loader, their data set, or the ranks."""
    if not program.facts:
        return
    facts = program.facts[0]
    for loader in facts.kind("DataLoader"):
        data, sampler = loader.argument("dataset", 0), _sampler(loader)
        held = data.value if data is not None else None
        stream = isinstance(held, Object) and held.of.derives_from("IterableDataset")
        if stream and sampler is not None:
            yield Note(
                symptom="C.6",
                title="a loader over an IterableDataset is given a sampler",
                cause="sampler-with-iterable",
                line=loader.line,
                confidence="certain",
            )
        elif stream and isinstance(held, Object) and _repeats(loader, held):
            yield Note(
                symptom="C.6",
                title=f"every worker of the loader reads all of {held.of.node.name}",
                cause="workers-repeat-stream",
                line=loader.line,
                also=((held.of.node.lineno, "does not ask for the worker"),),
            )
        elif stream and isinstance(held, Object):
            yield from _unsharded(program, facts, loader, held)
        if sampler is not None and _says_true(loader.argument("shuffle", 2)):
            yield Note(
                symptom="C.6",
                title="the loader is given shuffle=True beside its sampler, which it refuses",
                cause="sampler-with-shuffle",
                line=loader.line,
                confidence="certain",
            )
    for one in facts.kind("DistributedSampler"):
        rank, many = one.argument("rank", 2), one.argument("num_replicas", 1)
        if rank is None or not isinstance(rank.value, int) or rank.marks or many is None:
            continue
        if many.value != 1 and not _is_conditional(one):
            yield Note(
                symptom="C.7",
                title=f"every rank samples the share of rank {rank.value}",
                cause="sampler-for-wrong-rank",
                line=one.line,
            )


def _repeats(loader: Foreign, held: Object) -> bool:
    workers = loader.argument("num_workers", 5)
    many = workers.value if workers is not None else 0
    mentioned = re.search(r"worker|shard", written(held.of.node))
    return isinstance(many, int) and many > 1 and mentioned is None and not held.of.parents


def _is_conditional(made: Foreign) -> bool:
    around = made.facts.get("around", ())
    return isinstance(around, tuple) and any(not a.loop for a in around)


def _unsharded(program: Program, facts: Facts, loader: Foreign, held: Object) -> Iterator[Note]:
    text = written(held.of.node)
    mentioned = any(word in text for word in ("rank", "world_size", "worker", "replica", "shard"))
    own = any(value.marks & DIFFERS for value in held.attributes.values())
    if mentioned or own or program.mentions(_DIVIDED) or not _wraps(facts):
        return
    if held.of.parents or any(mark == LOCAL for mark in _inputs(held)):
        return
    loop = next((loop for loop in loops_over(facts, loader) if trains(facts, loop)), None)
    random = program.mentions(_RANDOM) and not program.mentions("manual_seed")
    if loop is not None and not random:
        yield Note(
            symptom="C.6",
            title=f"every rank reads all of {held.of.node.name}: it is not divided by rank",
            cause="iterable-not-sharded",
            line=loader.line,
            also=((held.of.node.lineno, "does not ask for the rank"),),
        )


def _inputs(held: Object) -> Iterator[str]:
    for value in held.attributes.values():
        yield from value.marks
