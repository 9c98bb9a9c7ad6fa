"""Where everything lives: modules, optimizers and batches, rank by rank."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..model import Snapshot
from ..model.placement import PlacedObject, RankPlacement, TensorPlacement
from . import flags, html, observed, table, text, words
from .bundle import Displayable
from .html import Markup
from .placement_flags import flags as find_flags
from .places import group

#: Rows for one object; a deeper model is summed up by its upper modules.
ROWS = 12
#: Objects that are shown, and tensors in the list of all of them.
OBJECTS = 20
TENSORS = 200

_WRAPPERS = {"DTensor": "DTensor shards"}
_HEAD = ("part", "device", "type", "tensors", "bytes")


@dataclass(frozen=True, slots=True)
class _Shown:
    """An object that is the same on these ranks, but for the number of the GPU."""

    item: PlacedObject
    ranks: tuple[int, ...]
    devices: tuple[str, ...]


class PlacementView(Displayable):
    """Device, type and size of what each rank holds; equal ranks once.

    Parameters
    ----------
    snapshot
        With its ``placement``.
    names
        Variables to show; default: all.
    """

    __slots__ = ("_objects", "_placements", "flags", "snapshot")

    def __init__(self, snapshot: Snapshot, names: Sequence[str] = ()) -> None:
        self.snapshot = snapshot
        self._placements = [
            replace(placement, objects=tuple(observed.chosen(placement.objects, names)))
            for placement in snapshot.placement
        ]
        self._objects = _merge(self._placements)
        self.flags = find_flags(self._placements)

    def to_text(self) -> str:
        """What is odd, then each object by module, 80 columns wide."""
        lines = [self._title(), *flags.to_text(self.flags, self._healthy())]
        shown = self._objects
        for item in shown[:OBJECTS]:
            lines += text.wrap("", words.middle(item.item.name, 60) + _about(item))
            rows = _rows(item)
            if len(rows) > 1 or item.item.kind == "module":
                lines += table.columns(rows, _HEAD, (4,), indent=4)[1:]
        if len(shown) > OBJECTS:
            lines.append(f"  and {words.count(len(shown) - OBJECTS, 'more object')}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same, with every tensor on a click."""
        parts: list[str] = [observed.heading(self._title())]
        parts += flags.to_html(self.flags, self._healthy())
        shown = self._objects
        for item in shown[:OBJECTS]:
            parts.append(html.line(html.tag("b", words.middle(item.item.name, 60)), _about(item)))
            rows = [(html.name(first), *rest) for first, *rest in _rows(item)]
            if len(rows) > 1 or item.item.kind == "module":
                parts.append(html.table(rows, _HEAD))
        if len(shown) > OBJECTS:
            parts.append(html.line(f"and {words.count(len(shown) - OBJECTS, 'more object')}"))
        if shown:
            parts.append(_every_tensor(shown))
        return html.view(*parts)

    def to_frame(self) -> Any:
        """A pandas DataFrame with one row for each tensor of each rank."""
        columns = ("rank", "object", "kind", "wrapper", *TensorPlacement.__dataclass_fields__)
        rows = [
            {"rank": p.rank, "object": o.name, "kind": o.kind, "wrapper": o.wrapper}
            | {field: getattr(t, field) for field in TensorPlacement.__dataclass_fields__}
            for p in self._placements
            for o in p.objects
            for t in o.tensors
        ]
        return observed.frame(rows, columns)

    def _title(self) -> str:
        title = observed.title("placement", self.snapshot, len(self.snapshot.placement))
        gpus = max((sum(a.simulated for a in p.accelerators) for p in self._placements), default=0)
        return f"{title} · {words.count(gpus, 'simulated GPU')}" if gpus else title

    def _healthy(self) -> str:
        objects = self._objects
        if not objects:
            return "no rank holds a module, an optimizer or a tensor in its variables"
        devices = observed.listing(sorted({d for item in objects for d in item.devices}))
        return f"{words.count(len(objects), 'object')} on {devices}, nothing odd"


def _merge(placements: Iterable[RankPlacement]) -> list[_Shown]:
    held: dict[PlacedObject, list[tuple[int, PlacedObject]]] = {}
    names: dict[str, int] = {}
    for placement in placements:
        for item in placement.objects:
            names.setdefault(item.name, len(names))
            held.setdefault(_on_its_gpu(item), []).append((placement.rank, item))
    shown = [
        _Shown(
            members[0][1],
            tuple(rank for rank, _ in members),
            tuple(dict.fromkeys(d for _, item in members for d in _devices(item))),
        )
        for members in held.values()
    ]
    return sorted(shown, key=lambda item: (names[item.item.name], item.ranks))


def _devices(item: PlacedObject) -> list[str]:
    return list(dict.fromkeys(tensor.device for tensor in item.tensors))


