"""The devices of modules, optimizers and batches, rank by rank."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..diagnosis.communication import hold_parts, may_be_averaged
from ..formatting import rank_list
from ..model import Snapshot
from ..model.collective import shape_label
from ..model.frameworks import meets_by_tensor
from ..model.partition import ModelShard
from ..model.placement import PlacedObject, RankPlacement, TensorPlacement
from . import html, safe, shards, sparklines, terminal, words
from .flags import Flag, ordered
from .html import Markup
from .run_view import RunView, chosen
from .source_positions import group
from .traffic import BAR

#: Rows for one object; a deeper model is summarised by its upper modules.
ROWS = 12
#: Objects that are shown, and tensors in the list of all of them.
OBJECTS = 20
#: Objects whose shards are drawn.
SHARDED = 8
TENSORS = 200
#: With more devices than this, the grid of ranks and devices has their numbers and no sizes.
_NAMED_DEVICES = 6

#: The number of a layer in the name of a tensor.
_LAYER = re.compile(r"(?<=[.\[])([0-9]{1,9})(?=[.\]])")

_WRAPPERS = {"DTensor": "DTensor shards"}
_HEAD = ("part", "device", "type", "tensors", "bytes")
#: Roles of the tensors that make up a model.
_MODEL = ("parameter", "buffer")


@dataclass(frozen=True, slots=True)
class _Shown:
    """An object that is the same on these ranks, but for the number of the GPU."""

    item: PlacedObject
    ranks: tuple[int, ...]
    devices: tuple[str, ...]


class PlacementView(RunView):
    """Device, type and size of what each rank holds; equal ranks once.

    Parameters
    ----------
    snapshot
        With its ``placement``; its ``partition`` has the shards of models.
    names
        Variables to show; default: all.
    asked_now
        Whether the ranks were asked at their prompt, and not at the end of the cell.
    """

    __slots__ = ("_objects", "_placements", "_shards")

    name = "placement"
    columns = ("rank", "object", "kind", "wrapper", *TensorPlacement.__dataclass_fields__)

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, asked_now: bool = False
    ) -> None:
        super().__init__(snapshot, asked_now=asked_now)
        self._placements = [
            replace(placement, objects=tuple(chosen(placement.objects, names)))
            for placement in snapshot.placement
        ]
        self._objects = _merge(self._placements)
        held = {rank: chosen(own, names) for rank, own in snapshot.shards.items()}
        self._shards = shards.by_object(held)
        parts = functools.cache(functools.partial(hold_parts, snapshot.ranks))
        averaged = functools.cache(functools.partial(may_be_averaged, snapshot.ranks))
        trained = {one.rank for one in snapshot.training if one.backwards}
        trained -= {report.rank for report in snapshot.ranks if report.error is not None}
        divided = frozenset(name for name, own in self._shards.items() if _has_mesh(own))
        exchange = _Exchange(parts, averaged, meets_by_tensor(snapshot.framework))
        self.flags = _find_flags(self._placements, exchange, trained, snapshot.hosts, divided)

    def _text(self) -> list[str]:
        head, *rows = _grid(self._placements) or [()]
        lines = terminal.columns(rows, head, indent=2) if rows else []
        lines += terminal.wrap("", f"bytes on each device · {BAR}") if rows else []
        shown = self._objects
        for item in shown[:OBJECTS]:
            lines += terminal.wrap("", safe.middle(item.item.name, 60) + _about(item))
            rows = _rows(item)
            if len(rows) > 1 or item.item.kind == "module":
                lines += terminal.columns(rows, _HEAD, (4,), indent=4)[1:]
        if len(shown) > OBJECTS:
            lines.append(f"  and {words.count(len(shown) - OBJECTS, 'more object')}")
        for name, by_rank in [*self._shards.items()][:SHARDED]:
            lines += shards.to_text(name, by_rank)
        if len(self._shards) > SHARDED:
            lines.append(f"  and {words.count(len(self._shards) - SHARDED, 'more sharded object')}")
        return lines

    def _html(self) -> list[Markup]:
        parts: list[Markup] = []
        if grid := _grid(self._placements):
            parts += [html.table(grid[1:], grid[0]), html.line(f"bytes on each device · {BAR}")]
        shown = self._objects
        for item in shown[:OBJECTS]:
            parts.append(html.line(html.tag("b", safe.middle(item.item.name, 60)), _about(item)))
            rows = [(html.name(first), *rest) for first, *rest in _rows(item)]
            if len(rows) > 1 or item.item.kind == "module":
                parts.append(html.table(rows, _HEAD))
        if len(shown) > OBJECTS:
            parts.append(html.line(f"and {words.count(len(shown) - OBJECTS, 'more object')}"))
        for name, by_rank in [*self._shards.items()][:SHARDED]:
            parts += shards.to_html(name, by_rank)
        if len(self._shards) > SHARDED:
            more = words.count(len(self._shards) - SHARDED, "more sharded object")
            parts.append(html.line(f"and {more}"))
        if shown:
            parts.append(_every_tensor(shown))
        return parts

    def to_frame(self) -> Any:
        """One row for each tensor of each rank, as a pandas DataFrame.

        - ``rank``: global rank
        - ``object``: variable that holds the tensor, such as ``"trainer.model"``
        - ``kind``: ``"module"``, ``"optimizer"`` or ``"tensor"``: what the variable is
        - ``wrapper``: what spreads a module over the ranks, such as ``"DDP"``; else empty
        - ``name``: of the tensor within the object; empty if the variable is the tensor itself
        - ``role``: ``"parameter"``, ``"buffer"``, ``"attribute"`` (of a module, not registered),
          ``"state"`` (of an optimizer) or ``"tensor"``
        - ``device``, ``dtype``: such as ``"cuda:0"`` and ``"float32"``
        - ``shape``: of the whole tensor
        - ``bytes``: size of what this rank holds, in bytes
        - ``requires_grad``: whether autograd records operations on it
        - ``placements``, ``mesh``: of a DTensor, such as ``"Shard(0)"`` and ``"dp=2"``; else empty
        - ``local_shape``: shape of the part of a DTensor that this rank holds; else None
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        return [
            {"rank": p.rank, "object": o.name, "kind": o.kind, "wrapper": o.wrapper}
            | {field: getattr(t, field) for field in TensorPlacement.__dataclass_fields__}
            for p in self._placements
            for o in p.objects
            for t in o.tensors
        ]

    def _ranks(self) -> int:
        return len(self.snapshot.placement or self.snapshot.partition)

    def _title(self) -> str:
        title = super()._title()
        gpus = max((sum(a.simulated for a in p.accelerators) for p in self._placements), default=0)
        return f"{title} · {words.count(gpus, 'simulated GPU')}" if gpus else title

    def _healthy(self) -> str:
        objects = self._objects
        if not self.snapshot.placement and self._shards:
            what = words.count(len(self._shards), "sharded object")
            session = self.snapshot.origin == "session"
            return f"{what}; devices are recorded in a run with %%ddt_debug" if session else what
        if not objects:
            return "no rank holds a module, an optimizer or a tensor in its variables"
        devices = safe.listing(sorted({d for item in objects for d in item.devices}))
        return f"{words.count(len(objects), 'object')} on {devices}, nothing odd"


