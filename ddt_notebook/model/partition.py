"""How data and models are divided: the samples that each rank's loaders returned, and shards."""

from __future__ import annotations

import base64
import math
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from .position import Position

#: A set of a billion indices; a small text in a file could unpack to many gigabytes.
_MOST_INDEX_BYTES = 1 << 27
#: Equal samples of two ranks may be a coincidence up to this number. Chosen, not measured.
_FEW_EQUAL = 2
#: If samples come again on one rank, others may be equal by chance. As many pairs of samples as
#: brought the first repetition then bring about one more equal pair between two ranks, so that this
#: part of the samples is far more.
_PART_EQUAL = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """One pass over a loader, counted while the loop read it.

    Attributes
    ----------
    number
        Counted from 1 since the loader was first iterated.
    in_cell
        Counted from 1 in the run of the cell in which it began; 0 if that was not recorded.
    run
        Number of the run in which it began.
    batches, samples
        How many batches and samples the cell read.
    complete
        False if the loop left before the loader's end.
    broken_off
        Whether the loop may have ended only because an exception ended the run, such as after a
        hang or an interrupt.
    joined
        Whether it began inside ``join()``, where ranks may have different numbers of batches.
    first
        Indices of the first samples.
    content
        Fingerprints of the content of the first samples, if they are tensors.
    heads
        The first sample of each of the first batches.
    sampler_epoch
        The last argument of ``set_epoch``, None for a sampler without it.
    epoch_set
        Whether ``set_epoch`` of its sampler had ever been called.
    resumed_from
        The number of the epoch in the checkpoint from which an optimizer had been restored since
        the pass before, if the loader has a distributed sampler; None if there was none.
    made
        Number of the loader made at this place, counted from 1; a program may make a new one for
        each epoch.
    trained
        How many backward passes began during it.
    trained_first
        After which of the first batches a backward pass began, as bits: 5 for the first and third.
    where
        The line of the loop, None if no code of the user contains it.
    waited_s, lasted_s
        How long the loop waited for batches, and how long it took in total; both without the
        first batch, for which workers start.
    """

    number: int
    in_cell: int = 0
    run: int = 0
    batches: int
    samples: int
    complete: bool = True
    broken_off: bool = False
    joined: bool = False
    first: tuple[int, ...] = ()
    content: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    sampler_epoch: int | None = None
    epoch_set: bool = False
    resumed_from: int | None = None
    made: int = 1
    trained: int = 0
    trained_first: int = 0
    where: Position | None = None
    waited_s: float = 0.0
    lasted_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderPartition:
    """A loader on one rank.

    Attributes
    ----------
    name
        The variable, or the line that iterates over it.
    dataset, dataset_size
        Name of its class, and how many samples it has; None if it has no length.
    sampler
        Name of the sampler's class; empty for an iterable data set.
    indexed
        Whether its samples have an index.
    universe
        Number of samples in the data that was divided among the ranks, which is the data set or a
        subset of it; None if not known.
    shuffles
        Whether the sampler should change the order from epoch to epoch.
    with_replacement
        Whether the sampler may draw a sample more than once.
    replicas, replica
        The number of ranks for which the sampler divides the data, and the rank for which it
        selects samples.
    seed
        The seed of the sampler's order; None if it has none.
    made_at, sampled_at, split_at
        The lines that made the loader, its distributed sampler, and the `Subset` that is its data
        set, for example by `random_split`, or the sampler of a selection; None if not known.
    seeded_at
        The line that seeded torch's random numbers with the sampler's seed; None if none did.
    sampled_in
        The file of the installed library that made the distributed sampler: ``"deepspeed/…"``.
    subset, subset_size
        Digest and number of the samples that a `Subset` selects, or, of a loader that a library
        divides, the program's `SubsetRandomSampler`; None if there is neither.
    held_order, held, held_repeated
        Numbers for the order of the first samples that the data set keeps in memory, and for some
        of them by content, and how many of them repeat another one; None if that is not known.
    held_values, held_patterns
        Of each named part of these samples that consists of a few different values, such as
        ``"labels"``: numbers for its values, and for the places at which they are equal.
    padding
        How many samples the sampler repeats at most to fill the last batches of all ranks; None if
        it repeats none or, like a `DistributedSampler`, as many as equal parts need.
    drop_last
        Whether samples are dropped so that all parts have equal size.
    workers
        Number of processes that load batches.
    batch_size
        The batch size; None if batches are made in another way.
    expected_batches
        ``len(loader)``, None if it has none.
    epochs
        The latest passes.
    handed_out
        The indices that the rank read in the last epoch; see `pack_indices`.
    repeated
        How many samples of the last epoch this rank read more than once.
    uncounted
        How many samples of the last epoch have indices that were not kept.
    problem
        Why batches could not be counted; empty if they could.
    """

    name: str
    dataset: str
    dataset_size: int | None = None
    sampler: str = ""
    indexed: bool = True
    universe: int | None = None
    shuffles: bool = False
    with_replacement: bool = False
    replicas: int | None = None
    replica: int | None = None
    seed: int | None = None
    made_at: Position | None = None
    sampled_at: Position | None = None
    seeded_at: Position | None = None
    sampled_in: str = ""
    split_at: Position | None = None
    subset: int | None = None
    subset_size: int | None = None
    held_order: int | None = None
    held: tuple[int, ...] = ()
    held_repeated: int = 0
    held_values: dict[str, int] = field(default_factory=dict)
    held_patterns: dict[str, int] = field(default_factory=dict)
    padding: int | None = None
    drop_last: bool = False
    workers: int = 0
    batch_size: int | None = None
    expected_batches: int | None = None
    epochs: tuple[Epoch, ...] = ()
    handed_out: str = ""
    repeated: int = 0
    uncounted: int = 0
    problem: str = ""

    @property
    def last(self) -> Epoch | None:
        """The last pass, None before the first."""
        return self.epochs[-1] if self.epochs else None

    @property
    def last_run(self) -> int | None:
        """The run in which the last pass began, None before the first."""
        return self.epochs[-1].run if self.epochs else None

    @property
    def same_order(self) -> bool:
        """Whether two passes of the last cell began alike although the sampler shuffles.

        A pass that was left early and trained nothing does not count: it looked at a batch.
        """
        passes = [e for e in self.epochs if e.run == self.last_run and (e.complete or e.trained)]
        return self.shuffles and any(_alike(a.first, b.first) for a, b in pairwise(passes))

    @property
    def trained(self) -> bool:
        """Whether a backward pass began during a pass of the last cell."""
        return any(epoch.trained for epoch in self.epochs if epoch.run == self.last_run)


