"""Who got which data."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..diagnosis.communication import hold_parts, reduce_nothing
from ..formatting import ranks_label
from ..model import Snapshot
from ..model.agreements import readers
from ..model.partition import (
    Coverage,
    Division,
    LoaderPartition,
    coverage,
    division,
    equal_by_chance,
)
from . import html, safe, sparklines, terminal, words
from .flags import Flag, ordered
from .html import Markup
from .run_view import RunView, chosen
from .source_positions import group

#: Up to this many ranks each one has a row; beyond, those with equal counts share one.
ROWS = 8
#: Loaders that are shown.
OBJECTS = 12
#: First indices that are shown of each rank.
FIRST = 6

_LOADER_HEAD = ("rank", "epochs", "batches", "samples", "share", "first indices")
#: Slots of a strip that shows where in the data set a rank read, and the signs of their shares.
_SLOTS, _SHARES = sparklines.SLOTS, "░▒▓█"
_MEANS = {"1": "read by one rank", "+": "by more", "0": "some by none"}
_SHADES = f"{_SHARES} by a rank: few to all"
_LEGEND = " · ".join([*(f"{sign} {word}" for sign, word in _MEANS.items()), _SHADES])
#: Epochs whose order is shown.
_EPOCHS = 4
_MARKS = {"0": html.COLOURS["error"], "+": html.COLOURS["warning"]}


@dataclass(frozen=True, slots=True)
class _Table:
    """The subject, the rows, and the pictures."""

    subject: str
    rows: list[tuple[str, ...]]
    strips: list[tuple[str, str]]
    order: tuple[str, list[tuple[str, str]]] | None = None


#: Why ranks that trained and never averaged anything evaluate on the same samples.
_EACH_ALONE = "and averaged nothing: each evaluates a model of its own"
_SAMPLER = "give the loader a DistributedSampler"
#: Samplers of PyTorch, accelerate and Lightning, which divide data without repeating it.
_KNOWN_SAMPLERS = frozenset({
    "", "BatchSampler", "DistributedSampler", "DistributedSamplerWrapper", "RandomSampler",
    "SeedableRandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler",
    "UnrepeatedDistributedSampler", "UnrepeatedDistributedSamplerWrapper",
})  # fmt: skip


class PartitionView(RunView):
    """Samples and batches of each rank, compared.

    Parameters
    ----------
    snapshot
        With its ``partition``.
    names
        Variables to show; default: those of the run, or all if the ranks were asked now.
    asked_now
        Whether the ranks were asked at their prompt, and not at the end of the cell.
    """

    __slots__ = ("_loaders", "_readers", "_runs", "_sharded")

    name = "partition"
    columns = (
        *("loader", "rank", "dataset", "dataset_size", "sampler", "epoch", "epoch_in_cell"),
        *("batches", "samples", "complete", "repeated", "first"),
    )

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, asked_now: bool = False
    ) -> None:
        super().__init__(snapshot, asked_now=asked_now)
        self._loaders: dict[str, dict[int, LoaderPartition]] = {}
        for partition in snapshot.partition:
            for loader in chosen(partition.loaders, names):
                self._loaders.setdefault(loader.name, {})[partition.rank] = loader
        if not asked_now and not names:
            self._loaders = _used_in_run(self._loaders, snapshot)
        held = (shard.name for one in snapshot.partition for shard in chosen(one.shards, names))
        self._sharded = list(dict.fromkeys(held))
        self._runs = snapshot.running is not None
        self._readers = readers(snapshot.agreements)
        trains = _trained_ranks(snapshot)
        divided = {name: self._divided(by_rank) for name, by_rank in self._loaders.items()}
        ended = snapshot.outcome == "ok"
        alike = _why_alike(snapshot) if ended else ""
        alone = _EACH_ALONE if ended and trains and reduce_nothing(snapshot.ranks) else ""
        stepped = any(one.steps for rank in snapshot.training for one in rank.optimizers)
        self.flags = _find_flags(
            divided,
            trains=trains,
            runs=self._runs,
            ended=ended,
            alike=alike,
            alone=alone,
            stepped=stepped,
        )

    def _text(self) -> list[str]:
        lines: list[str] = []
        for table in self._tables():
            lines += terminal.wrap("", table.subject)
            if table.rows:
                lines += terminal.columns(table.rows, _LOADER_HEAD, (1, 2, 3, 4), indent=4)
            width = max((len(who) for who, _ in table.strips), default=0)
            lines += [f"    {who:<{width}}  │{strip}│" for who, strip in table.strips]
            lines += [f"    {_LEGEND}"] if table.strips else []
            if table.order is not None:
                subject, strips = table.order
                width = max(len(epochs) for epochs, _ in strips)
                lines += terminal.wrap("", subject)
                lines += [f"    {epochs:<{width}}  │{strip}│" for epochs, strip in strips]
        if self._left_out:
            lines.append(f"  and {words.count(self._left_out, 'more loader')}")
        if self._sharded:
            lines += terminal.wrap("", _pointer(self._sharded))
        return lines

    def _html(self) -> list[Markup]:
        parts = []
        for table in self._tables():
            parts.append(html.heading(table.subject))
            if table.rows:
                parts.append(html.table(table.rows, _LOADER_HEAD))
            if table.strips:
                parts.append(html.table([(who, _strip(strip)) for who, strip in table.strips]))
                marks = [Markup(f"{_strip(sign)} {word}") for sign, word in _MEANS.items()]
                parts.append(html.line(Markup(" · ".join([*marks, _SHADES]))))
            if table.order is not None:
                subject, strips = table.order
                rows = [(epochs, sparklines.fixed_width(strip)) for epochs, strip in strips]
                parts += [html.line(subject), html.table(rows)]
        if self._left_out:
            parts.append(html.line(f"and {words.count(self._left_out, 'more loader')}"))
        if self._sharded:
            parts.append(html.line(_pointer(self._sharded)))
        return parts

    def to_frame(self) -> Any:
        """One row for each epoch of each loader on each rank, as a pandas DataFrame.

        - ``loader``: variable that holds the loader
        - ``rank``: global rank
        - ``dataset``: class of the data set
        - ``dataset_size``: number of its samples; None if it has no length
        - ``sampler``: class of the sampler
        - ``epoch``: number of the epoch since the loader was made, from 1
        - ``epoch_in_cell``: number of the epoch in its cell, from 1
        - ``batches``, ``samples``: how many the rank got in the epoch
        - ``complete``: whether the rank iterated to the end
        - ``repeated``: how many of the samples the rank got more than once; None for earlier epochs
        - ``first``: indices of the first samples
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        return [
            {
                "loader": name,
                "rank": rank,
                "dataset": loader.dataset,
                "dataset_size": loader.dataset_size,
                "sampler": loader.sampler,
                "epoch": epoch.number,
                "epoch_in_cell": epoch.in_cell or epoch.number,
                "batches": epoch.batches,
                "samples": epoch.samples,
                "complete": epoch.complete,
                "repeated": loader.repeated if epoch is loader.last else None,
                "first": epoch.first,
            }
            for name, by_rank in self._loaders.items()
            for rank, loader in by_rank.items()
            for epoch in loader.epochs
        ]

    def divisions(self) -> dict[str, Division]:
        """Overlap, gaps and counts of the last epoch of each loader."""
        return {name: division(self._divided(by_rank)) for name, by_rank in self._loaders.items()}

    def _divided(self, by_rank: dict[int, LoaderPartition]) -> dict[int, LoaderPartition]:
        """The ranks among which the data are divided: one for each place of the data axis."""
        return {rank: one for rank, one in by_rank.items() if self._reads_for(rank) == rank}

    def _reads_for(self, rank: int) -> int:
        return self._readers.get(rank, rank)

    @property
    def _left_out(self) -> int:
        return max(0, len(self._loaders) - OBJECTS)

    def _ranks(self) -> int:
        return len(self.snapshot.partition)

    def unseen(self) -> str:
        """Data that a cell takes without a DataLoader are not watched."""
        if self._loaders or self._sharded:
            return ""
        return "no DataLoader was used, so this view does not know who read what"

    def _healthy(self) -> str:
        if not self._loaders:
            if any(partition.loaders for partition in self.snapshot.partition):
                return "no DataLoader was used in this run"
            return "no rank holds a DataLoader in its variables"
        used = [d for d in self.divisions().values() if d.ranks]
        parts = []
        if used:
            without = "divided without overlap" + ("" if self._runs else " or gaps")
            parts.append(f"{words.count(len(used), 'loader')} {without}")
        elif unread := sum(not _problem(by_rank) for by_rank in self._loaders.values()):
            parts.append(f"{words.count(unread, 'loader')}, not iterated yet")
        return ", ".join(parts)

    def _about(self, name: str, by_rank: dict[int, LoaderPartition]) -> str:
        used = any(loader.last is not None for loader in by_rank.values())
        earlier = used and not _ranks_of_run(by_rank, self.snapshot)
        divided = self._divided(by_rank)
        about = _about_loader(name, divided, runs=self._runs)
        if len(divided) < len(by_rank):
            about += f" · {words.count(len(divided), 'place')} on the data axis"
        return about + (" · in an earlier cell" if earlier else "")

    def _tables(self) -> list[_Table]:
        found = [
            _Table(
                self._about(name, by_rank),
                _loader_rows(by_rank),
                _strips(self._divided(by_rank)),
                _order(by_rank),
            )
            for name, by_rank in self._loaders.items()
        ]
        return found[:OBJECTS]


