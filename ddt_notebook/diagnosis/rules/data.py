"""Rules about the division of training data among the ranks that share a model."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations, islice, pairwise, permutations
from operator import or_

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.finding import Values
from ddt_notebook.model.partition import Division, unpack_indices
from ddt_notebook.model.training import RankTraining, ReplicatedTensor, SummedForward
from ddt_notebook.program.gradients import inputs_from
from ddt_notebook.program.nodes import FunctionNode, last_name
from ddt_notebook.program.orders_of_sets import orders_of_sets
from ddt_notebook.program.parse import Document
from ddt_notebook.program.sharded_values import passes_once, shares_in_class

from .loaders import Loaders, Shared, samples, shared_loaders, used_loaders
from .parallel_groups import take_parts

#: From this share on, a gap beside the shards may be a split for another use. From 0.025 to 0.2
#: no verdict on the recorded runs changes (`benchmarks.thresholds`).
_SPLIT_OFF = 0.1
#: Ranks that each got at least this share of all samples have the same data. From 0.72 to 0.95 no
#: verdict on the recorded runs changes (`benchmarks.thresholds`).
NEARLY_ALL = 0.9
#: Equal samples of two ranks may be a coincidence up to this number. Chosen, not measured.
_FEW_EQUAL = 2
#: Of samples drawn from a small range, about twice as many are equal by chance on two ranks as
#: repeat on one of them, if each rank draws as many.
_CHANCE = 4
#: A program that feeds fewer different inputs may measure something. Chosen, not measured.
_DIFFERENT_INPUTS = 2
#: So many different inputs in turn, equal on all ranks, are no coincidence. Chosen, not measured.
_SAME_INPUTS = 3
#: Losses that differ by less than this share may differ by rounding. Chosen, not measured.
_LOSS = 1e-4
#: A rank that draws its n-th part of the data with replacement repeats 1/2n² of all samples on
#: average: of so many for each rank, one of 400 such programs repeats none.
_SAMPLES_OF_A_RANK = 12
#: Lines of a finding that number what a set holds.
_MOST_ORDERS = 2
#: Samplers that use the whole data set.
_OF_TORCH = frozenset({"SequentialSampler", "RandomSampler", "SubsetRandomSampler"})


def wrong_samplers(context: Context) -> Iterator[Finding]:
    """Report samplers for another number of ranks, or with the same part for several ranks."""
    for shared in shared_loaders(context):
        if shared.trains and (found := _wrong_sampler(shared)) is not None:
            yield found


def _wrong_sampler(shared: Shared) -> Finding | None:
    loaders, size = shared.loaders, len(shared.team.ranks)
    if any(loader.replicas is None for loader in loaders.values()):
        return None
    position = {rank: at for at, rank in enumerate(shared.team.ranks)}
    parts = {rank: (x.replica, x.replicas) for rank, x in loaders.items()}
    alike = len(set(parts.values())) < len(parts)
    fewer = [rank for rank, (_, replicas) in parts.items() if (replicas or 0) > size]
    if not alike and (not fewer or size < shared.context.snapshot.world_size):
        return None
    if alike and _one_part_for_each_group(shared):
        return None
    wrong = [r for r, part in parts.items() if part != (position[r], size)]
    seen, first = shared.division, shared.first()
    return conclude(
        "C.7",
        "samplers-share-a-part" if alike else "samplers-leave-a-part",
        cause="sampler-for-wrong-rank",
        ranks=wrong,
        values={"loader": shared.name, "size": size},
        places=shared.places(),
        facts=[
            Fact(
                kind="sampler-takes",
                ranks=tuple(parts),
                values={"sampler": first.sampler, "parts": tuple(parts.values())},
            ),
            Fact(
                kind="handed-out",
                values={
                    "universe": first.universe,
                    "covered": seen.covered,
                    "overlap": seen.overlap,
                },
            ),
        ],
        confidence="likely",
    )


def _one_part_for_each_group(shared: Shared) -> bool:
    """Whether the ranks that get the same part are groups of equal size that exchange tensors.

    So a mesh is fed of which one axis divides the model and the other one the data.
    """
    context = shared.context
    sharing: dict[int | None, list[int]] = defaultdict(list)
    loaders = used_loaders(context)[shared.name]
    for rank, loader in sorted(loaders.items()):
        sharing[loader.replica].append(rank)
    sizes = {len(ranks) for ranks in sharing.values()}
    if {loader.replicas for loader in loaders.values()} != {len(sharing)} or len(sizes) != 1:
        return False
    groups = {
        call.members
        for report in context.snapshot.ranks
        for call in report.calls
        if call.kind == "collective" and call.group != "0"
    }
    return min(sizes) > 1 and all(tuple(ranks) in groups for ranks in sharing.values())


def samplers_disagree(context: Context) -> Iterator[Finding]:
    """Report samplers that divide differently ordered or different data among the ranks."""
    for shared in shared_loaders(context):
        loaders, size = shared.loaders, len(shared.team.ranks)
        if not shared.trains or any(x.replicas != size for x in loaders.values()) or size < 2:
            continue
        seeds = tuple(loader.seed for loader in loaders.values())
        splits = {loader.subset for loader in loaders.values()}
        sizes = {(x.dataset, x.dataset_size, x.subset_size) for x in loaders.values()}
        if shared.first().shuffles and None not in seeds and len(set(seeds)) > 1:
            facts = [Fact(kind="sampler-seeds", ranks=tuple(loaders), values={"seeds": seeds})]
            made = shared.context.place(shared.first().sampled_at, "created")
            facts += [Fact(kind="sampler-made", place=made)] if made is not None else []
            facts += _seeded(shared)
            facts += _split(shared) if len(splits) > 1 else []
            yield _disagree(shared, "samplers-shuffle-apart", "sampler-seeded-by-rank", facts)
        elif len(splits) > 1 and len(sizes) == 1:
            both = _trained_and_evaluated(shared)
            leaked = Fact(kind="trained-and-evaluated", values={"samples": both})
            facts = [leaked] if both else []
            facts += _split(shared)
            yield _disagree(shared, "splits-differ", "split-differs", facts)
        elif len(sizes) == 1 and (epochs := _epochs_differ(shared)):
            facts = [Fact(kind="sampler-epochs", ranks=tuple(loaders), values={"epochs": epochs})]
            facts += _epoch_set_at(shared)
            yield _disagree(
                shared, "sampler-epochs-differ", "sampler-seeded-by-rank", facts, case="epoch"
            )
        elif len({x.dataset_size for x in loaders.values()}) > 1 and _at_one_line(loaders):
            yield _sizes_differ(shared)
        elif len(sizes) == 1 and (names := _numbered_apart(loaders)):
            yield _numbers_differ(shared, names)
        elif (len(sizes) == 1 or _at_one_line(loaders)) and (common := _held_apart(loaders)):
            yield _data_differ(shared, common)
        elif None in seeds and len(sizes) == 1 and _orders_differ(shared):
            yield _disagree(
                shared, "orders-differ", "sampler-seeded-by-rank", list(_own_samplers(shared))
            )


def evaluated_data_differ(context: Context) -> Iterator[Finding]:
    """Report evaluations whose sampler divides other data on each rank; training comes first."""
    if any(True for _ in samplers_disagree(context)):
        return
    for shared in shared_loaders(context):
        loaders, size = shared.loaders, len(shared.team.ranks)
        divides = size > 1 and all(x.replicas == size and x.indexed for x in loaders.values())
        sizes = {(x.dataset, x.dataset_size) for x in loaders.values()}
        if shared.trains or not divides or not shared.complete:
            continue
        if len(sizes) > 1 and not _at_one_line(loaders):
            continue
        if common := _held_apart(loaders):
            yield _data_differ(shared, common)
            return  # another pass over the same data has a loader of its own


def _data_differ(shared: Shared, common: Values) -> Finding:
    return conclude(
        "C.7",
        "data-differ",
        cause="split-differs",
        ranks=shared.loaders,
        values={"loader": shared.name},
        places=shared.places(),
        facts=[
            Fact(kind="held-apart", ranks=tuple(shared.loaders), values=common),
            *_sizes_held(shared),
            *_made(shared),
        ],
        case="data",
    )


def _sizes_differ(shared: Shared) -> Finding:
    held = _held_apart(shared.loaders)
    return conclude(
        "C.7",
        "data-sizes-differ",
        cause="split-differs",
        ranks=shared.loaders,
        values={"loader": shared.name},
        places=shared.places(),
        facts=[
            *([Fact(kind="held-apart", ranks=tuple(shared.loaders), values=held)] if held else []),
            *_sizes_held(shared),
            *_made(shared),
        ],
        confidence="certain",
        case="data",
    )


def _numbered_apart(loaders: Loaders) -> tuple[str, ...]:
    """The names of the parts of samples whose values the ranks number in other ways.

    They are equal at the same places on all ranks, so the samples are the same, and not what stands
    for their labels or words.
    """
    held = [loader.held_values for loader in loaders.values()]
    patterns = [loader.held_patterns for loader in loaders.values()]
    return tuple(
        name
        for name in held[0]
        if len({one.get(name) for one in held}) > 1
        and len({one.get(name) for one in patterns}) == 1
    )


def _numbers_differ(shared: Shared, names: tuple[str, ...]) -> Finding:
    orders = islice(orders_of_sets(shared.context.program), _MOST_ORDERS)
    return conclude(
        "C.7",
        "parts-of-samples-differ",
        cause="split-differs",
        ranks=shared.loaders,
        values={"loader": shared.name, "names": names},
        places=shared.places(),
        facts=[
            Fact(kind="numbered-apart", values={"names": names}),
            *(Fact(kind="order-of-set", place=place) for place in orders),
            *_made(shared),
        ],
        confidence="likely",
        case="parts",
    )


def _sizes_held(shared: Shared) -> Iterator[Fact]:
    """Yield how many samples the data set of each rank has, if that differs."""
    sizes = tuple(loader.universe for loader in shared.loaders.values())
    if None not in sizes and len(set(sizes)) > 1:
        yield Fact(kind="held-sizes", ranks=tuple(shared.loaders), values={"sizes": sizes})


def _at_one_line(loaders: Loaders) -> bool:
    """Whether it is one loader of the program, with data sets of one class."""
    return len({(x.dataset, x.made_at, x.epochs[-1].where) for x in loaders.values()}) == 1


def _orders_differ(shared: Shared) -> bool:
    """Whether ranks were given parts of one order each, and yet several got the same samples.

    Each rank has another order then, such as that of its own random numbers. If it draws samples
    with replacement, several ranks may draw one, but then a rank repeats some, too.
    """
    loaders, seen, first = list(shared.loaders.values()), shared.division, shared.first()
    size = first.universe or 0
    if not shared.complete or len({(x.replica, x.universe) for x in loaders}) < len(loaders):
        return False
    if any(not x.indexed or x.with_replacement or x.uncounted for x in loaders):
        return False
    known = first.padding is not None
    padding = seen.padding if known else max(seen.padding, _evened_out(shared))
    whole = sum(x.epochs[-1].samples for x in loaders) >= size - padding
    repeated = sum(x.repeated for x in loaders)
    enough = size >= _SAMPLES_OF_A_RANK * len(loaders)
    return whole and enough and repeated <= padding < seen.overlap


def _epochs_differ(shared: Shared) -> tuple[int, ...] | None:
    """The epoch of each rank's sampler, if they differ in the same pass and so do the orders.

    Samplers that shuffle by their seed and their epoch deal out parts of one order only if both are
    equal.
    """
    loaders = list(shared.loaders.values())
    last = [loader.epochs[-1] for loader in loaders]
    given = [one.sampler_epoch for one in last if one.sampler_epoch is not None]
    if not shared.first().shuffles or any(x.seed is None or not x.indexed for x in loaders):
        return None
    if len(given) < len(last) or len(set(given)) < 2 or len({one.in_cell for one in last}) > 1:
        return None
    seen = shared.division
    return tuple(given) if seen.overlap > max(seen.padding, _evened_out(shared)) else None


def _epoch_set_at(shared: Shared) -> Iterator[Fact]:
    """Yield the line that calls ``set_epoch``, if there is only one."""
    calls = shared.context.program.calls("set_epoch")
    if len(calls) == 1:
        yield Fact(kind="epoch-set-at", place=shared.context.program.place(calls[0], "called"))


def _own_samplers(shared: Shared) -> Iterator[Fact]:
    """Yield the line at which the program's own sampler begins an order, if it has only one."""
    program = shared.context.program
    cell = Document.of(shared.context.snapshot.cell).name
    orders = [
        program.place(method)
        for node in program.nodes
        if isinstance(node, ast.ClassDef)
        and any(last_name(base).endswith("Sampler") for base in node.bases)
        for method in node.body
        if isinstance(method, FunctionNode) and method.name == "__iter__"
    ]
    orders = [one for one in orders if one.file == cell] or orders  # an earlier cell's may be old
    if len(orders) == 1:
        yield Fact(kind="own-order", place=orders[0])


