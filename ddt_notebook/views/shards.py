"""Which part of a sharded model, or of an optimizer's state, each rank holds, as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import formatting
from ..formatting import ranks_label
from ..model.partition import SHARD_SLOTS, ModelShard, of_all_stages
from . import html, safe, sparklines, terminal, words
from .html import Markup
from .source_positions import group

#: Strips of one object; with more ranks, neighbours share one.
ROWS = 8

_HEAD = ("rank", "parameters", "of all", "bytes", "spread")
#: A slot of which this percentage is held counts as whole, since it was rounded.
_WHOLE = 99
#: Characters of the name of a strip in a terminal.
_NAME = 18


def by_object(
    held: Mapping[int, Sequence[ModelShard]],
) -> dict[str, dict[int, ModelShard]]:
    """The shards of each object by rank."""
    found: dict[str, dict[int, ModelShard]] = {}
    for rank, shards in held.items():
        for shard in shards:
            found.setdefault(shard.name, {})[rank] = shard
    return {name: of_all_stages(by_rank) for name, by_rank in found.items()}


def to_text(name: str, by_rank: Mapping[int, ModelShard]) -> Iterator[str]:
    """The amounts, and where the parts lie, as lines for a terminal."""
    yield from terminal.wrap("", _subject(name, by_rank))
    yield from terminal.columns(_rows(by_rank), _HEAD, (1, 2, 3), indent=4)
    strips = _strips(by_rank)
    width = max((min(_NAME, len(who)) for who, _ in strips), default=0)
    for who, strip in strips:
        yield f"  {safe.middle(who, _NAME):<{width}}  │{strip}│"
    if strips:
        yield f"    {_legend(by_rank)}"
    if hosts := _by_host(by_rank):
        yield from terminal.wrap("", hosts)


def to_html(name: str, by_rank: Mapping[int, ModelShard]) -> Iterator[Markup]:
    """The amounts, and where the parts lie, as tables."""
    yield html.heading(_subject(name, by_rank))
    yield html.table(_rows(by_rank), _HEAD)
    if strips := _strips(by_rank):
        yield html.table(
            [(safe.middle(who, 60), sparklines.fixed_width(strip)) for who, strip in strips]
        )
        yield html.line(_legend(by_rank))
    if hosts := _by_host(by_rank):
        yield html.line(hosts)


def _subject(name: str, by_rank: Mapping[int, ModelShard]) -> str:
    """``model · FSDP2 · mesh dp=2, tp=2 · 1,024 parameters``."""
    first = next(iter(by_rank.values()))
    mesh = [f"mesh {safe.middle(first.mesh, 40)}"] if first.mesh else []
    parts = [f"shards of {safe.middle(name, 60)}", first.wrapper, *mesh]
    return " · ".join([*parts, words.count(first.parameters, "parameter")])


def _rows(by_rank: Mapping[int, ModelShard]) -> list[tuple[str, ...]]:
    def row(shard: ModelShard) -> tuple[str, ...]:
        share = shard.local_parameters / shard.parameters if shard.parameters else 0.0
        spread = safe.listing(shard.placements, 3, "; ")
        size = words.size(shard.local_bytes)
        return (f"{shard.local_parameters:,}", f"{share:.1%}", size, spread)

    alike = group(by_rank, lambda rank: row(by_rank[rank]))
    rows = [(words.ranks_cell(ranks), *cells) for cells, ranks in alike[: 2 * ROWS]]
    if len(alike) > 2 * ROWS:
        rows.append((f"and {len(alike) - 2 * ROWS} more rows", *[""] * 4))
    return rows


def _strips(by_rank: Mapping[int, ModelShard]) -> list[tuple[str, str]]:
    """The part of the whole that each rank holds, as signs, where it lies.

    Ranks that hold the same share a strip. So do neighbours, if there are many; then it is what
    they hold together.
    """
    if not all(len(shard.slots) == SHARD_SLOTS for shard in by_rank.values()):
        return []
    alike = group(by_rank, lambda rank: by_rank[rank].slots)
    each = -(-len(alike) // ROWS)
    strips = []
    for low in range(0, len(alike), each):
        rows = alike[low : low + each]
        signs = "".join(_held(min(100, sum(shares))) for shares in zip(*dict(rows), strict=True))
        ranks = sorted(rank for _, same in rows for rank in same)
        strips.append((_who(ranks, by_rank), signs))
    return strips


def _who(ranks: Sequence[int], by_rank: Mapping[int, ModelShard]) -> str:
    """``rank 3 dp 1 tp 1``: the ranks, and their common places on the axes of the mesh.

    An axis with several of them is left out: they are copies, or neighbours in one strip.
    """
    first = by_rank[ranks[0]]
    axes = [axis.partition("=")[0] for axis in first.mesh.split(", ") if "=" in axis]
    places = []
    for at, axis in enumerate(axes):
        there = {by_rank[rank].coordinate[at : at + 1] for rank in ranks}
        if len(there) == 1 and (place := there.pop()):
            places.append(f"{axis} {place[0]}")
    return " ".join([ranks_label(ranks), *places])


def _by_host(by_rank: Mapping[int, ModelShard]) -> str:
    """Which share of the whole the ranks of each host hold together; empty for one host.

    A host that lacks a part gets it over the network whenever the whole is needed.
    """
    if not all(len(shard.slots) == SHARD_SLOTS for shard in by_rank.values()):
        return ""
    shares: dict[str, list[str]] = {}
    for host, ranks in formatting.hosts_shown(by_rank).items():
        parts = {by_rank[rank].slots for rank in ranks}  # ranks with equal ones hold copies
        slots = [min(100, sum(held)) for held in zip(*parts, strict=True)]
        share = sum(slots) / len(slots)
        text = "all of it" if min(slots) >= _WHOLE else f"{share:.1f}% of it"
        shares.setdefault(text, []).append(host)
    each = [
        f"{_names(hosts)} {'hold' if len(hosts) > 1 else 'holds'} {text}"
        + " each" * (len(hosts) > 1)
        for text, hosts in shares.items()
    ]
    return f"by host: {'; '.join(each)}" if each else ""


def _names(hosts: Sequence[str]) -> str:
    names = formatting.in_runs(hosts)
    return formatting.listing(names) if len(names) <= ROWS else safe.listing(names, ROWS)


def _held(percent: int) -> str:
    """One slot."""
    return "█" if percent >= _WHOLE else "▒" if percent > 0 else "░"


def _legend(by_rank: Mapping[int, ModelShard]) -> str:
    """What the signs mean, and how often all ranks together hold the whole."""
    whole = next(iter(by_rank.values())).parameters
    held = sum(shard.local_parameters for shard in by_rank.values()) / whole if whole else 0.0
    times = "once" if held == 1 else f"{held:.4g} times"
    legend = "█ held · ▒ partly · from the first parameter to the last; "
    shown = any(shard.slots for shard in by_rank.values())
    return f"{legend if shown else ''}together they hold it {times}"