def _used_in_run(
    loaders: dict[str, dict[int, LoaderPartition]], snapshot: Snapshot
) -> dict[str, dict[int, LoaderPartition]]:
    """Those that ranks iterated over in the run, on these ranks, and those that none ever did."""
    found = {}
    for name, by_rank in loaders.items():
        used = [rank for rank, loader in by_rank.items() if loader.last is not None]
        mine = _ranks_of_run(by_rank, snapshot)
        if mine or not used:
            found[name] = {r: x for r, x in by_rank.items() if r in mine or x.last is None}
    return found


def _ranks_of_run(by_rank: dict[int, LoaderPartition], snapshot: Snapshot) -> set[int]:
    """The ranks that iterated over a loader in the run."""
    runs = {partition.rank: partition.run for partition in snapshot.partition}
    return {r for r, x in by_rank.items() if x.last is not None and x.last.run == runs[r]}


def _pointer(sharded: Sequence[str]) -> str:
    """Where the shards of models are shown."""
    return f"the shards of {safe.listing(sharded)} are in the view placement"


def _about_loader(name: str, by_rank: dict[int, LoaderPartition], *, runs: bool) -> str:
    """``loader · TensorDataset of 101 · DistributedSampler, padding of 1 · 101 covered``."""
    first = next(iter(by_rank.values()))
    size = f" of {first.dataset_size:,}" if first.dataset_size is not None else ""
    parts = [safe.middle(name, 60), f"{safe.middle(first.dataset, 40)}{size}"]
    if first.sampler:
        parts.append(safe.middle(first.sampler, 40))
    seen = division(by_rank)
    if not seen.ranks:
        return " · ".join([*parts, "not counted" if _problem(by_rank) else "not iterated yet"])
    early = [r for r, x in by_rank.items() if x.last is not None and not x.last.complete]
    if early and not runs:
        parts.append(f"left early by {words.ranks(early)}")
    if seen.uneven and seen.joined:
        parts.append("uneven, as join() allows")
    if first.indexed:
        parts.append(f"{seen.covered:,} different samples")
        if seen.overlap:
            parts.append(f"{seen.overlap:,} on several ranks")
        if seen.gaps:
            parts.append(f"{seen.gaps:,} on none")
        if seen.padding:
            parts.append(f"padding {seen.padding:,}")
    return " · ".join(parts)