def _split(shared: Shared) -> list[Fact]:
    split = shared.context.place(shared.first().split_at, "called")
    return [Fact(kind="split-at", place=split)] if split is not None else []


def _seeded(shared: Shared) -> Iterator[Fact]:
    """Yield the lines that seeded torch with the samplers' seeds, unless a sampler has another."""
    if any(loader.seeded_at is None for loader in shared.loaders.values()):
        return
    lines = {loader.seeded_at for loader in shared.loaders.values()}
    for line in lines:
        ranks = tuple(rank for rank, one in shared.loaders.items() if one.seeded_at == line)
        place = shared.context.place(line, "called")
        yield Fact(kind="seeded-at", place=place, ranks=ranks)


def _held_apart(loaders: Loaders) -> Values | None:
    """Whether ranks hold the same samples at other places, and how many were found.

    Samples of which many repeat within a rank may be equal by chance, such as numbers drawn from a
    small range.
    """
    orders = {loader.held_order for loader in loaders.values()}
    if None in orders or len(orders) == 1:
        return None
    held = [set(loader.held) for loader in loaders.values()]
    alike = all(one == held[0] for one in held)
    common = max(len(one & other) for one, other in combinations(held, 2))
    repeated = max(loader.held_repeated for loader in loaders.values())
    if common <= max(_FEW_EQUAL, _CHANCE * repeated):
        return None
    return {"common": common, "compared": min(map(len, held)), "alike": alike}