def _on_its_gpu(item: PlacedObject) -> PlacedObject:
    """The object without the number of its GPU, if it is all on one: ranks differ in that."""
    devices = _devices(item)
    numbered = {device for device in devices if ":" in device}
    if len(numbered) != 1:
        return item
    (device,) = numbered
    kind = device.partition(":")[0]
    tensors = tuple(replace(t, device=kind) if t.device == device else t for t in item.tensors)
    return replace(item, tensors=tensors)


def _about(shown: _Shown) -> str:
    """`` · Net in DDP · ranks 0-3 · cpu · 1.2 MB``."""
    item = shown.item
    what = [words.middle(item.type, 60)] if item.type else []
    if item.wrapper:
        what = [f"{words.middle(item.type, 60)} in {_WRAPPERS.get(item.wrapper, item.wrapper)}"]
    if item.also:
        what.append(f"also {observed.listing(item.also)}")
    if item.kind != "module" and len(item.tensors) == 1:
        what.append(_tensor(item.tensors[0]))
    elif item.kind == "optimizer" and not item.tensors:
        what.append("no state yet")
    devices = [observed.listing(shown.devices, 8)] if shown.devices else []
    size = words.size(item.bytes) + (" each" if len(shown.ranks) > 1 else "")
    return "".join(f" · {part}" for part in (*what, words.ranks(shown.ranks), *devices, size))


def _rows(shown: _Shown) -> list[tuple[str, ...]]:
    """One row for each module, or for the upper modules of a deep model."""
    item = shown.item
    rows = [_row(name, tensors, shown) for name, tensors in _parts(item)]
    if len(rows) > ROWS:
        rows = [*rows[: ROWS - 1], (f"and {len(rows) - ROWS + 1} more", "", "", "", "")]
    if item.tensors_left_out:
        rows.append((f"and {words.count(item.tensors_left_out, 'tensor')} not listed", *[""] * 4))
    return rows


def _parts(item: PlacedObject) -> list[tuple[str, list[TensorPlacement]]]:
    if item.kind == "tensor":
        return group(item.tensors, lambda t: t.name)
    if item.kind == "optimizer":
        return group(item.tensors, lambda t: t.name.rpartition(".")[2])
    parts: list[tuple[str, list[TensorPlacement]]] = []
    deepest = max((t.module.count(".") + 1 for t in item.tensors), default=1)
    for depth in range(deepest, 0, -1):
        parts = group(item.tensors, functools.partial(_upper, depth))
        if len(parts) <= ROWS:
            break
    return parts


def _upper(depth: int, tensor: TensorPlacement) -> str:
    module = tensor.module
    if tensor.role == "attribute" and not module:
        return tensor.name
    return ".".join(module.split(".")[:depth]) or "(itself)"


def _row(name: str, tensors: list[TensorPlacement], shown: _Shown) -> tuple[str, ...]:
    mine = _devices(shown.item)
    one_gpu_each = len(shown.devices) > len(mine)
    devices = dict.fromkeys(
        t.device.partition(":")[0] if one_gpu_each else t.device for t in tensors
    )
    if len(tensors) == 1:
        what = _shape(tensors[0]) if tensors[0].role == "tensor" else f"1 {tensors[0].role}"
    else:
        roles = Counter(t.role for t in tensors)
        what = ", ".join(words.count(n, role) for role, n in roles.items())
    spread = dict.fromkeys(f"{t.placements} on {t.mesh}" for t in tensors if t.placements)
    if spread:
        what += f", {observed.listing(spread, 2)}"
    dtypes = observed.listing((t.dtype for t in tensors), 3)
    return (
        name,
        observed.listing(devices, 3),
        dtypes,
        what,
        words.size(sum(t.bytes for t in tensors)),
    )


def _shape(tensor: TensorPlacement) -> str:
    whole = "×".join(map(str, tensor.shape)) or "scalar"
    if tensor.local_shape is None or tensor.local_shape == tensor.shape:
        return whole
    return f"{'×'.join(map(str, tensor.local_shape))} of {whole}"


def _tensor(tensor: TensorPlacement) -> str:
    return f"{_shape(tensor)} {words.middle(tensor.dtype, 40)}"


def _every_tensor(shown: Sequence[_Shown]) -> Markup:
    rows: list[tuple[str, ...]] = [
        (
            html.name(
                f"{s.item.name}{'' if t.name.startswith('[') or not t.name else '.'}{t.name}"
            ),
            words.rank_list(s.ranks),
            t.role,
            t.device,
            t.dtype,
            _shape(t),
            words.size(t.bytes),
            f"{t.placements} on {t.mesh}" if t.placements else "",
        )
        for s in shown
        for t in s.item.tensors
    ]
    total = len(rows)
    if total > TENSORS:
        rows = [*rows[:TENSORS], (f"and {total - TENSORS:,} more: to_frame()", *[""] * 7)]
    head = ("tensor", "ranks", "role", "device", "type", "shape", "bytes", "spread")
    return html.details(f"every tensor ({total:,})", html.table(rows, head))