def _loader_rows(by_rank: dict[int, LoaderPartition]) -> list[tuple[str, ...]]:
    used = [rank for rank, loader in by_rank.items() if loader.last is not None]
    alike = group(used, lambda rank: _counts(by_rank[rank]) if len(used) > ROWS else (str(rank),))
    rows = []
    for _, ranks in alike[: 2 * ROWS]:
        loader = by_rank[ranks[0]]
        first = ", ".join(map(str, loader.epochs[-1].first[:FIRST])) or "no index"
        rows.append((words.ranks_cell(ranks), *_counts(loader), first))
    if len(alike) > 2 * ROWS:
        rows.append((f"and {len(alike) - 2 * ROWS} more rows", *[""] * 5))
    return rows


def _counts(loader: LoaderPartition) -> tuple[str, ...]:
    last = loader.epochs[-1]
    share = f"{last.samples / loader.dataset_size:.1%}" if loader.dataset_size else ""
    return (f"{last.in_cell or last.number}", f"{last.batches:,}", f"{last.samples:,}", share)


def _strips(by_rank: dict[int, LoaderPartition]) -> list[tuple[str, str]]:
    """Where in the data set each rank read, as signs, and how many ranks read each part."""
    found = coverage(by_rank, _SLOTS)
    if found is None or len(found.read) < 2:
        return []
    seen = division(by_rank)
    padded = seen.overlap <= seen.padding  # repeated on purpose, so that all ranks have as many
    alike = group(found.read, lambda rank: "".join(map(_share_sign, found.read[rank])))
    shown = alike if len(alike) <= ROWS else ()
    strips = [(safe.middle(ranks_label(ranks), 40), signs) for signs, ranks in shown]
    return [(f"samples 0-{found.size - 1}", _marks(found, bool(seen.gaps), padded)), *strips]