def _disagree(shared: Shared, kind: str, cause: str, facts: list[Fact], case: str = "") -> Finding:
    seen, first = shared.division, shared.first()
    handed_out = Fact(
        kind="handed-out",
        values={
            "universe": first.universe if first.subset is None else first.dataset_size,
            "covered": seen.covered,
            "overlap": seen.overlap,
        },
    )
    return conclude(
        "C.7",
        kind,
        cause=cause,
        ranks=shared.loaders,
        values={"loader": shared.name},
        places=shared.places(),
        facts=[*facts, handed_out],
        confidence="certain" if shared.complete and first.indexed else "likely",
        case=case,
    )


def _trained_and_evaluated(shared: Shared) -> int:
    """Return how many samples a rank trained on that this or another one evaluated on."""
    first = shared.first()
    evaluated = 0
    for partition in shared.context.snapshot.partition:
        for loader in partition.loaders:
            same = (loader.dataset, loader.dataset_size) == (first.dataset, first.dataset_size)
            if same and loader.last is not None and not loader.last.trained:
                evaluated |= unpack_indices(loader.handed_out)
    return (shared.handed_out & evaluated).bit_count()


def same_data(context: Context) -> Iterator[Finding]:
    """Report ranks that each train on all of the data, once for each loop.

    A trainer may make a new loader for every epoch.
    """
    told: set[tuple[Place | None, ...]] = set()
    for shared in shared_loaders(context):
        seen = shared.division
        if not _comparable(shared, seen) or not shared.trains or shared.random:
            continue
        if seen.same_content is None and _own_sizes(shared):
            continue  # each rank may have read a different file
        whole = _mostly_the_same(shared)
        if not whole or seen.overlap <= seen.padding:
            continue
        if _same_start(shared) and take_parts(context, shared.loaders):
            continue
        # ranks that leave a loop early can have the same samples by chance
        certain = shared.took_all or _same_start(shared)
        loops = tuple(shared.places().values())
        if any(loops) and loops in told:
            continue
        told.add(loops)
        first = shared.first()
        yield conclude(
            "D.2.2",
            "same-samples",
            cause="no-distributed-sampler",
            values={"loader": shared.name, "samples": seen.overlap},
            ranks=shared.loaders,
            places=shared.places(),
            facts=[
                Fact(
                    kind="undivided-loader",
                    place=context.place(first.made_at, "created"),
                    values={
                        "loader": shared.name,
                        "dataset": first.dataset,
                        "universe": first.universe,
                        "sampler": first.sampler,
                        "covered": seen.covered,
                        "overlap": seen.overlap,
                    },
                ),
                shared.team.fact,
            ],
            confidence="likely" if certain else "possible",
        )


