"""Fingerprints of all values on which ranks should agree, and comparison of two values."""

from __future__ import annotations

import functools
import random
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parameter import UninitializedTensorMixin

from ...model.parity import ParityItem, ParityRole, RankParity, ValueDifference
from ..frameworks import registered as frameworks
from . import training
from .fingerprints import fingerprint, has_content, shape_text, sketch
from .objects import (
    FLATTENING,
    IN_FRAMEWORK,
    Objects,
    find,
    has_whole_parameters,
    is_dtensor,
    local,
    optimizer_settings,
    optimizer_state,
    unwrap,
    value_text,
)

_MAX_ITEMS = 20_000
#: The most tensors that a running rank reads, 10 to 20 µs each, and the most bytes of a tensor that
#: it reads whole.
_MAX_SAMPLED, _READ_WHOLE_BYTES = 2_000, 1 << 16
#: Elements that are compared at once; 512 KiB in float64 stay in a processor's cache.
_ELEMENTS_AT_ONCE = 1 << 16


@dataclass(frozen=True, slots=True)
class _Item:
    name: str
    role: ParityRole
    value: Any  # a tensor, or the text of a setting
    part: str = ""  # what a framework says of it


def observe(
    rank: int,
    namespace: Mapping[str, Any],
    names: list[str] | None = None,
    share: Mapping[str, str] | None = None,
    against: Mapping[str, str] | None = None,
    reference: int = 0,
    *,
    sampled: bool = False,
) -> RankParity:
    """The fingerprints of this rank, or differences from another one.

    Parameters
    ----------
    rank
        Global rank.
    namespace, names
        The variables, and which of them to describe.
    share
        Write the tensors of these items to these files, for other ranks to compare with.
    against
        Compare the tensors of these items with those files, which rank ``reference`` has written.
    sampled
        See `RankParity.sampled`: takes milliseconds, and does not wait for a GPU.
    """
    found = find(namespace, names)
    items_of = functools.partial(_all_items, found, namespace, names)
    if share is not None:
        for item in items_of():
            if item.name in share:
                _bytes_of(item.value).tofile(share[item.name])
        return RankParity(rank=rank)
    if against is not None:
        compared = [i for i in items_of() if i.name in against]
        differences = tuple(_difference(i, reference, against[i.name]) for i in compared)
        return RankParity(rank=rank, differences=differences)
    items: list[ParityItem] = []
    unread = read = 0
    for item in _items(found, sampled=True) if sampled else items_of():
        if len(items) == _MAX_ITEMS:
            break
        if sampled and isinstance(item.value, torch.Tensor):
            described = _sampled(item) if read < _MAX_SAMPLED else []
            items += described
            read += len(described)
            unread += not described
        elif isinstance(item.value, torch.Tensor):
            items += _described(item)
        else:
            items.append(
                ParityItem(name=item.name, role=item.role, value=item.value, part=item.part)
            )
    kinds = {name: unwrap(module)[1] for name, module in found.modules.items()}
    modules = found.modules.items()
    return RankParity(
        rank=rank,
        sampled=sampled,
        unread=unread,
        items=tuple(items),
        divided=tuple(
            name
            for name, optimizer in found.optimizers.items()
            if type(optimizer).__name__ == "ZeroRedundancyOptimizer"
        ),
        joined=tuple(name for name, module in modules if training.RECORD.joined(module)),
        wrapped=tuple(name for name, wrapper in kinds.items() if wrapper),
        synchronized_buffers=tuple(
            name
            for name, module in modules
            if isinstance(module, DistributedDataParallel) and module.broadcast_buffers
        ),
    )


def _all_items(
    found: Objects, namespace: Mapping[str, Any], names: list[str] | None
) -> Iterator[_Item]:
    yield from _items(found)
    for name, role, value in IN_FRAMEWORK.values(namespace, names):
        yield _Item(name, role, value)


def _items(found: Objects, *, sampled: bool = False) -> Iterator[_Item]:
    flattened: set[int] = set()
    parts: dict[int, str] = {}
    for root, module in found.modules.items():
        inner, wrapper = unwrap(module)
        yield _Item(f"{root}.training", "setting", str(inner.training))
        if wrapper in FLATTENING:  # each rank holds another part of the optimizer's state
            flattened.update(map(id, inner.parameters()))
        if wrapper not in FLATTENING or has_whole_parameters(inner, wrapper):
            own = frameworks.parts(inner)
            parts |= own
            gradients = not sampled and wrapper not in FLATTENING
            yield from _tensors_of(root, inner, own, gradients=gradients)
    names = found.parameter_names()
    for root, optimizer in found.optimizers.items():
        for name, text in optimizer_settings(optimizer, on_gpu=not sampled):
            yield _Item(f"{root}.{name}", "setting", text)
        for name, value, parameter in optimizer_state(optimizer, names):
            if id(parameter) in flattened or (flattened and id(parameter) not in names):
                continue
            if isinstance(value, (torch.Tensor, int, float)):
                tensor = isinstance(value, torch.Tensor)
                held = value if tensor else value_text(value)
                yield _Item(f"{root}.state.{name}", "state", held, parts.get(id(parameter), ""))
    if not sampled:
        yield from _random_states()