def _order(by_rank: dict[int, LoaderPartition]) -> tuple[str, list[tuple[str, str]]] | None:
    """What a rank read first in each of the first epochs; None without two epochs to compare.

    Epochs that began alike share a row. The rank is one that repeated an order, if there is one.
    """
    for rank in sorted(by_rank, key=lambda rank: (not by_rank[rank].same_order, rank)):
        loader = by_rank[rank]
        passes = [epoch for epoch in loader.epochs if epoch.run == loader.last_run and epoch.first]
        size = loader.universe or loader.dataset_size
        if len(passes) < 2 or not loader.indexed or not size:
            continue
        shown = passes[:_EPOCHS]
        strips = {
            epoch.in_cell or epoch.number: "".join(
                sparklines.level(min(1.0, (index + 1) / size)) for index in epoch.first[:_SLOTS]
            )
            for epoch in shown
        }
        alike = group(strips, strips.__getitem__)
        rows = [(_epochs(numbers), strip) for strip, numbers in alike]
        samples = words.count(max(map(len, strips.values())), "sample")
        subject = (
            f"order: the first {samples} of each epoch on {words.ranks([rank])}; "
            "the higher the bar, the higher the index. Epochs with the same order share a row"
        )
        return subject, rows
    return None


def _epochs(numbers: list[int]) -> str:
    return f"{'epoch' if len(numbers) == 1 else 'epochs'} {words.ranks_cell(numbers)}"


def _share_sign(share: float) -> str:
    return _SHARES[math.ceil(share * len(_SHARES)) - 1] if share else " "


def _marks(found: Coverage, gaps: bool, padded: bool) -> str:
    """For each slot whether one rank read it; those that no rank had to read are left blank."""
    nobody = "0" if gaps else " "
    return "".join(
        "+" if most > 1 and not padded else "1" if fewest or (most and not gaps) else nobody
        for fewest, most in zip(found.fewest, found.most, strict=True)
    )


def _strip(signs: str) -> Markup:
    cells = []
    for sign, run in groupby(signs):
        colour = _MARKS.get(sign)
        style = f"background-color:{colour};color:#000000" if colour else ""
        signs = "".join(run).replace(" ", sparklines.BLANK)
        cells.append(html.tag("span", signs, style=style))
    return sparklines.fixed_width(*cells)


def _trained_ranks(snapshot: Snapshot) -> frozenset[int]:
    """The ranks on which a loop over a loader trained in the run."""
    return frozenset(
        partition.rank
        for partition in snapshot.partition
        for loader in partition.loaders
        if loader.last_run == partition.run and loader.trained
    )


def _why_alike(snapshot: Snapshot) -> str:
    """Why all ranks may train on the same samples, as far as the calls show it."""
    if reduce_nothing(snapshot.ranks):
        return "and averaged nothing: each trains a model of its own"
    optimizers = snapshot.training[0].optimizers if snapshot.training else ()
    shapes = [shape for one in optimizers for shape in Counter(one.shapes).elements()]
    wrapped = any(one.wrapper for one in optimizers)
    if shapes and not wrapped and hold_parts(snapshot.ranks, shapes):
        return "and exchange activations: each may train a part of one model on them"
    return ""


def _find_flags(
    loaders: Mapping[str, Mapping[int, LoaderPartition]],
    *,
    trains: Collection[int],
    runs: bool,
    ended: bool,
    alike: str,
    alone: str,
    stepped: bool,
) -> list[Flag]:
    """Flags for the loaders, the most severe first.

    Parameters
    ----------
    trains
        Ranks that trained in loops over loaders: their other loaders are for evaluation.
    runs
        Whether the ranks were asked one after the other while they ran, so that counts differ.
    ended
        Whether the run ended without a failure, so that no rank waited for ever.
    alike
        Why all ranks may train on the same samples; empty if nothing speaks for it.
    alone
        The same for loaders that do not train.
    stepped
        Whether an optimizer stepped in the run.
    """
    found: list[Flag] = []
    for name, by_rank in loaders.items():
        seen = division(by_rank)
        short = safe.middle(name, 60)
        if seen.ranks:
            # a pipeline takes its batches by next()
            trained = (stepped and not trains) or any(one.trained for one in by_rank.values())
            why = alike if trained else alone
            found += _of_loader(short, by_rank, seen, runs=runs, ended=ended, why=why)
            found += _of_order(short, by_rank, trains)
        elif problem := _problem(by_rank):
            found.append(Flag("hint", f"{short} could not be counted: {problem}"))
        found += _of_sampler(short, by_rank)
    return ordered(found)