def _comparable(shared: Shared, seen: Division) -> bool:
    undivided = all(x.indexed and x.replicas is None for x in shared.loaders.values())
    return undivided and seen.same_content is not False


def _own_sizes(shared: Shared) -> bool:
    return len({x.universe or x.dataset_size for x in shared.loaders.values()}) > 1


def _mostly_the_same(shared: Shared) -> bool:
    """Whether each rank got almost as much as all ranks together."""
    sets = [unpack_indices(loader.handed_out) for loader in shared.loaders.values()]
    everything = reduce(or_, sets).bit_count()
    return min(one.bit_count() for one in sets) >= NEARLY_ALL * everything > 0


def _same_start(shared: Shared) -> bool:
    return len({loader.epochs[-1].first for loader in shared.loaders.values()}) == 1


def wrong_shards(context: Context) -> Iterator[Finding]:
    """Report shards made by hand that overlap or leave samples out."""
    for shared in shared_loaders(context):
        seen = shared.division
        if not _comparable(shared, seen) or not shared.trains:
            continue
        if shared.random or _mostly_the_same(shared):
            continue
        evened = _evened_out(shared)
        if not shared.complete:
            if _are_ranges(shared) and seen.overlap > max(seen.padding, evened, len(seen.ranks)):
                yield _overlap(shared, seen)
            continue
        allowed = 0 if _by_hand(shared) else evened
        dropped = any(loader.drop_last for loader in shared.loaders.values())
        if seen.overlap > max(seen.padding, evened):
            yield _overlap(shared, seen)
        elif (seen.gaps or 0) > allowed and not dropped:
            yield from _gap(shared, seen)


