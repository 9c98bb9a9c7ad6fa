"""Rules about samplers, loaders and data sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddt_notebook.program.nodes import names_in
from ddt_notebook.program.trace import Event, Kind
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import Instance, Items, LibraryObject, Value

from . import proof
from .foreseen import Foreseen, certain, foreseen, shown, unless_doubted

#: Libraries that divide the data among the ranks, and functions that do so.
_DIVIDING_LIBRARIES = ("accelerate", "lightning", "pytorch_lightning", "transformers")
_DIVIDING = ("prepare", "split_dataset_by_node", "get_worker_info", "shard")
#: Functions for random numbers; the numbers differ between ranks with different seeds.
_RANDOM = ("rand", "randn", "randint", "randperm")
_SEEDS = ("manual_seed", "seed_everything")
#: Modules whose data sets are the same on every rank, unless their arguments differ.
_DATA_SETS = ("torch.utils.data.", "torchvision.", "datasets.")


def _may_be_divided(program: TracedProgram) -> bool:
    """Whether the ranks may read different data without a sampler."""
    divided = program.imports_anywhere(*_DIVIDING_LIBRARIES) or program.calls_anywhere(*_DIVIDING)
    return divided or (program.calls(*_RANDOM) and not program.calls(*_SEEDS))


def _mentions(node: ast.AST, *words: str) -> bool:
    """Whether a name or string inside a node contains one of these words, e.g. ``num_replicas``."""
    constants = (inner.value for inner in ast.walk(node) if isinstance(inner, ast.Constant))
    strings = (value for value in constants if isinstance(value, str))
    parts = (part for name in (*names_in(node), *strings) for part in name.lower().split("_"))
    return any(part.removesuffix("s") in words for part in parts)


def _training_loop(program: TracedProgram, loader: LibraryObject) -> Event | None:
    """Return the first loop over a loader in which a gradient is computed."""
    trained = {one.line for event in program.first.of(Kind.BACKWARD) for one in event.loops}
    loops = (loop for loop in program.first.of(Kind.LOOP) if loop.held() is loader)
    return next((loop for loop in loops if loop.line in trained), None)


def _sampler(loader: LibraryObject) -> LibraryObject | None:
    """The sampler of a loader, or the one from which its batch sampler draws."""
    batches = loader.given("batch_sampler", 4)
    sampler = loader.given("sampler", 3)
    if isinstance(batches, LibraryObject) and batches.kind == "BatchSampler":
        sampler = batches.given("sampler", 0)
    return sampler if isinstance(sampler, LibraryObject) else None


def every_rank_trains_on_all(program: TracedProgram) -> Iterator[Foreseen]:
    """Report loaders without a sampler, so that every rank trains on all of the data."""
    trace = program.first
    seeds = [value for event in trace.of(Kind.SEEDED) for value in event.values]
    own_seed = any(seed.marks for seed in seeds)
    if own_seed or not trace.made("DistributedDataParallel") or _may_be_divided(program):
        return
    for loader in trace.made("DataLoader"):
        data = loader.argument("dataset", 0)
        sampled = loader.given("sampler", 3) or loader.given("batch_sampler", 4)
        loop = _training_loop(program, loader)
        if loop is None or proof.may_be_of_some_ranks(program, loop):
            continue
        if not sampled and data is not None and _is_alike(data):
            trains = shown(loop.line, "trains-on-it")
            cause = "no-distributed-sampler"
            yield foreseen("every-rank-trains-on-all", cause, loader.line, trains)


def _is_alike(data: Value) -> bool:
    """Whether a data set is certainly the same on every rank."""
    held = data.value
    if data.differs:
        return False
    match held:
        case Instance():
            own = _mentions(held.of.node, "rank", "replica")
            known = held.of.derives_from("Dataset") and not own
            return known and not any(value.differs for value in held.attributes.values())
        case LibraryObject():
            values = [*held.args, *held.keywords.values()]
            own = any(value.differs or _has_own_items(value.value) for value in values)
            return held.path.startswith(_DATA_SETS) and not own
        case Items():
            return not _has_own_items(held)
    return isinstance(held, range)


def _has_own_items(held: object) -> bool:
    """Whether it is a list whose elements may differ between ranks or are unknown."""
    return isinstance(held, Items) and (
        held.items is None or any(one.differs for one in held.items)
    )


def no_set_epoch(program: TracedProgram) -> Iterator[Foreseen]:
    """Report samplers that shuffle over several epochs without the number of the epoch."""
    if program.mentions("set_epoch") or program.calls("prepare"):
        return
    if not program.calls_anywhere("step"):
        return  # gradients are computed, but nothing is trained
    for loop in _training_loops(program):
        loader = loop.held()
        sampler = _sampler(loader) if isinstance(loader, LibraryObject) else None
        if sampler is None or sampler.kind != "DistributedSampler":
            continue
        # A new sampler for every epoch may have a different seed each time.
        outside = [one for one in loop.loops if one not in sampler.around]
        shuffle = sampler.argument("shuffle", 3)
        if outside and (shuffle is None or shuffle.value is True):
            epochs = shown(outside[0].line, "repeats-the-pass")
            yield foreseen("same-order-every-epoch", "set-epoch-forgotten", sampler.line, epochs)


def _training_loops(program: TracedProgram) -> Iterator[Event]:
    """Yield the loops in which a gradient is computed, also in functions that nothing calls."""
    for passage in program.passages:
        trace = passage.traces[0]
        trained = {one.line for event in trace.of(Kind.BACKWARD) for one in event.loops}
        yield from (loop for loop in trace.of(Kind.LOOP) if loop.line in trained)


def samplers(program: TracedProgram) -> Iterator[Foreseen]:
    """Report samplers that do not fit their loader, their data set or the rank."""
    for loader in program.first.made("DataLoader"):
        if _sampler(loader) is not None and _stream(loader) is not None:
            yield certain("sampler-with-iterable", "sampler-with-iterable", loader.line)
        if _sampler(loader) is not None and loader.given("shuffle", 2) is True:
            yield certain("sampler-with-shuffle", "sampler-with-shuffle", loader.line)
    for sampler in program.first.made("DistributedSampler"):
        rank, many = sampler.argument("rank", 2), sampler.argument("num_replicas", 1)
        conditional = any(not one.loop for one in sampler.around)
        if rank is None or many is None or many.value == 1 or conditional:
            continue
        if isinstance(rank.value, int) and not rank.marks:
            cause = "sampler-for-wrong-rank"
            found = foreseen("samples-for-one-rank", cause, sampler.line, rank=rank.value)
            yield unless_doubted(found, proof.runs_on_several_ranks(program))


def _stream(loader: LibraryObject) -> Instance | None:
    """Return the data set of a loader, if it is an iterable data set of the program."""
    data = loader.given("dataset", 0)
    stream = isinstance(data, Instance) and data.of.derives_from("IterableDataset")
    return data if isinstance(data, Instance) and stream else None


def streams(program: TracedProgram) -> Iterator[Foreseen]:
    """Report data streams that every rank, or every worker of a loader, reads completely."""
    for loader in program.first.made("DataLoader"):
        data = _stream(loader)
        if data is None or _sampler(loader) is not None or data.of.parents:
            continue
        node, workers = data.of.node, loader.given("num_workers", 5)
        several = isinstance(workers, int) and workers > 1
        own = any(value.differs for value in data.attributes.values())
        divides = program.calls_anywhere(*_DIVIDING)
        divides = divides or loader.argument("worker_init_fn", 10) is not None
        if several and not divides:
            stream = shown(node.lineno, "does-not-ask-for-worker")
            kind, cause = "workers-repeat-stream", "workers-repeat-stream"
        elif _mentions(node, "rank", "world", "worker", "replica", "shard") or own:
            continue
        elif (
            program.first.made("DistributedDataParallel")
            and not _may_be_divided(program)
            and _training_loop(program, loader) is not None
        ):
            stream = shown(node.lineno, "does-not-ask-for-rank")
            kind, cause = "every-rank-reads-all", "iterable-not-sharded"
        else:
            continue
        found = foreseen(kind, cause, loader.line, stream, name=node.name)
        yield unless_doubted(found, proof.reads_alone(program, node))


RULES = (every_rank_trains_on_all, no_set_epoch, samplers, streams)
