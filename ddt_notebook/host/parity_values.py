"""Where fingerprints differ, the ranks compare the values themselves.

They do so through a file: a collective would need all of them to be in step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..model import codec
from ..model.parity import Disagreement, RankParity, disagreements

#: Tensors that are compared: the first of each role and object first.
_MAX_TENSORS = 24
#: What a rank writes for others to compare with, in elements.
MAX_ELEMENTS = 20_000_000
_TENSORS = ("parameter", "buffer", "gradient", "state")

#: Sends options to the parity probe on some ranks; returns what each answered.
Ask = Callable[[Iterable[int], dict[str, Any]], dict[int, dict[str, Any]]]


def add_differences(
    observed: dict[int, dict[str, Any]], directory: Path, ask: Ask, limit: int = MAX_ELEMENTS
) -> None:
    """Add to each rank's parity how its tensors differ from those of most other ranks.

    Parameters
    ----------
    observed
        What each rank said of its parity.
    directory
        Where a file may be put.
    ask
        See `Ask`.
    limit
        How many elements a rank may write, at most.
    """
    parities = [codec.from_plain(RankParity, {"rank": r, **o}) for r, o in observed.items()]
    by_reference: dict[int, list[Disagreement]] = {}
    for found in _choose(disagreements(parities), limit):
        by_reference.setdefault(found.reference, []).append(found)
    for reference, chosen in by_reference.items():
        files = {
            found.name: str(directory / f"parity{number}") for number, found in enumerate(chosen)
        }
        try:
            if not ask([reference], {"share": files}):
                continue
            holding = [found for found in chosen if Path(files[found.name]).exists()]
            for rank in sorted({rank for found in holding for rank in _others(found)}):
                mine = {f.name: files[f.name] for f in holding if rank in _others(f)}
                for told in ask([rank], {"against": mine}).values():
                    observed[rank].setdefault("differences", []).extend(
                        one | {"reference": reference} for one in told["differences"]
                    )
        finally:
            for file in files.values():
                Path(file).unlink(missing_ok=True)


def _choose(found: Iterable[Disagreement], limit: int) -> list[Disagreement]:
    """Tensors of one shape and type; first the first one of each role, then the others."""
    comparable = [f for f in found if f.role in _TENSORS and _same_kind(f)]
    heads: dict[tuple[str, str], Disagreement] = {}
    for one in comparable:
        heads.setdefault((one.role, one.name.partition(".")[0]), one)
    rest = [one for one in comparable if one not in heads.values()]
    chosen: list[Disagreement] = []
    elements = 0
    for one in [*heads.values(), *rest]:
        size = _elements(one)
        if len(chosen) < _MAX_TENSORS and elements + size <= limit:
            chosen.append(one)
            elements += size
    return chosen


def _same_kind(found: Disagreement) -> bool:
    kinds = {k for k, value in zip(found.kinds, found.groups, strict=True) if value}
    kind = next(iter(kinds))
    return len(kinds) == 1 and bool(kind) and not kind.endswith("scalar")


def _elements(found: Disagreement) -> int:
    shape = next(filter(None, found.kinds)).rpartition(" ")[2]
    return math.prod(int(size) for size in shape.split("×"))


def _others(found: Disagreement) -> set[int]:
    return {rank for value, ranks in found.groups.items() if value for rank in ranks} - set(
        found.agreeing
    )