def overlapping_contents(context: Context) -> Iterator[Finding]:
    """Report data sets of the ranks' own of which several hold the same samples.

    Each rank's data set numbers its samples by itself, so only their content can be compared, and
    so it is with streams.
    """
    for shared in shared_loaders(context):
        loaders = shared.loaders
        undivided = all(x.replicas is None for x in loaders.values())
        if not undivided or not shared.trains or shared.random:
            continue
        own = shared.division.same_content is False and _by_hand(shared)
        indexed = all(x.indexed for x in loaders.values())
        if not (own if indexed else _streams_of_shares(shared)):
            continue
        contents = {rank: loader.epochs[-1].content for rank, loader in loaders.items()}
        seen = {rank: set(content) for rank, content in contents.items()}
        if any(len(seen[rank]) < len(content) for rank, content in contents.items()):
            continue  # samples look alike, so that equal ones show nothing
        shared_by = {
            rank: mine & reduce(or_, (seen[other] for other in seen if other != rank))
            for rank, mine in seen.items()
        }
        ranks = [rank for rank, common in shared_by.items() if common]
        common = reduce(or_, shared_by.values())
        if len(common) <= max(_FEW_EQUAL, len(seen)):
            continue
        yield conclude(
            "C.7",
            "contents-overlap",
            cause="shard-overlap",
            ranks=ranks,
            values={"loader": shared.name, "samples": len(common)},
            places=shared.places(),
            facts=[
                Fact(
                    kind="samples-compared",
                    ranks=tuple(contents),
                    values={"samples": tuple(map(len, contents.values()))},
                ),
                *_made(shared),
            ],
            confidence="likely",
        )


def _streams_of_shares(shared: Shared) -> bool:
    """Whether each rank passed once over a share of a stream that its class chooses by the rank.

    A stream that begins again within one pass, or that draws with replacement, may well bring what
    another rank had before.
    """
    program, loaders = shared.context.program, shared.loaders.values()
    kinds = {loader.dataset for loader in loaders}
    if any(loader.dataset_size is not None or loader.workers for loader in loaders):
        return False  # a worker's share is not seen here
    if len({(x.epochs[-1].number, x.epochs[-1].in_cell) for x in loaders}) > 1:
        return False
    if not any(True for _ in shares_in_class(program, kinds)) or not passes_once(program, kinds):
        return False
    contents = [loader.epochs[-1].content for loader in loaders]
    return not shared.division.identical and any(
        not _fills_up(one, other) for one, other in permutations(contents, 2)
    )


