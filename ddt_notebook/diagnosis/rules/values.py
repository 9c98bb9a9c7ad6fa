"""Rules about wrong values: losses that are nan or inf, gradients that reach no optimizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from ddt_notebook.diagnosis import replicas
from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.communication import communication
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place, RankError
from ddt_notebook.model.finding import Confidence
from ddt_notebook.model.parity import grouped, minority
from ddt_notebook.model.training import (
    GivenNotFinite,
    NotFinite,
    OptimizerTraining,
    UnwrittenMemory,
)

from .facts import forward_passes
from .steps import skipped_by_scaler


def not_finite(context: Context) -> Iterator[Finding]:
    """Report losses that became and stayed nan or inf, and the rank on which this began."""
    trainings = {one.rank: one for one in context.snapshot.training if one.backwards}
    found = {rank: one.not_finite for rank, one in trainings.items() if one.not_finite}
    raised = raised_by_lost(context)
    if context.snapshot.outcome != "ok" and not raised:
        return
    if not any(nf.lasting for nf in found.values()):
        return
    begin = min(nf.backward for nf in found.values())
    origin = {rank: nf for rank, nf in found.items() if nf.backward == begin}
    first = next(iter(origin.values()))
    everywhere = len(origin) == len(trainings) and len(origin) > 1
    if empty := _without_values(context, origin):
        yield from empty
        return
    infected = sorted(found.keys() - origin.keys())
    facts = list(_state_of_pass(origin))
    facts += [
        Fact(
            kind="loss-became",
            ranks=(rank,),
            values={"loss": found[rank].value, "backward": found[rank].backward},
        )
        for rank in infected
    ]
    if clean := sorted(trainings.keys() - found.keys()):
        facts.append(Fact(kind="loss-stayed-finite", ranks=tuple(clean)))
    if raised:
        error = next(iter(raised.values()))
        place = context.place(error.where, "raised")
        values = {"error": error.type}
        facts.append(Fact(kind="raised-after", place=place, ranks=tuple(raised), values=values))
    gave = _gave(context, begin)
    if gave and (everywhere or not gave.keys() <= origin.keys()):
        yield conclude(
            "D.2.5",
            "gave-not-finite",
            cause="nan-from-one-rank",
            ranks=gave,
            waiting=sorted(trainings.keys() - gave.keys()),
            values={"op": next(iter(gave.values())).op, "loss": first.value, "backward": begin},
            places={rank: context.place(one.where, "called") for rank, one in gave.items()},
            facts=facts,
            confidence="likely",
        )
        return
    from_data = all(nf.inputs is False for nf in origin.values())
    if not from_data and any(origin.keys() <= {*one.ranks} for one in skipped_by_scaler(context)):
        return  # their scalers left these steps out, as they should; the others' did not
    yield conclude(
        "D.2.5",
        "loss-not-finite-everywhere" if everywhere else "loss-not-finite",
        cause="loss-not-finite" if everywhere else "nan-from-one-rank",
        ranks=origin,
        waiting=infected,
        values={"loss": first.value, "backward": begin},
        places={rank: context.place(nf.where, "called") for rank, nf in origin.items()},
        facts=facts,
        confidence="certain" if from_data and not everywhere else "likely",
    )


def raised_by_lost(context: Context) -> dict[int, RankError]:
    """Return the exception that all ranks raised at one line, once the losses of all were lost.

    An algorithm of linear algebra, for example, refuses nan. Empty unless it is known which rank
    gave the others a value that was not finite.
    """
    errors = {rank: one.error for rank, one in context.reports.items() if one.error is not None}
    lost = {x.rank: x.not_finite for x in context.snapshot.training if x.not_finite is not None}
    alike = {(one.type, one.where) for one in errors.values()}
    if len(alike) != 1 or not lost.keys() == errors.keys() == context.reports.keys():
        return {}
    begin = min(one.backward for one in lost.values())
    lasting = all(one.lasting for one in lost.values())
    return errors if lasting and _gave(context, begin) else {}


def _gave(context: Context, begin: int) -> dict[int, GivenNotFinite]:
    """The ranks that gave others a value that was not finite, just before the first such loss.

    A value that was given earlier, such as the mean of an empty evaluation, had no effect on it.
    """
    given = {
        one.rank: one.given
        for one in context.snapshot.training
        if one.given and one.given.backwards == begin - 1
    }
    first = min((one.call for one in given.values()), default=0)
    found = {rank: one for rank, one in given.items() if one.call == first}
    return found if len(found) < len(context.snapshot.training) else {}


def _without_values(context: Context, origin: Mapping[int, NotFinite]) -> list[Finding]:
    """Return the parameters without initial values from which the loss became nan or inf."""
    begin = next(iter(origin.values()))
    became = Fact(
        kind="loss-became",
        ranks=tuple(origin),
        values={"loss": begin.value, "backward": begin.backward},
        place=context.place(begin.where, "called"),
    )
    found = _unwritten(context)
    return [
        _not_initialised(context, ranks, [became], "likely")
        for ranks in found
        if not next(iter(ranks.values())).zero
    ][:1]


def not_initialised(context: Context) -> Iterator[Finding]:
    """Report, as a hint, trained parameters that nobody gave an initial value."""
    if context.snapshot.outcome != "ok":
        return
    lost = any(one.not_finite and one.not_finite.lasting for one in context.snapshot.training)
    for ranks in _unwritten(context):
        if not lost or next(iter(ranks.values())).zero:  # else it is the cause of a finding
            yield _not_initialised(context, ranks, [], "possible")


def _unwritten(context: Context) -> Iterator[dict[int, UnwrittenMemory]]:
    """Yield the parameters that nobody wrote to, by rank, for each line that made them."""
    together: dict[object, dict[int, UnwrittenMemory]] = defaultdict(dict)
    for training in context.snapshot.training:
        for one in training.unwritten:
            together[one.where, one.module].setdefault(training.rank, one)
    yield from together.values()


def _not_initialised(
    context: Context,
    ranks: Mapping[int, UnwrittenMemory],
    facts: list[Fact],
    confidence: Confidence,
) -> Finding:
    first = next(iter(ranks.values()))
    held = "memory-held-anything" if first.finite else "memory-held-not-finite"
    return conclude(
        "D.2.5",
        "parameters-not-initialised",
        cause="parameters-not-initialised",
        ranks=ranks,
        values={"module": first.module, "names": first.names, "unwritten": first.unwritten},
        places={rank: context.place(one.where, "created") for rank, one in ranks.items()},
        facts=[
            Fact(
                kind="memory-not-written",
                values={"parameters": first.parameters, "unwritten": first.unwritten},
            ),
            Fact(kind="memory-held-zeros" if first.zero else held, ranks=tuple(ranks)),
            *facts,
        ],
        confidence=confidence,
    )


def _state_of_pass(origin: Mapping[int, NotFinite]) -> Iterator[Fact]:
    """Yield whether the inputs and the parameters were finite in the pass in which it began."""
    for rank, nf in origin.items():
        for what, finite in (("inputs", nf.inputs), ("parameters", nf.parameters)):
            if finite is not None:
                kind = f"{what}-finite" if finite else f"{what}-not-finite"
                yield Fact(kind=kind, ranks=(rank,))


def other_copies(context: Context) -> Iterator[Finding]:
    """Report optimizers whose parameters get no gradient, next to a model whose parameters do."""
    together: dict[tuple[str, str], dict[int, OptimizerTraining]] = defaultdict(dict)
    for training in context.snapshot.training:
        for optimizer in training.optimizers:
            sampled = [state for state in optimizer.states if state.step < optimizer.steps]
            if optimizer.twin and not any(state.with_gradient for state in sampled):
                together[optimizer.name, optimizer.twin][training.rank] = optimizer
    for (name, twin), optimizers in together.items():
        steps = max(optimizer.steps for optimizer in optimizers.values())
        yield conclude(
            "D.2.5",
            "optimizer-of-another-copy",
            cause="optimizer-on-another-copy",
            ranks=optimizers,
            values={"optimizer": name, "model": twin},
            places=_made(context, optimizers),
            facts=[
                Fact(kind="steps-without-gradient", values={"optimizer": name, "steps": steps}),
                Fact(kind="twin-has-gradients", values={"optimizer": name, "model": twin}),
            ],
        )


def old_layers(context: Context) -> Iterator[Finding]:
    """Report optimizers that hold a replaced layer instead of the new one."""
    together: dict[str, dict[int, OptimizerTraining]] = defaultdict(dict)
    first: dict[str, tuple[int, list[str]]] = {}
    for training in context.snapshot.training:
        for optimizer in training.optimizers:
            others = {n for o in training.optimizers if o is not optimizer for n in o.watched}
            left_out = [name for name in optimizer.left_out if name not in others]
            if optimizer.stale and left_out:
                first.setdefault(optimizer.name, (optimizer.stale, left_out))
                together[optimizer.name][training.rank] = optimizer
    for name, optimizers in together.items():
        stale, left_out = first[name]
        yield conclude(
            "D.2.5",
            "optimizer-of-a-replaced-layer",
            cause="optimizer-on-another-copy",
            ranks=optimizers,
            values={"optimizer": name, "stale": stale, "names": left_out},
            places=_made(context, optimizers),
            facts=[
                Fact(kind="stale-parameters", values={"optimizer": name, "stale": stale}),
                Fact(kind="in-no-optimizer", values={"parameters": len(left_out)}),
            ],
            confidence="likely",
        )


def _made(context: Context, optimizers: Mapping[int, OptimizerTraining]) -> dict[int, Place | None]:
    """Return the lines that made optimizers or, if unknown, the lines of their first steps."""
    return {
        rank: context.place(o.made, "created") if o.made else context.place(o.where, "steps")
        for rank, o in optimizers.items()
    }


def other_orders(context: Context) -> Iterator[Finding]:
    """Report DDP models whose parameters have another order on some ranks.

    All shapes fit, so no call fails, and DDP averages gradients of different parameters.
    """
    for ranks in replicas.models(context.snapshot):
        names = {rank: model.parameters for rank, model in ranks.items()}
        if len({model.names_digest for model in ranks.values()}) == 1:
            continue
        if len({tuple(sorted(known)) for known in names.values()}) > 1:
            continue  # the names differ, not only the order
        if len(set(names.values())) == 1:
            continue  # the record of a rank was damaged
        deviating = minority(grouped(names).values())
        reference = next((r for r in names if r not in deviating), min(names))
        other = next(r for r in names if names[r] != names[reference])
        at = next(
            n for n, (a, b) in enumerate(zip(names[reference], names[other], strict=True)) if a != b
        )
        yield conclude(
            "D.2.4",
            "submodules-in-another-order",
            cause="submodules-in-another-order",
            ranks=deviating,
            values={"model": ranks[reference].name},
            places=forward_passes(context, ranks),
            facts=[
                Fact(
                    kind="parameter-differs",
                    ranks=(reference, other),
                    values={"number": at + 1, "names": (names[reference][at], names[other][at])},
                ),
                Fact(kind="shapes-fit"),
            ],
        )


def unregistered(context: Context) -> Iterator[Finding]:
    """Report tensors that are trained as plain attributes of a DDP model."""
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
        sent = [communication(context.reports[rank]) for rank in ranks if rank in context.reports]
        kept = [name for name, shape in found.items() if not any(s.reduced[shape] for s in sent)]
        if not kept:
            continue
        values = {"model": first.name, "names": kept}
        yield conclude(
            "D.2.2",
            "trained-attribute",
            cause="tensor-attribute-not-registered",
            ranks=ranks,
            values=values,
            places=forward_passes(context, ranks),
            facts=[
                Fact(kind="attribute-has-gradient", values={"names": kept}),
                Fact(
                    kind="not-among-parameters",
                    values=values | {"parameters": len(first.parameters)},
                ),
            ],
            confidence="likely",
        )


HINTS = (not_initialised,)
RULES = (not_finite, other_orders, other_copies, old_layers, unregistered)