def _of_loader(
    name: str,
    by_rank: Mapping[int, LoaderPartition],
    seen: Division,
    *,
    runs: bool,
    ended: bool,
    why: str,
) -> list[Flag]:
    found = []
    # ranks that were asked while they ran may be in different epochs
    if not runs or len({x.last.number for x in by_rank.values() if x.last is not None}) == 1:
        found += _overlap(name, by_rank, seen, why=why)
    if problem := _problem(by_rank):
        found.append(Flag("hint", f"some batches of {name} could not be counted: {problem}"))
    if runs:
        return found
    if seen.gaps:
        dropped = any(loader.drop_last for loader in by_rank.values())
        missing = sum(loader.replicas is not None for loader in by_rank.values())
        text = f"{words.count(seen.gaps, 'sample')} of {name} went to no rank"
        if seen.first_gap:  # which are not known if the ranks divide different subsets
            text += f" (index {_indices(seen.first_gap)})"
        by = _own_sampler(by_rank) if _divides(by_rank) else ""
        if by or dropped:
            found.append(Flag("hint", f"{text}: {by or 'drop_last'} leaves them out"))
        elif missing and len(seen.ranks) < max(loader.replicas or 0 for loader in by_rank.values()):
            found.append(Flag("warning", f"{text}: only {words.ranks(seen.ranks)} iterated"))
        else:
            found.append(Flag("warning", text))
    if seen.uneven and not seen.joined:
        counts = sorted(seen.batches.items(), key=lambda item: item[1])
        (fewest, low), (most, high) = counts[0], counts[-1]
        when = f" in epoch {seen.epoch}" if seen.epoch else ""
        text = f"{name} gave rank {fewest} {words.count(low, 'batch')} and rank {most} {high:,}"
        text += f"{when}: "
        if ended:
            text += "with a collective in the loop, the ranks with more would wait for the others"
            found.append(Flag("hint", text))
        else:
            text += "the ranks with more then wait in a collective for the others; make the "
            found.append(Flag("warning", f"{text}counts even, or use join()"))
    return found


def _problem(by_rank: Mapping[int, LoaderPartition]) -> str:
    """Why batches of a loader were not counted on a rank; empty if there is nothing of that."""
    return next((loader.problem for loader in by_rank.values() if loader.problem), "")


def _of_order(
    name: str, by_rank: Mapping[int, LoaderPartition], trains: Collection[int]
) -> list[Flag]:
    """Ranks whose training epochs began alike; for an evaluation the order does not matter."""
    same = [
        rank
        for rank, loader in by_rank.items()
        if loader.same_order and (loader.trained or rank not in trains)
    ]
    if not same:
        return []
    fixed = {x.last.sampler_epoch for x in by_rank.values() if x.last is not None} - {None}
    advice = "call sampler.set_epoch(epoch) before each epoch" if fixed else "check its seed"
    text = f"{name} gave the same order in several epochs on {words.ranks(same)}: {advice}"
    return [Flag("warning", text)]


def _divided_by_tensorflow(by_rank: Mapping[int, LoaderPartition]) -> bool:
    """Whether TensorFlow divides the data, so that shares overlap only by a shuffle before that."""
    policies = {loader.sampler for loader in by_rank.values()}
    return all(
        one.startswith("AutoShardPolicy.") and one != "AutoShardPolicy.OFF" for one in policies
    )


def _by_chance(by_rank: Mapping[int, LoaderPartition], seen: Division) -> bool:
    """Whether samples of TensorFlow's data may be equal by chance."""
    epochs = [x.last for x in by_rank.values() if x.last is not None and "tf.data" in x.dataset]
    return len(epochs) == len(by_rank) and seen.overlap <= equal_by_chance(epochs)


