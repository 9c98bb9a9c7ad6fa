"""Who got which data, and who holds which part of a sharded model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..model import Snapshot
from ..model.partition import Division, LoaderPartition, ModelShard, division
from . import flags, html, observed, table, text, words
from .bundle import Displayable
from .partition_flags import flags as find_flags
from .places import group

#: Up to this many ranks each one has a row; beyond, those with equal counts share one.
ROWS = 8
#: Loaders and sharded models that are shown.
OBJECTS = 12
#: First indices that are shown of each rank.
FIRST = 6

_LOADER_HEAD = ("rank", "epochs", "batches", "samples", "of data", "first indices")
#: What it is about, the titles of its columns, its rows.
_Table = tuple[str, tuple[str, ...], list[tuple[str, ...]]]

_SHARD_HEAD = ("rank", "parameters", "of all", "bytes", "spread")


class PartitionView(Displayable):
    """Samples, batches and shards of each rank, compared.

    Parameters
    ----------
    snapshot
        With its ``partition``.
    names
        Variables to show; default: all.
    earlier
        Whether to show loaders, too, that were used in earlier cells only.
    """

    __slots__ = ("_loaders", "_shards", "flags", "snapshot")

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, earlier: bool = False
    ) -> None:
        self.snapshot = snapshot
        self._loaders: dict[str, dict[int, LoaderPartition]] = {}
        self._shards: dict[str, dict[int, ModelShard]] = {}
        for partition in snapshot.partition:
            for loader in observed.chosen(partition.loaders, names):
                self._loaders.setdefault(loader.name, {})[partition.rank] = loader
            for shard in observed.chosen(partition.shards, names):
                self._shards.setdefault(shard.name, {})[partition.rank] = shard
        if not earlier and not names:
            self._loaders = _used_in_run(self._loaders, snapshot)
        self.flags = find_flags(self._loaders)

    def to_text(self) -> str:
        """What is odd, then each loader and sharded model by rank, 80 columns wide."""
        lines = [self._title(), *flags.to_text(self.flags, self._healthy())]
        for head, columns, rows in self._tables():
            lines += text.wrap("", head)
            if rows:
                right = (1, 2, 3, 4) if columns is _LOADER_HEAD else (1, 2, 3)
                lines += table.columns(rows, columns, right, indent=4)
        if self._left_out:
            lines.append(f"  and {words.count(self._left_out, 'more object')}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same as tables."""
        parts: list[str] = [observed.heading(self._title())]
        parts += flags.to_html(self.flags, self._healthy())
        for head, columns, rows in self._tables():
            parts.append(html.line(html.tag("b", head)))
            if rows:
                parts.append(html.table(rows, columns))
        if self._left_out:
            parts.append(html.line(f"and {words.count(self._left_out, 'more object')}"))
        return html.view(*parts)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each epoch of each loader on each rank."""
        columns = (
            *("loader", "rank", "dataset", "dataset_size", "sampler", "epoch"),
            *("epoch_in_cell", "batches"),
            *("samples", "complete", "repeated", "first"),
        )
        rows = [
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
        return observed.frame(rows, columns)

    def divisions(self) -> dict[str, Division]:
        """Overlap, gaps and counts of the last epoch of each loader."""
        return {name: division(by_rank) for name, by_rank in self._loaders.items()}

    @property
    def _left_out(self) -> int:
        return max(0, len(self._loaders) + len(self._shards) - OBJECTS)

    def _title(self) -> str:
        return observed.title("partition", self.snapshot, len(self.snapshot.partition))

    def _healthy(self) -> str:
        if not self._loaders and not self._shards:
            if any(partition.loaders for partition in self.snapshot.partition):
                return "no DataLoader was used in this run"
            return "no rank holds a DataLoader or a sharded model in its variables"
        used = [d for d in self.divisions().values() if d.ranks]
        parts = []
        if used:
            parts.append(f"{words.count(len(used), 'loader')} divided without overlap or gaps")
        elif self._loaders:
            parts.append(f"{words.count(len(self._loaders), 'loader')}, not iterated yet")
        if self._shards:
            parts.append(words.count(len(self._shards), "sharded model"))
        return ", ".join(parts)

    def _about(self, name: str, by_rank: dict[int, LoaderPartition]) -> str:
        used = any(loader.last is not None for loader in by_rank.values())
        earlier = used and not _ranks_of_run(by_rank, self.snapshot)
        return _about_loader(name, by_rank) + (" · in an earlier cell" if earlier else "")

    def _tables(self) -> list[_Table]:
        found: list[_Table] = [
            (self._about(name, by_rank), _LOADER_HEAD, _loader_rows(by_rank))
            for name, by_rank in self._loaders.items()
        ]
        found += [
            (_about_shards(name, by_rank), _SHARD_HEAD, _shard_rows(by_rank))
            for name, by_rank in self._shards.items()
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


def _about_loader(name: str, by_rank: dict[int, LoaderPartition]) -> str:
    """``loader · TensorDataset of 101 · DistributedSampler, padding of 1 · 101 covered``."""
    first = next(iter(by_rank.values()))
    size = f" of {first.dataset_size:,}" if first.dataset_size is not None else ""
    parts = [words.middle(name, 60), f"{words.middle(first.dataset, 40)}{size}"]
    if first.sampler:
        parts.append(words.middle(first.sampler, 40))
    seen = division(by_rank)
    if not seen.ranks:
        return " · ".join([*parts, "not iterated yet"])
    early = [r for r, x in by_rank.items() if x.last is not None and not x.last.complete]
    if early:
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
        rows.append((words.rank_list(ranks), *_counts(loader), first))
    if len(alike) > 2 * ROWS:
        rows.append((f"and {len(alike) - 2 * ROWS} more rows", *[""] * 5))
    return rows


def _counts(loader: LoaderPartition) -> tuple[str, ...]:
    last = loader.epochs[-1]
    share = f"{last.samples / loader.dataset_size:.1%}" if loader.dataset_size else ""
    return (f"{last.in_cell or last.number}", f"{last.batches:,}", f"{last.samples:,}", share)


def _about_shards(name: str, by_rank: dict[int, ModelShard]) -> str:
    first = next(iter(by_rank.values()))
    mesh = [f"mesh {words.middle(first.mesh, 40)}"] if first.mesh else []
    parts = [words.middle(name, 60), first.wrapper, *mesh]
    return " · ".join([*parts, words.count(first.parameters, "parameter")])


def _shard_rows(by_rank: dict[int, ModelShard]) -> list[tuple[str, ...]]:
    def row(shard: ModelShard) -> tuple[str, ...]:
        share = shard.local_parameters / shard.parameters if shard.parameters else 0.0
        spread = observed.listing(shard.placements, 3)
        size = words.size(shard.local_bytes)
        return (f"{shard.local_parameters:,}", f"{share:.1%}", size, spread)

    alike = group(by_rank, lambda rank: row(by_rank[rank]))
    rows = [(words.rank_list(ranks), *cells) for cells, ranks in alike[: 2 * ROWS]]
    if len(alike) > 2 * ROWS:
        rows.append((f"and {len(alike) - 2 * ROWS} more rows", *[""] * 4))
    return rows
