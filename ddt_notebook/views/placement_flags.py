"""What is odd about where tensors live."""

from __future__ import annotations

from collections.abc import Sequence

from ..model.placement import PlacedObject, RankPlacement, TensorPlacement
from . import words
from .flags import Flag, ordered
from .observed import listing
from .places import group

_MODEL = ("parameter", "buffer")


def flags(placements: Sequence[RankPlacement]) -> list[Flag]:
    """All that is odd, the gravest first; the same oddity of several ranks once."""
    found: dict[tuple[str, str], list[int]] = {}
    for placement in placements:
        for flag in _of_rank(placement, len(placements)):
            found.setdefault(flag, []).append(placement.rank)
    everywhere = len(placements)
    told = [
        Flag(kind, text if len(ranks) == everywhere else f"{words.ranks(ranks)}: {text}")  # type: ignore[arg-type]
        for (kind, text), ranks in found.items()
    ]
    return ordered([*told, *_accelerators(placements)])


def _of_rank(placement: RankPlacement, world_size: int) -> list[tuple[str, str]]:
    found = []
    for item in placement.objects:
        if item.kind == "module":
            found += _mixed_devices(item)
            found += _unregistered(item)
            if world_size > 1 and item.stepped_alone and not item.wrapper:
                found.append(_not_wrapped(item))
    found += _apart(placement.objects)
    if placement.unreadable:
        text = f"{listing(placement.unreadable)} could not be looked at: it raised an exception"
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
            where = listing(f"{t.name.rpartition('.')[2]} on {t.device}" for t in members[:4])
            return [("error", f"{name} has its tensors on different devices: {where}")]
    devices = {t.device for t in model}
    if "meta" in devices:
        count = sum(t.device == "meta" for t in model)
        text = f"{words.count(count, 'tensor')} of {item.name} on the meta device"
        return [("error", f"{text} have no values yet: call to_empty() and initialise them")]
    if "cpu" in devices and len(devices) > 1:
        on_cpu = listing(t.name for t in model if t.device == "cpu")
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
                what = "a tensor that wants a gradient, but no parameter"
            text = (
                f"{item.name}.{tensor.name} is {what}: .to(device) does not move it, "
                f"state_dict() and DDP do not know it; use {advice}"
            )
            found.append(("warning", text))
    if item.loose_modules:
        text = (
            f"{item.name} keeps modules in a plain list or dict ({listing(item.loose_modules)}): "
            "their parameters are neither moved nor trained nor synchronised; use nn.ModuleList "
            "or nn.ModuleDict"
        )
        found.append(("warning", text))
    return found


def _not_wrapped(item: PlacedObject) -> tuple[str, str]:
    text = (
        f"{item.name} is trained but not wrapped in DDP or FSDP: each rank trains a copy of its "
        "own, unless the cell averages the gradients itself"
    )
    return ("warning", text)


def _apart(objects: Sequence[PlacedObject]) -> list[tuple[str, str]]:
    """A batch that waits on another device than the only one that models are on."""
    devices = {
        t.device for o in objects if o.kind == "module" for t in o.tensors if t.role in _MODEL
    }
    if len(devices) != 1 or devices == {"cpu"}:
        return []
    (device,) = devices
    apart = [o.name for o in objects if o.kind == "tensor" if _elsewhere(o.tensors, device)]
    if not apart:
        return []
    return [("hint", f"the model is on {device}, but {listing(apart)} is not")]


def _elsewhere(tensors: Sequence[TensorPlacement], device: str) -> bool:
    return any(t.device != device for t in tensors)


def _accelerators(placements: Sequence[RankPlacement]) -> list[Flag]:
    """Ranks that share a GPU, and GPUs that nobody uses."""
    users: dict[str, list[int]] = {}
    labels: dict[str, str] = {}
    for placement in placements:
        used = {t.device for o in placement.objects for t in o.tensors}
        for accelerator in placement.accelerators:
            labels[accelerator.identity] = accelerator.device
            members = users.setdefault(accelerator.identity, [])
            if accelerator.device in used:
                members.append(placement.rank)
    found = []
    for identity, ranks in users.items():
        if len(ranks) > 1:
            text = (
                f"{words.ranks(ranks)} share one GPU ({labels[identity]}): give each rank its own "
                "with torch.cuda.set_device(local_rank)"
            )
            found.append(Flag("warning", text))
    idle = [labels[identity] for identity, ranks in users.items() if not ranks]
    if idle:
        verb = "is" if len(idle) == 1 else "are"
        found.append(Flag("hint", f"{listing(idle)} {verb} there, but no rank uses it"))
    return found