def _alike(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    shorter = min(len(a), len(b))
    return shorter > 2 and a[:shorter] == b[:shorter]


#: Into so many equal parts a sharded model is divided for a picture.
SHARD_SLOTS = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShard:
    """What one rank holds of a sharded model, or of the state of its optimizer.

    Attributes
    ----------
    name
        The variable.
    wrapper
        What divides it, such as ``"FSDP2"`` or ``"ZeroRedundancyOptimizer"``.
    parameters, local_parameters
        Number of elements of the whole model, and of this rank's part.
    local_bytes
        Bytes of this rank's part.
    placements
        How the parameters are placed, most common first: ``("Shard(0)", "Replicate()")``.
    mesh
        ``"dp=2, tp=2"``.
    coordinate
        The rank's place along each axis of the mesh; empty if parameters have several meshes.
    slots
        Which percentage of each of `SHARD_SLOTS` equal parts of the whole this rank holds; empty
        if it is not known where its part lies.
    """

    name: str
    wrapper: str
    parameters: int
    local_parameters: int
    local_bytes: int
    placements: tuple[str, ...] = ()
    mesh: str = ""
    coordinate: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()


def fill(amounts: list[float], low: float, high: float, share: float = 1.0) -> None:
    """Add to each slot of a whole how much of it lies between two of its places."""
    for slot in range(int(low), min(len(amounts), math.ceil(high))):
        amounts[slot] += share * max(0.0, min(high, slot + 1) - max(low, slot))


def of_all_stages(held: Mapping[int, ModelShard]) -> dict[int, ModelShard]:
    """The shards of a model whose parts are the stages of a pipeline, as shards of all of it.

    A rank knows the parameters of its own stage only.
    """
    first = next(iter(held.values()))
    axes = [axis.partition("=")[0] for axis in first.mesh.split(", ")]
    alike = all(
        one.mesh == first.mesh and len(one.coordinate) == len(axes) for one in held.values()
    )
    if "pipeline" not in axes or not alike:
        return dict(held)
    at = axes.index("pipeline")
    sizes = {one.coordinate[at]: one.parameters for one in held.values()}
    if len(sizes) != int(first.mesh.split(", ")[at].partition("=")[2]):
        return dict(held)
    whole, found = sum(sizes.values()), {}
    for rank, one in held.items():
        stage = one.coordinate[at]
        before = sum(size for other, size in sizes.items() if other < stage)
        amounts = [0.0] * SHARD_SLOTS
        for slot, percent in enumerate(one.slots):
            low = (before * SHARD_SLOTS + slot * sizes[stage]) / whole
            fill(amounts, low, low + sizes[stage] / whole, percent)
        slots = tuple(min(100, round(amount)) for amount in amounts) if one.slots else ()
        found[rank] = replace(one, parameters=whole, slots=slots)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPartition:
    """The loaders and shards of one rank.

    Attributes
    ----------
    run
        The number of the last run, as in `Epoch`.
    """

    rank: int
    run: int = 0
    loaders: tuple[LoaderPartition, ...] = ()
    shards: tuple[ModelShard, ...] = ()


def pack_indices(bits: bytes) -> str:
    """Encode a set of indices as text; each index ``i`` sets bit ``i % 8`` of byte ``i // 8``."""
    return base64.b64encode(zlib.compress(bits.rstrip(b"\0"))).decode()


def unpack_indices(packed: str) -> int:
    """Decode the set to a number that has one bit for each index."""
    return int.from_bytes(_unpacked(packed), "little")


def _unpacked(packed: str) -> bytes:
    """The bytes that were packed; none if a file was changed and they cannot be unpacked."""
    try:
        return zlib.decompressobj().decompress(base64.b64decode(packed), _MOST_INDEX_BYTES)
    except (ValueError, zlib.error):
        return b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How the last epoch of one loader was divided over the ranks.

    Attributes
    ----------
    ranks
        The ranks that have the loader and iterated over it.
    covered
        How many different samples the ranks read together.
    overlap
        How many samples more than one rank read.
    padding
        How many of those the sampler repeats on purpose, to give all ranks the same number.
    gaps
        How many samples of the data set no rank read; None if a rank left the loop early or the
        size of the data set is not known.
    first_overlap, first_gap
        The first such indices.
    identical
        True if all ranks read samples with the same indices (without indices: the same content).
    same_content
        Whether samples with the same index have the same content on different ranks, judged by the
        first samples; None if not known.
    batches
        Batches by rank, in the last epoch in which they can be compared; empty if there is none.
        A rank that was broken off is included if it had already read more than another rank's
        total.
    epoch
        The number of that epoch in the cell, 0 if it was the last one.
    joined
        Whether all ranks ran that epoch inside ``join()``.
    """

    ranks: tuple[int, ...]
    covered: int = 0
    overlap: int = 0
    padding: int = 0
    gaps: int | None = None
    first_overlap: tuple[int, ...] = ()
    first_gap: tuple[int, ...] = ()
    identical: bool = False
    same_content: bool | None = None
    batches: dict[int, int]
    epoch: int = 0
    joined: bool = False

    @property
    def uneven(self) -> bool:
        """Whether ranks read different numbers of batches."""
        return len(set(self.batches.values())) > 1


def equal_by_chance(epochs: Collection[Epoch], *, reordered: bool = False) -> float:
    """How many samples of ``tf.data`` several ranks may have alike by chance.

    Where fewer fingerprints were kept than samples were read, a sample came again.

    Parameters
    ----------
    reordered
        Whether the ranks are known to take their samples from other orders of the same data.
    """
    few = max(_FEW_EQUAL, len(epochs))
    if not reordered and any(len(one.content) < one.samples for one in epochs):
        return max(few, _PART_EQUAL * min(len(one.content) for one in epochs))
    return few


def division(loaders: Mapping[int, LoaderPartition]) -> Division:
    """Compare one loader across the ranks that have it."""
    used = {rank: loader for rank, loader in loaders.items() if loader.last is not None}
    if not used:
        return Division(ranks=(), batches={})
    found = _divided(used)
    compared = _compared(used)
    last = all(epoch is used[rank].last for rank, epoch in compared.items())
    return replace(
        found,
        batches={rank: epoch.batches for rank, epoch in compared.items()},
        epoch=0 if last else next(_number(epoch) for epoch in compared.values()),
        joined=bool(compared) and all(epoch.joined for epoch in compared.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Which parts of a data set the ranks read in the last epoch, in equal slots of its indices.

    Attributes
    ----------
    size
        How many samples the data set has.
    read
        For each rank, the share of each slot that it read, from 0 to 1.
    fewest, most
        How many ranks read the sample of each slot that the fewest, and the most ranks read. More
        than two count as two.
    """

    size: int
    read: dict[int, tuple[float, ...]]
    fewest: tuple[int, ...]
    most: tuple[int, ...]


def coverage(loaders: Mapping[int, LoaderPartition], slots: int) -> Coverage | None:
    """Where in the data set each rank read; None if samples have no index or are not known."""
    used = {rank: loader for rank, loader in loaders.items() if loader.last is not None}
    sizes = {loader.dataset_size for loader in used.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if not size or any(not x.indexed or not x.handed_out or x.uncounted for x in used.values()):
        return None
    count = min(slots, size)
    bounds = [at * size // count for at in range(count + 1)]
    parts = {rank: _parts(loader.handed_out, bounds) for rank, loader in used.items()}
    fewest, most = [], []
    for at, (low, high) in enumerate(pairwise(bounds)):
        once = twice = 0
        every = (1 << (high - low)) - 1
        for part in parts.values():
            twice |= once & part[at]
            once |= part[at]
        fewest.append(0 if once != every else 1 if twice != every else 2)
        most.append(2 if twice else 1 if once else 0)
    lengths = [high - low for low, high in pairwise(bounds)]
    return Coverage(
        size=size,
        read={
            rank: tuple(bits.bit_count() / n for bits, n in zip(part, lengths, strict=True))
            for rank, part in parts.items()
        },
        fewest=tuple(fewest),
        most=tuple(most),
    )


def _parts(packed: str, bounds: list[int]) -> list[int]:
    """A set of indices, cut at bounds: the bits of each part, from its first index on."""
    data = _unpacked(packed)
    found = []
    for low, high in pairwise(bounds):
        piece = int.from_bytes(data[low // 8 : high // 8 + 1], "little") >> low % 8
        found.append(piece & ((1 << (high - low)) - 1))
    return found


def _compared(used: Mapping[int, LoaderPartition]) -> dict[int, Epoch]:
    """The passes whose numbers of batches can be compared, by rank; empty if there are none."""
    by_rank = {
        rank: {_number(epoch): epoch for epoch in loader.epochs if epoch.run == loader.last_run}
        for rank, loader in used.items()
    }
    common = set.intersection(*(set(epochs) for epochs in by_rank.values()))
    for number in sorted(common, reverse=True):
        epochs = {rank: epochs[number] for rank, epochs in by_rank.items()}
        ended = [epoch.batches for epoch in epochs.values() if not epoch.broken_off]
        if len(ended) == len(epochs):
            return epochs
        # a broken-off pass counts only if it had more batches than the total of another
        fewest = min(ended, default=0)
        comparable = {r: e for r, e in epochs.items() if not e.broken_off or e.batches > fewest}
        if ended and len({epoch.batches for epoch in comparable.values()}) > 1:
            return comparable
    return {}


def _number(epoch: Epoch) -> int:
    return epoch.in_cell or epoch.number


def _divided(used: Mapping[int, LoaderPartition]) -> Division:
    """Compare by index which samples of the last epoch the ranks read."""
    if not all(loader.indexed for loader in used.values()):
        return _by_content(used)
    sets = [unpack_indices(loader.handed_out) for loader in used.values()]
    once = twice = 0
    for seen in sets:
        twice |= once & seen
        once |= seen
    size = max((loader.dataset_size or 0 for loader in used.values()), default=0)
    whole = size > 0 and all(
        loader.epochs[-1].complete and not loader.uncounted for loader in used.values()
    )
    universe = max((loader.universe or 0 for loader in used.values()), default=0) or size
    # for a subset, only the number of its samples is known, not which ones it has
    missing = ((1 << size) - 1) & ~once if whole and universe == size else 0
    gaps = missing.bit_count() if universe == size else max(0, universe - once.bit_count())
    return Division(
        ranks=tuple(used),
        covered=once.bit_count(),
        overlap=twice.bit_count(),
        padding=_padding(used.values()),
        gaps=gaps if whole else None,
        first_overlap=_first(twice),
        first_gap=_first(missing),
        identical=len(used) > 1 and len(set(sets)) == 1 and sets[0] != 0,
        same_content=_same_content(used.values()),
        batches={},
    )


def _by_content(used: Mapping[int, LoaderPartition]) -> Division:
    """Compare samples without indices, by the content of the first ones."""
    starts = [loader.epochs[-1].content for loader in used.values()]
    seen: set[int] = set()
    shared: set[int] = set()
    for start in starts:
        # content that one rank reads twice, such as zeros, does not identify a sample
        once = {value for value, times in Counter(start).items() if times == 1}
        shared |= seen & once
        seen |= once
    return Division(
        ranks=tuple(used),
        covered=len(seen),
        overlap=len(shared),
        identical=len(starts) > 1 and len(set(starts)) == 1 and bool(shared),
        same_content=True if shared else None,
        batches={},
    )


def _same_content(loaders: Iterable[LoaderPartition]) -> bool | None:
    known: dict[int, int] = {}
    verdict = None
    for loader in loaders:
        epoch = loader.epochs[-1]
        mine = dict(zip(epoch.first, epoch.content, strict=False))
        for index in known.keys() & mine.keys():
            if known[index] == mine[index]:
                return True
            verdict = False
        known |= mine
    return verdict


def _padding(loaders: Iterable[LoaderPartition]) -> int:
    """How many samples the sampler repeats to give all ranks the same number."""
    for loader in loaders:
        if loader.padding is not None:
            return loader.padding
        size = loader.universe or loader.dataset_size
        if loader.replicas and size and not loader.drop_last:
            return -size % loader.replicas
    return 0


def _first(bits: int, limit: int = 8) -> tuple[int, ...]:
    found: list[int] = []
    while bits and len(found) < limit:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return tuple(found)