def _tensors_of(
    root: str, module: nn.Module, parts: Mapping[int, str], *, gradients: bool
) -> Iterator[_Item]:
    for name, parameter in module.named_parameters():
        yield _Item(f"{root}.{name}", "parameter", parameter, parts.get(id(parameter), ""))
    for name, buffer in module.named_buffers():
        yield _Item(f"{root}.{name}", "buffer", buffer, parts.get(id(buffer), ""))
    for name, parameter in module.named_parameters() if gradients else ():
        if parameter.grad is not None:
            part = parts.get(id(parameter), "")
            yield _Item(f"{root}.{name}.grad", "gradient", parameter.grad, part)


def _random_states() -> Iterator[_Item]:
    states = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "python": repr(random.getstate()).encode(),
    }
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        _, keys, position, *_ = numpy.random.get_state()
        states["numpy"] = keys.tobytes() + bytes(str(position), "ascii")
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state().numpy().tobytes()
    for name, state in states.items():
        yield _Item(f"{name} random state", "random", f"{zlib.crc32(state):08x}")


def _described(item: _Item) -> list[ParityItem]:
    """A tensor as an item; empty if ranks cannot compare its content."""
    if isinstance(item.value, UninitializedTensorMixin):
        return []
    part = item.part or _part(item.value)
    tensor = local(item.value)
    if part is None or not has_content(tensor):
        return []
    dtype = str(tensor.dtype).removeprefix("torch.")
    value = value_text(tensor) if not tensor.ndim else f"{fingerprint(tensor):016x}"
    described = ParityItem(
        name=item.name,
        role=item.role,
        value=value,
        kind=f"{dtype} {shape_text(tensor)}",
        part=part,
        not_finite=_not_finite(tensor),
    )
    return [described]


def _sampled(item: _Item) -> list[ParityItem]:
    """A tensor as an item, by some of its elements; empty if it cannot be read at once."""
    if isinstance(item.value, UninitializedTensorMixin):
        return []
    tensor, part = local(item.value), item.part or _part(item.value)
    # a subclass may wait for a collective when its content is read
    if type(tensor) is not torch.Tensor or part is None or not tensor.is_cpu:
        return []
    if not has_content(tensor):
        return []
    small = tensor.numel() * tensor.element_size() <= _READ_WHOLE_BYTES
    value = f"{fingerprint(tensor):016x}" if small else f"{sketch(tensor):08x}"
    described = ParityItem(
        name=item.name,
        role=item.role,
        value=value if tensor.ndim else value_text(tensor),
        kind=f"{str(tensor.dtype).removeprefix('torch.')} {shape_text(tensor)}",
        part=part,
        not_finite=_not_finite(tensor) if small else "",
    )
    return [described]


def _not_finite(tensor: torch.Tensor) -> str:
    """``"nan"`` or ``"inf"`` if there is such an element, else empty."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return ""
    values = tensor.detach()
    if values.element_size() == 1:  # float8 has hardly any operations
        values = values.float()
    if values.sum().isfinite():  # one pass over the elements: all terms of a finite sum are finite
        return ""
    if values.isnan().any():
        return "nan"
    return "inf" if values.isinf().any() else ""


def _part(tensor: Any) -> str | None:
    """Which part of a sharded tensor this is; None for a partial sum, which no rank has whole."""
    if not is_dtensor(tensor):
        return ""
    if any(placement.is_partial() for placement in tensor.placements):
        return None
    at = tensor.device_mesh.get_coordinate() or []
    sharded = [
        f"{dim}:{coordinate}"
        for dim, (coordinate, placement) in enumerate(zip(at, tensor.placements, strict=False))
        if not placement.is_replicate()
    ]
    return ", ".join(sharded)


def _bytes_of(tensor: torch.Tensor) -> Any:
    flat = local(tensor).cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()


def _difference(item: _Item, reference: int, path: str) -> ValueDifference:
    """How a tensor differs from the one in a file of another rank."""
    mine = local(item.value).cpu().contiguous()
    flat = mine.reshape(-1)
    stored = np.memmap(path, dtype=np.uint8, mode="c")
    theirs = torch.from_numpy(stored).view(mine.dtype)
    first, count, largest = -1, 0, 0.0
    comparable = True
    for start in range(0, flat.numel(), _ELEMENTS_AT_ONCE):
        a, b = flat[start : start + _ELEMENTS_AT_ONCE], theirs[start : start + _ELEMENTS_AT_ONCE]
        wide = torch.complex128 if a.is_complex() else torch.float64
        if torch.equal(a, b):
            continue
        a, b = a.to(wide), b.to(wide)
        differs = (a != b) & ~(a.isnan() & b.isnan())
        here = int(differs.sum())
        if not here:
            continue
        if first < 0:
            first = start + int(differs.nonzero()[0])
        count += here
        distance = (a - b)[differs].abs()
        comparable = comparable and bool(distance.isfinite().all())
        largest = max(largest, float(distance.nan_to_num(0, 0, 0).max()))
    return ValueDifference(
        name=item.name,
        reference=reference,
        first=tuple(map(int, np.unravel_index(first, mine.shape))) if first >= 0 else (),
        here=value_text(flat[first]) if first >= 0 else "",
        there=value_text(theirs[first]) if first >= 0 else "",
        largest=largest if comparable else None,
        count=count,
        elements=flat.numel(),
    )
