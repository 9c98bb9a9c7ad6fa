"""Rules about ranks that train on one GPU while others are idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place
from ddt_notebook.model.placement import RankPlacement


def crowded_gpus(context: Context) -> Iterator[Finding]:
    """Report ranks that train one job's model on one GPU while another of their host has none.

    With more ranks than GPUs some ranks have to share a GPU, so this is not reported.
    """
    hosts = context.snapshot.hosts
    users: dict[tuple[str, str], list[int]] = defaultdict(list)
    labels: dict[str, dict[str, str]] = defaultdict(dict)  # of each host: its devices by identity
    for placement in context.snapshot.placement:
        host = hosts.get(placement.rank, "")
        labels[host] |= {one.identity: one.device for one in placement.accelerators}
        for identity in _trained_on(context, placement):
            users[host, identity].append(placement.rank)
    for (host, identity), ranks in sorted(users.items()):
        idle = [label for gpu, label in labels[host].items() if (host, gpu) not in users]
        if len(ranks) < 2 or not idle:
            continue
        yield conclude(
            "D.2.2",
            "ranks-share-a-gpu",
            cause="all-ranks-on-one-gpu",
            ranks=ranks,
            values={"device": labels[host][identity], "idle": idle},
            places={rank: _forward(context, rank) for rank in ranks},
            facts=[Fact(kind="parameters-there", ranks=tuple(ranks))],
            confidence="likely",
        )


def loaded_onto_one_gpu(context: Context) -> Iterator[Finding]:
    """Report ranks that loaded a checkpoint onto a GPU on which they do not train."""
    placements = {placement.rank: placement for placement in context.snapshot.placement}
    strangers: dict[tuple[str, str], dict[int, Place | None]] = defaultdict(dict)
    for report in context.snapshot.checkpoints:
        placement = placements.get(report.rank)
        own = _trained_on(context, placement) if placement is not None else set()
        if placement is None or len(own) != 1:
            continue
        foreign = {one.device for one in placement.accelerators if one.identity not in own}
        for use in report.uses:
            for device in foreign.intersection(use.devices):
                strangers[use.name, device][report.rank] = context.place(use.where, "loads")
    for (name, device), where in sorted(strangers.items()):
        yield conclude(
            "D.1.6",
            "loaded-onto-another-gpu",
            cause="checkpoint-on-one-gpu",
            ranks=where,
            values={"file": name, "device": device},
            places=where,
            facts=[Fact(kind="tensors-elsewhere", ranks=tuple(where), values={"device": device})],
            confidence="possible",
        )


def _trained_on(context: Context, placement: RankPlacement) -> set[str]:
    """Return the GPUs that hold the models that a rank trains together with others."""
    in_ddp = {
        device
        for training in context.snapshot.training
        if training.rank == placement.rank
        for model in training.models
        for device in model.devices
    }
    devices = in_ddp | {
        tensor.device
        for item in placement.objects
        if item.kind == "module" and item.trained and item.wrapper
        for tensor in item.tensors
        if tensor.role == "parameter"
    }
    return {one.identity for one in placement.accelerators if one.device in devices}


def _forward(context: Context, rank: int) -> Place | None:
    """Return where a rank first ran its model."""
    for report in context.snapshot.training:
        if report.rank == rank:
            places = (model.where for model in report.models if model.where is not None)
            return context.place(next(places, None), "called")
    return None


RULES = (crowded_gpus,)
HINTS = (loaded_onto_one_gpu,)
