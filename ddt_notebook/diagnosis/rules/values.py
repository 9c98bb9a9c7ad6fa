"""Values that cannot be right: losses that are no number, gradients that reach no optimizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude_text
from ddt_notebook.diagnosis.communication import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.words import count, listing, ranks_text
from ddt_notebook.model import Finding, Place
from ddt_notebook.model.parity import grouped, minority
from ddt_notebook.model.training import ModelTraining, NotFinite

_MOST_NAMES = 3


def not_finite(context: Context) -> Iterator[Finding]:
    """Losses that became nan or inf and stayed so: on which rank it began."""
    trainings = {one.rank: one for one in context.snapshot.training if one.backwards}
    found = {rank: one.not_finite for rank, one in trainings.items() if one.not_finite}
    if context.snapshot.outcome != "ok" or not any(nf.lasting for nf in found.values()):
        return
    begin = min(nf.backward for nf in found.values())
    origin = {rank: nf for rank, nf in found.items() if nf.backward == begin}
    first = next(iter(origin.values()))
    places = {rank: context.place(nf.where, "runs") for rank, nf in origin.items()}
    if len(origin) == len(trainings) and len(origin) > 1:
        yield conclude_text(
            "D.2.5",
            f"the loss was {first.value} on every rank from backward pass {begin} on",
            cause="loss-not-finite",
            ranks=origin,
            places=places,
            evidence=_seen(origin),
            confidence="likely",
        )
        return
    infected = sorted(found.keys() - origin.keys())
    evidence = _seen(origin)
    for rank in infected:
        evidence.append(
            f"the loss of rank {rank} was {found[rank].value} from backward pass "
            f"{found[rank].backward} on"
        )
    clean = sorted(trainings.keys() - found.keys())
    if clean:
        evidence.append(f"the loss of {ranks_text(clean)} was finite to the end")
    spread = f"; {ranks_text(infected)} followed" if infected else ""
    from_data = all(nf.inputs is False for nf in origin.values())
    yield conclude_text(
        "D.2.5",
        f"the loss of {ranks_text(origin)} was {first.value} in backward pass {begin}, when that "
        f"of the other ranks was finite{spread}",
        cause="nan-from-one-rank",
        ranks=origin,
        waiting=infected,
        places=places,
        evidence=evidence,
        confidence="certain" if from_data else "likely",
    )


def _seen(origin: dict[int, NotFinite]) -> list[str]:
    lines = []
    for rank, nf in origin.items():
        for what, finite in (("the model's inputs", nf.inputs), ("its parameters", nf.parameters)):
            if finite is not None:
                state = "were all finite" if finite else "held values that are no finite numbers"
                lines.append(f"on rank {rank}, {what} {state} in that pass")
    return lines


def other_copies(context: Context) -> Iterator[Finding]:
    """Optimizers whose parameters never have a gradient, beside a model whose have."""
    together: dict[tuple[str, str], dict[int, Place | None]] = defaultdict(dict)
    steps: dict[tuple[str, str], int] = {}
    for training in context.snapshot.training:
        for optimizer in training.optimizers:
            sampled = [state for state in optimizer.states if state.step < optimizer.steps]
            if optimizer.twin and not any(state.with_gradient for state in sampled):
                key = optimizer.name, optimizer.twin
                steps[key] = optimizer.steps
                place = context.place(optimizer.made or optimizer.where, "created")
                together[key][training.rank] = place
    for (name, twin), places in together.items():
        yield conclude_text(
            "D.2.5",
            f"{name} holds the parameters of another copy than {twin}, which is trained: "
            f"{twin} never changes",
            cause="optimizer-on-another-copy",
            ranks=places,
            places=places,
            evidence=[
                f"no parameter of {name} had a gradient in {count(steps[name, twin], 'step')}",
                f"those of {twin} have the same shapes and gradients, and are not in {name}",
            ],
        )


def old_layers(context: Context) -> Iterator[Finding]:
    """Optimizers that hold a layer which was replaced, and not the one in its place."""
    together: dict[str, dict[int, Place | None]] = defaultdict(dict)
    first: dict[str, tuple[int, list[str]]] = {}
    for training in context.snapshot.training:
        for optimizer in training.optimizers:
            others = {n for o in training.optimizers if o is not optimizer for n in o.watched}
            left_out = [name for name in optimizer.left_out if name not in others]
            if optimizer.stale and left_out:
                first.setdefault(optimizer.name, (optimizer.stale, left_out))
                place = context.place(optimizer.made or optimizer.where, "created")
                together[optimizer.name][training.rank] = place
    for name, places in together.items():
        stale, left_out = first[name]
        shown = listing(left_out[:_MOST_NAMES])
        yield conclude_text(
            "D.2.5",
            f"{name} holds {count(stale, 'parameter')} that the model has no more, and not "
            f"{shown}, which {'has' if len(left_out) == 1 else 'have'} gradients and never "
            f"{'changes' if len(left_out) == 1 else 'change'}",
            cause="optimizer-on-another-copy",
            ranks=places,
            places=places,
            evidence=[
                f"{count(stale, 'parameter')} of {name} had no gradient and are no part of it",
                f"{count(len(left_out), 'parameter')} with a gradient are in no optimizer",
            ],
            confidence="likely",
        )


def other_orders(context: Context) -> Iterator[Finding]:
    """DDP models whose parameters come in another order on some ranks: shapes fit, sums do not."""
    for ranks in replicas.models(context.snapshot):
        names = {rank: model.parameters for rank, model in ranks.items()}
        if len({model.names_digest for model in ranks.values()}) == 1:
            continue
        if len({tuple(sorted(known)) for known in names.values()}) > 1:
            continue  # renamed rather than exchanged
        deviating = minority(grouped(names).values())
        reference = next((r for r in names if r not in deviating), min(names))
        other = next(r for r in names if names[r] != names[reference])
        at = next(
            n for n, (a, b) in enumerate(zip(names[reference], names[other], strict=True)) if a != b
        )
        first: ModelTraining = ranks[reference]
        yield conclude_text(
            "D.2.4",
            f"the submodules of {first.name} are registered in another order on "
            f"{ranks_text(deviating)}: DDP averages gradients of different parameters",
            cause="submodules-in-another-order",
            ranks=deviating,
            places={rank: context.place(model.where) for rank, model in ranks.items()},
            evidence=[
                (
                    f"parameter {at + 1} is {names[reference][at]} on rank {reference}, "
                    f"{names[other][at]} on rank {other}"
                ),
                "all shapes fit, so nothing fails",
            ],
        )


def unregistered(context: Context) -> Iterator[Finding]:
    """Tensors that are trained as plain attributes of a DDP model."""
    if context.snapshot.outcome != "ok":
        return
    for ranks in replicas.models(context.snapshot):
        first = next(iter(ranks.values()))
        found = {
            one.name: one.shape
            for model in ranks.values()
            for one in model.unregistered
            if one.trained
        }
        sent = [communication(context.reports[rank]) for rank in ranks]
        kept = [name for name, shape in found.items() if not any(s.reduced[shape] for s in sent)]
        if not kept:
            continue
        names = listing([*kept[:_MOST_NAMES], *(["others"] if len(kept) > _MOST_NAMES else [])])
        verb = "is no parameter" if len(kept) == 1 else "are no parameters"
        yield conclude_text(
            "D.2.2",
            f"{names} {verb} of {first.name}, but a plain attribute that is trained: DDP does not "
            "average its gradient",
            cause="tensor-attribute-not-registered",
            ranks=ranks,
            places={rank: context.place(model.where) for rank, model in ranks.items()},
            evidence=[
                f"{names}: gradients are required, and came",
                f"{first.name} has {len(first.parameters)} parameters, {names} not among them",
            ],
            confidence="likely",
        )