def _has_mesh(held: Mapping[int, ModelShard]) -> bool:
    return all(one.mesh for one in held.values())


def _grid(placements: Sequence[RankPlacement]) -> list[tuple[str, ...]]:
    """How much each rank holds on each device, with a head; empty if there is only one device.

    The signs grow with the bytes. A device that no rank uses has a column, too.
    """
    held = {p.rank: Counter[str]() for p in placements if p.objects}
    for placement in placements:
        for item in placement.objects:
            for tensor in item.tensors:
                held[placement.rank][tensor.device] += tensor.bytes
    devices = {device for sizes in held.values() for device in sizes}
    devices |= {a.device for p in placements for a in p.accelerators}
    largest = max((size for sizes in held.values() for size in sizes.values()), default=0)
    if len(devices) < 2 or not largest:
        return []
    shown = sorted(devices, key=lambda d: (d != "cpu", d.partition(":")[0], len(d), d))
    wordy = len(shown) <= _NAMED_DEVICES
    names = [safe.middle(d, 20) if wordy or ":" not in d else d.rpartition(":")[2] for d in shown]

    def cell(size: int) -> str:
        if not size:
            return "·"
        sign = sparklines.level(size / largest)
        return f"{sign} {words.size(size)}" if wordy else sign

    rows = {rank: tuple(cell(sizes[device]) for device in shown) for rank, sizes in held.items()}
    alike = group(rows, lambda rank: rows[rank])
    grid = [(words.ranks_cell(ranks), *cells) for cells, ranks in alike[:ROWS]]
    if len(alike) > ROWS:
        rest = words.count(sum(len(ranks) for _, ranks in alike[ROWS:]), "more rank")
        grid.append((f"and {rest}", *[""] * len(shown)))
    return [("rank", *names), *grid]


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
    """The object without its GPU's number, in which ranks differ, if it uses only one GPU."""
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
    what = [safe.middle(item.type, 60)] if item.type else []
    if item.wrapper:
        what = [f"{safe.middle(item.type, 60)} in {_WRAPPERS.get(item.wrapper, item.wrapper)}"]
    if item.also:
        what.append(f"also {safe.listing(item.also)}")
    if item.kind != "module" and len(item.tensors) == 1:
        what.append(_tensor(item.tensors[0]))
    elif item.kind == "optimizer" and not item.tensors:
        what.append("no state yet")
    devices = [safe.listing(shown.devices, 8)] if shown.devices else []
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
        what += f", {safe.listing(spread, 2, '; ')}"
    dtypes = safe.listing((t.dtype for t in tensors), 3)
    return (
        name,
        safe.listing(devices, 3),
        dtypes,
        what,
        words.size(sum(t.bytes for t in tensors)),
    )