def _fills_up(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether samples in common are the first of one rank and the last of the other, if any are.

    So they are where the first samples are repeated to give all ranks equally many.
    """
    common = {*one} & {*other}
    many = len(common)
    ends = [({*a[:many]}, {*b[-many:]}) for a, b in ((one, other), (other, one))] if many else []
    return not many or ({*common}, {*common}) in ends


def slices_left_out(context: Context) -> Iterator[Finding]:
    """Report ranks whose program cuts the inputs of a DDP model from the same part of a tensor."""
    return (f for f in _same_slices(context) if f.confidence != "possible")


def slices_of_everything(context: Context) -> Iterator[Finding]:
    """Report, as a hint, ranks whose program cuts the same inputs from the whole of a tensor."""
    return (f for f in _same_slices(context) if f.confidence == "possible")


def _same_slices(context: Context) -> Iterator[Finding]:
    if context.snapshot.outcome != "ok":
        return
    for models in () if _loads(context) else replicas.models(context.snapshot):
        inputs = {model.first_inputs for model in models.values()}
        cuts = {model.cut_inputs for model in models.values()}
        first, cut = models[min(models)], next(iter(cuts))
        if len(inputs) > 1 or len(cuts) > 1 or cut is None or set(first.members) != set(models):
            continue
        if len(set(first.first_inputs)) < _DIFFERENT_INPUTS:
            continue
        part = (cut.end_bytes - cut.begin_bytes) / cut.storage_bytes
        left_out = part * len(models) <= 1
        yield conclude(
            "C.7",
            "same-slices",
            cause="slices-not-by-rank",
            ranks=models,
            values={"model": first.name},
            places={
                rank: place
                for rank, model in models.items()
                if (place := context.place(model.where, "runs")) is not None
            },
            facts=[
                Fact(kind="inputs-equal", values={"passes": len(first.first_inputs)}),
                Fact(kind="cut-from-part", values={"share": part}),
            ],
            confidence="likely" if left_out else "possible",
        )


def same_inputs(context: Context) -> Iterator[Finding]:
    """Report ranks that give a DDP model the same inputs, which no loader brought.

    Made-up data may be equal because torch's random states are; then it is no data of anyone,
    unless it was taken from an array that the program holds. Ranks that compute with parts of one
    model are given the same inputs on purpose.
    """
    if context.snapshot.outcome != "ok" or _loads(context):
        return
    if any(one.summed or one.replicated for one in context.snapshot.training):
        return
    for models in replicas.models(context.snapshot):
        first = models[min(models)]
        if set(first.members) != set(models) or any(model.cut_inputs for model in models.values()):
            continue
        if len({model.first_inputs for model in models.values()}) > 1:
            continue
        apart = len({model.random_state for model in models.values()}) == len(models)
        if not apart and not all(model.taken_from for model in models.values()):
            continue
        if len(set(first.first_inputs)) < _SAME_INPUTS:
            continue
        origin = inputs_from(context.program, first.where) if first.where is not None else None
        yield conclude(
            "C.7",
            "same-inputs",
            cause="no-distributed-sampler",
            ranks=models,
            values={"model": first.name},
            places={rank: context.place(model.where, "runs") for rank, model in models.items()},
            facts=[
                Fact(kind="inputs-equal", values={"passes": len(first.first_inputs)}),
                *([Fact(kind="inputs-from", place=origin)] if origin is not None else []),
                Fact(kind="random-states-apart")
                if apart
                else Fact(kind="taken-from", values={"name": first.taken_from}),
            ],
            confidence="likely",
        )


def _loads(context: Context) -> bool:
    """Whether loaders brought training data in this run."""
    return any(
        epoch.run == partition.run and epoch.trained
        for partition in context.snapshot.partition
        for loader in partition.loaders
        for epoch in loader.epochs
    )


def replicated_apart(context: Context) -> Iterator[Finding]:
    """Report tensors that differ on ranks on which they were declared equal.

    Layers of tensor parallelism declare their inputs so, and compute with parts of one model.
    """
    given = {one.rank: one.replicated for one in context.snapshot.training if one.replicated}
    for members in {one.members for mine in given.values() for one in mine}:
        if not set(members) <= set(given):
            continue
        rows = [[one for one in given[rank] if one.members == members] for rank in members]
        for together in zip(*rows, strict=False):
            if len({(one.where, one.shape) for one in together}) > 1:
                break
            if len({one.content for one in together}) > 1:
                yield conclude(
                    "D.2.4",
                    "replicated-apart",
                    cause="tensor-parallel-inputs-differ",
                    ranks=members,
                    values={"shape": together[0].shape},
                    places=_called_at(context, members, together),
                    facts=[
                        Fact(kind="declared-equal", ranks=members),
                        *(
                            Fact(kind="model-called", place=context.place(one.fed_at, "called"))
                            for one in together[:1]
                            if one.fed_at is not None
                        ),
                    ],
                )
                return


def summed_apart(context: Context) -> Iterator[Finding]:
    """Report inputs that differ on ranks that add up activations of them in the forward pass.

    Ranks that hold parts of one model compute the same loss; so a rank that was given its part of
    the features of the batch does, too.
    """
    return (f for f in _summed_apart(context) if f.confidence == "likely")


def perhaps_summed_apart(context: Context) -> Iterator[Finding]:
    """Report, as a hint, such inputs if the losses are equal nevertheless."""
    return (f for f in _summed_apart(context) if f.confidence == "possible")


def _summed_apart(context: Context) -> Iterator[Finding]:
    trainings = {one.rank: one for one in context.snapshot.training if one.backwards}
    if context.snapshot.outcome != "ok":
        return
    for members in {one.members for mine in trainings.values() for one in mine.summed}:
        if not set(members) <= set(trainings) or _averages(trainings.values(), members):
            continue
        rows = [
            [one for one in trainings[rank].summed if one.members == members] for rank in members
        ]
        together = next(zip(*rows, strict=False), None)
        if together is None or len({(x.where, x.summed_at, x.shape) for x in together}) > 1:
            continue
        if len({one.content for one in together}) < 2 or any(one.part for one in together):
            continue
        losses = [trainings[rank].losses for rank in members]
        apart = any(
            max(each) - min(each) > _LOSS * abs(max(each)) for each in zip(*losses, strict=False)
        )
        yield conclude(
            "D.2.4",
            "summed-apart",
            cause="tensor-parallel-inputs-differ",
            ranks=members,
            values={"shape": together[0].shape},
            places=_called_at(context, members, together),
            facts=[
                Fact(
                    kind="activations-summed-at",
                    place=context.place(together[0].summed_at, "called"),
                ),
                *([Fact(kind="losses-apart", ranks=members)] if apart else []),
            ],
            confidence="likely" if apart else "possible",
            op="all_reduce",
        )
        return


def _called_at(
    context: Context, members: Sequence[int], together: Sequence[ReplicatedTensor | SummedForward]
) -> dict[int, Place]:
    """Return where each rank was given its tensor of one set of inputs."""
    return {
        rank: place
        for rank, one in zip(members, together, strict=True)
        if (place := context.place(one.where, "called")) is not None
    }


def _averages(trainings: Iterable[RankTraining], members: tuple[int, ...]) -> bool:
    """Whether the members train in DDP, and so on different batches."""
    return any(set(model.members) == set(members) for one in trainings for model in one.models)


def _are_ranges(shared: Shared) -> bool:
    """Whether each rank's data is certainly a separate range, however early its loop ended.

    The indices of a range span no more than its length; those of a random part, or of a rank's
    draws from shared data, span more. Together the ranks have more than any one could have.
    """
    loaders = shared.loaders.values()
    if len({(x.dataset, x.dataset_size) for x in loaders}) > 1 or not _by_hand(shared):
        return False
    everything = longest = 0
    for loader in loaders:
        most = (loader.expected_batches or 0) * (loader.batch_size or 0)
        mine = unpack_indices(loader.handed_out)
        starts = {index for epoch in loader.epochs for index in epoch.first}
        lowest = min(starts | {(mine & -mine).bit_length() - 1})
        if max(starts | {mine.bit_length() - 1}) - lowest >= most:
            return False
        everything |= mine
        longest = max(longest, most)
    return everything.bit_count() > longest


def _by_hand(shared: Shared) -> bool:
    """Whether the parts come from the data set and not from the user's sampler."""
    return all(loader.sampler in _OF_TORCH for loader in shared.loaders.values())


def _evened_out(shared: Shared) -> int:
    """Return how many samples may be repeated or left out to give all ranks equally many."""
    epochs = [loader.epochs[-1] for loader in shared.loaders.values()]
    if len({epoch.samples for epoch in epochs}) > 1:
        return 0
    batch = max(-(-epoch.samples // max(1, epoch.batches)) for epoch in epochs)
    # a sampler of whole batches adds or drops whole batches
    return len(epochs) - 1 if _by_hand(shared) else len(epochs) * batch


def _overlap(shared: Shared, seen: Division) -> Finding:
    sets = {rank: unpack_indices(x.handed_out) for rank, x in shared.loaders.items()}
    ranks = [r for r in sets if sets[r] & reduce(or_, (sets[o] for o in sets if o != r))]
    return conclude(
        "C.7",
        "shards-overlap",
        cause="shard-overlap",
        ranks=ranks,
        values={"loader": shared.name, "samples": seen.overlap},
        places=shared.places(),
        facts=[
            Fact(kind="on-several-ranks", values={"indices": seen.first_overlap}),
            samples(shared.loaders),
            *_made(shared),
        ],
        confidence="likely",
    )


def _made(shared: Shared) -> Iterator[Fact]:
    place = shared.context.place(shared.first().made_at, "created")
    if place is not None:
        yield Fact(kind="loader-made", place=place)
    kinds = {loader.dataset for loader in shared.loaders.values()}
    for share in shares_in_class(shared.context.program, kinds):
        yield Fact(kind="share-chosen", place=share)


def _gap(shared: Shared, seen: Division) -> Iterator[Finding]:
    """Report samples that no rank got, unless another loader has them or they were split off."""
    mine = shared.handed_out
    size = shared.first().universe or 0
    if size != shared.first().dataset_size:
        return
    missing = ((1 << size) - 1) & ~mine & ~_handed_out_by_others(shared)
    if not missing:
        return
    inner = missing & ((1 << mine.bit_length()) - 1) & ~((mine & -mine) - 1)
    if inner and not all(
        _is_regular(unpack_indices(x.handed_out)) for x in shared.loaders.values()
    ):
        return  # the parts are random selections: the rest was split off
    lost = missing.bit_count()
    split_off = not inner and lost >= max(_SPLIT_OFF * size, len(shared.loaders))
    yield conclude(
        "C.7",
        "shards-leave-gaps",
        cause="shard-gaps",
        ranks=shared.loaders,
        values={"loader": shared.name, "samples": lost},
        places=shared.places(),
        facts=[
            Fact(kind="on-no-rank", values={"indices": seen.first_gap}),
            samples(shared.loaders),
            *_made(shared),
        ],
        confidence="possible" if split_off else "likely",
    )


def _is_regular(indices: int) -> bool:
    """Whether a set contains every n-th index from its first to its last."""
    known = [at for at, bit in enumerate(reversed(f"{indices:b}")) if bit == "1"]
    return len({after - before for before, after in pairwise(known)}) <= 1


def _handed_out_by_others(shared: Shared) -> int:
    """Return the samples of the same data that another loader of the session handed out."""
    first = shared.first()
    seen = 0
    for partition in shared.context.snapshot.partition:
        for loader in partition.loaders:
            same = (loader.dataset, loader.dataset_size) == (first.dataset, first.dataset_size)
            if same and loader.name != shared.name:
                seen |= unpack_indices(loader.handed_out)
    return seen


RULES = (
    wrong_samplers,
    samplers_disagree,
    evaluated_data_differ,
    same_data,
    wrong_shards,
    overlapping_contents,
    replicated_apart,
    summed_apart,
    slices_left_out,
    same_inputs,
)
HINTS = (slices_of_everything, perhaps_summed_apart)