def _equal_content(name: str, by_rank: Mapping[int, LoaderPartition], seen: Division) -> list[Flag]:
    """A flag for samples without an index that several ranks got, by their content."""
    if not seen.overlap or _by_chance(by_rank, seen):
        return []
    what = "the same samples" if seen.identical else f"{seen.overlap} equal samples"
    first = next(iter(by_rank.values()))
    if _divided_by_tensorflow(by_rank):
        text = (
            f"{name}: ranks got {what} at the start of the epoch, although TensorFlow divides the "
            "data: they hold equal samples, or each rank shuffles in an order of its own before it "
            "takes its share, which a seed in shuffle() prevents"
        )
        return [Flag("hint", text)]
    advice = (
        "divide the data, as dataset.shard() does"
        if "tf.data" in first.dataset
        else "divide the data in the data set's __iter__ by rank and world size"
    )
    text = f"{name}: ranks got {what} at the start of the epoch, by their content: {advice}"
    return [Flag("warning", text)]


def _overlap(
    name: str, by_rank: Mapping[int, LoaderPartition], seen: Division, *, why: str
) -> list[Flag]:
    """Flags for samples that several ranks got; `why` says why all may get the same ones."""
    if not all(loader.indexed for loader in by_rank.values()):
        return _equal_content(name, by_rank, seen)
    if seen.overlap <= seen.padding:
        return []
    if seen.same_content is False:
        text = (
            f"{name}: ranks got samples of the same index with different content: each rank has "
            "different data, or changes it at random"
        )
        return [Flag("hint", text)]
    if seen.identical:
        text = (
            f"{words.ranks(seen.ranks)} each got the same {words.count(seen.covered, 'sample')} of "
            f"{name}"
        )
        if why:
            return [Flag("hint", f"{text}, {why}")]
        sampler = _own_sampler(by_rank)
        if sampler and (seen.gaps or any(loader.repeated for loader in by_rank.values())):
            # a sampler that only ignores the rank gives all samples to each
            return [Flag("hint", f"{text}: {sampler} gives them so")]
        text += f": {_SAMPLER}, unless this is an evaluation that every rank repeats"
        return [Flag("warning", text)]
    text = (
        f"{words.count(seen.overlap, 'sample')} of {name} went to more than one rank "
        f"(index {_indices(seen.first_overlap)})"
    )
    if _divides(by_rank) and _shared_evenly(by_rank):
        replicas = next(iter(by_rank.values())).replicas
        parts = f"the sampler makes {replicas} parts for {words.count(len(by_rank), 'rank')}"
        return [Flag("hint", f"{text}: {parts}, as with tensor parallelism")]
    if not _divides(by_rank):
        return [Flag("warning", f"{text}: {_SAMPLER}")]
    if sampler := _own_sampler(by_rank):
        return [Flag("hint", f"{text}: {sampler} gives them so")]
    if len({loader.subset for loader in by_rank.values()}) > 1:
        text += ": the ranks split the data differently before it is divided"
    elif seen.gaps and any(loader.shuffles for loader in by_rank.values()):
        text += ": give the samplers of all ranks the same seed and the same epoch"
    return [Flag("warning", text)]


def _own_sampler(by_rank: Mapping[int, LoaderPartition]) -> str:
    """The class of a sampler of the program's own, which may repeat and omit samples by design."""
    names = {loader.sampler for loader in by_rank.values()}
    return "" if len(names) > 1 or names & _KNOWN_SAMPLERS else safe.middle(names.pop(), 40)


def _divides(by_rank: Mapping[int, LoaderPartition]) -> bool:
    return all(loader.replicas is not None for loader in by_rank.values())


def _shared_evenly(by_rank: Mapping[int, LoaderPartition]) -> bool:
    """Whether several ranks get the same part on purpose, as in tensor parallel groups."""
    parts = Counter(loader.replica for loader in by_rank.values())
    replicas = {loader.replicas for loader in by_rank.values()}
    sharing = set(parts.values())
    return replicas == {len(parts)} and len(sharing) == 1 and sharing != {1}


def _of_sampler(name: str, by_rank: Mapping[int, LoaderPartition]) -> list[Flag]:
    """A flag for ranks whose samplers all use the same rank number."""
    if not _divides(by_rank) or _shared_evenly(by_rank):
        return []
    alike = group(by_rank, lambda rank: (by_rank[rank].replica, by_rank[rank].replicas))
    return [
        Flag(
            "warning",
            f"the samplers of {name} on {words.ranks(ranks)} all use rank {replica} of "
            f"{replicas}: leave num_replicas and rank out, or pass dist.get_rank()",
        )
        for (replica, replicas), ranks in alike
        if len(ranks) > 1
    ]


def _indices(first: tuple[int, ...]) -> str:
    return ", ".join(map(str, first)) + (", …" if len(first) == 8 else "")