def _shape(tensor: TensorPlacement) -> str:
    whole = shape_label(tensor.shape)
    if tensor.local_shape is None or tensor.local_shape == tensor.shape:
        return whole
    return f"{'×'.join(map(str, tensor.local_shape))} of {whole}"


def _tensor(tensor: TensorPlacement) -> str:
    return f"{_shape(tensor)} {safe.middle(tensor.dtype, 40)}"


def _every_tensor(shown: Sequence[_Shown]) -> Markup:
    """The list of all tensors; those that differ only in the number of their layer share a row."""
    rows = [
        (
            f"{s.item.name}{'' if t.name.startswith('[') or not t.name else '.'}{t.name}",
            words.ranks_cell(s.ranks),
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
    alike = group(rows, lambda row: (*_parted(row[0])[::2], *row[1:]))
    listed: list[tuple[str, ...]] = [
        (html.name(_numbered([row[0] for row in same])), str(len(same)), *same[0][1:])
        for _, same in alike[:TENSORS]
    ]
    if len(alike) > TENSORS:
        rest = sum(len(same) for _, same in alike[TENSORS:])
        listed.append((f"and {rest:,} more: to_frame()", *[""] * 8))
    head = ("tensor", "number", "ranks", "role", "device", "type", "shape", "bytes", "spread")
    return html.details(f"every tensor ({len(rows):,})", html.table(listed, head, long=True))


def _parted(name: str) -> tuple[str, str, str]:
    """A name before the number of its layer, the number, and the rest."""
    before, number, after = [*_LAYER.split(name, maxsplit=1), "", ""][:3]
    return before, number, after


def _numbered(names: Sequence[str]) -> str:
    """One name for names that differ in the number of the layer: ``layers.0-11.weight``."""
    before, number, after = _parted(names[0])
    if len(names) > 1:
        number = rank_list(int(_parted(name)[1]) for name in names).replace(", ", ",")
    return f"{before}{number}{after}"


def _find_flags(
    placements: Sequence[RankPlacement],
    exchange: _Exchange,
    trained: Collection[int],
    hosts: Mapping[int, str],
    divided: Collection[str],
) -> list[Flag]:
    """Flags for what is unusual, the most severe first; equal flags of several ranks are merged.

    Parameters
    ----------
    exchange
        What the ranks may have sent one another.
    trained
        The ranks that made a backward pass without a failure: their batches were on the right
        device, and other tensors, such as a dataset, may be anywhere.
    divided
        Modules that are divided along the axes of a mesh.
    """
    found: dict[tuple[str, str], list[int]] = {}
    for placement in placements:
        flags_of_rank = _of_rank(placement, exchange if len(placements) > 1 else None, divided)
        if placement.rank not in trained:
            flags_of_rank += _apart(placement.objects)
        for flag in flags_of_rank:
            found.setdefault(flag, []).append(placement.rank)
    everywhere = len(placements)
    flags = [
        Flag(kind, text if len(ranks) == everywhere else f"{words.ranks(ranks)}: {text}")  # type: ignore[arg-type]
        for (kind, text), ranks in found.items()
    ]
    return ordered([*flags, *_accelerators(placements, hosts)])


def _of_rank(
    placement: RankPlacement,
    exchange: _Exchange | None,
    divided: Collection[str],
) -> list[tuple[str, str]]:
    found = []
    for item in placement.objects:
        if item.kind == "module":
            found += _mixed_devices(item)
            found += _unregistered(item)
            if (
                exchange is not None
                and item.stepped_alone
                and not (item.wrapper or item.name in divided)
            ):
                found += _not_wrapped(item, exchange)
    if placement.unreadable:
        text = (
            f"{safe.listing(placement.unreadable)} could not be inspected: it raised an exception"
        )
        found.append(("hint", text))
    if placement.objects_left_out:
        more = words.count(placement.objects_left_out, "more object")
        found.append(("hint", f"{more} not shown: name those that you want to see"))
    return found


def _mixed_devices(item: PlacedObject) -> list[tuple[str, str]]:
    model = [t for t in item.tensors if t.role in _MODEL]
    for module, members in group(model, lambda t: t.module):
        devices = {t.device for t in members}
        if len(devices) > 1:
            name = f"{item.name}.{module}" if module else item.name
            where = safe.listing(f"{t.name.rpartition('.')[2]} on {t.device}" for t in members[:4])
            return [("error", f"{name} has its tensors on different devices: {where}")]
    devices = {t.device for t in model}
    if "meta" in devices:
        count = sum(t.device == "meta" for t in model)
        text = f"{words.count(count, 'tensor')} of {item.name} on the meta device"
        return [("error", f"{text} have no values yet: call to_empty() and initialise them")]
    if "cpu" in devices and len(devices) > 1:
        on_cpu = safe.listing(t.name for t in model if t.device == "cpu")
        others = ", ".join(sorted(devices - {"cpu"}))
        return [("error", f"{item.name} is on {others}, but {on_cpu} stayed on cpu")]
    if len(devices) > 1:
        return [("hint", f"{item.name} is spread over {', '.join(sorted(devices))}")]
    return []


def _unregistered(item: PlacedObject) -> list[tuple[str, str]]:
    found = []
    for tensor in item.tensors:
        if tensor.role == "attribute":
            what = "a parameter" if tensor.requires_grad else "neither parameter nor buffer"
            advice = "nn.Parameter" if tensor.requires_grad else "register_buffer"
            if tensor.requires_grad:
                what = "a tensor that requires a gradient, but not a parameter"
            text = (
                f"{item.name}.{tensor.name} is {what}: .to(device) does not move it, "
                f"state_dict() and DDP leave it out; use {advice}"
            )
            found.append(("warning", text))
    if item.loose_modules:
        modules = safe.listing(item.loose_modules)
        text = (
            f"{item.name} keeps modules in a plain list or dict ({modules}): their parameters are "
            "neither moved nor trained nor synchronised; use nn.ModuleList or nn.ModuleDict"
        )
        found.append(("warning", text))
    return found


@dataclass(frozen=True, slots=True)
class _Exchange:
    """What the ranks may have sent one another.

    Attributes
    ----------
    parts
        Whether the ranks may hold different parts of a model whose parameters have these shapes.
    averaged
        Whether they may have averaged the gradients or the parameters of such a model.
    by_tensor
        Whether a framework averages each gradient by its name, and so needs no wrapper.
    """

    parts: Callable[[tuple[str, ...]], bool]
    averaged: Callable[[tuple[str, ...]], bool]
    by_tensor: bool = False


def _not_wrapped(item: PlacedObject, exchange: _Exchange) -> list[tuple[str, str]]:
    text = f"{item.name} is trained but not wrapped in DDP or FSDP: "
    parameters = (tensor for tensor in item.tensors if tensor.role == "parameter")
    shapes = tuple(shape_label(one.shape) for one in parameters)
    if exchange.parts(shapes):
        text += "each rank trains its own; they exchange activations, as parts of one model do"
        return [("hint", text)]
    if exchange.averaged(shapes):
        if exchange.by_tensor:
            return []
        text += "the ranks exchange tensors as large as its parameters, as a program does that "
        return [("hint", f"{text}averages the gradients itself")]
    text += "each rank trains a copy of its own, unless the program averages the gradients itself"
    return [("warning", text)]


def _apart(objects: Sequence[PlacedObject]) -> list[tuple[str, str]]:
    """A hint about batches on another device than the only one that models are on."""
    devices = {
        t.device for o in objects if o.kind == "module" for t in o.tensors if t.role in _MODEL
    }
    if len(devices) != 1 or devices == {"cpu"}:
        return []
    (device,) = devices
    apart = [o.name for o in objects if o.kind == "tensor" if _elsewhere(o.tensors, device)]
    if not apart:
        return []
    verb = "is" if len(apart) == 1 else "are"
    return [("hint", f"the model is on {device}, but {safe.listing(apart)} {verb} not")]


def _elsewhere(tensors: Sequence[TensorPlacement], device: str) -> bool:
    return any(t.device != device for t in tensors)


def _accelerators(placements: Sequence[RankPlacement], hosts: Mapping[int, str]) -> list[Flag]:
    """Ranks that share a GPU, and GPUs that nobody uses."""
    users: dict[tuple[str, str], list[int]] = {}
    labels: dict[tuple[str, str], str] = {}
    for placement in placements:
        host = hosts.get(placement.rank, "")
        where = f" on {safe.one_line(host, 60)}" if host else ""
        used = {t.device for o in placement.objects for t in o.tensors}
        for accelerator in placement.accelerators:
            gpu = host, accelerator.identity
            labels[gpu] = f"{accelerator.device}{where}"
            members = users.setdefault(gpu, [])
            if accelerator.device in used:
                members.append(placement.rank)
    found = []
    for gpu, ranks in users.items():
        if len(ranks) > 1:
            text = (
                f"{words.ranks(ranks)} share one GPU ({labels[gpu]}): give each rank its own "
                "with torch.cuda.set_device(local_rank)"
            )
            found.append(Flag("warning", text))
    idle = [labels[gpu] for gpu, ranks in users.items() if not ranks]
    # what a function held is gone when it has returned, so no variable may be left on any GPU
    if idle and any(one.kind == "module" for placement in placements for one in placement.objects):
        verb, them = ("is", "it") if len(idle) == 1 else ("are", "them")
        text = f"{safe.listing(idle)} {verb} there, but no rank uses {them}"
        found.append(Flag("hint", text))
    return found
