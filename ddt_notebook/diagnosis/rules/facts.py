"""Facts that several rules report: the call in which ranks are blocked, and what others did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Place, Position
from ddt_notebook.model.finding import Values
from ddt_notebook.model.frameworks import meets_by_tensor
from ddt_notebook.model.named_tensors import tensor_of
from ddt_notebook.model.rank import RankState
from ddt_notebook.model.training import ModelTraining
from ddt_notebook.program.escape_paths import Reason


def of_call(context: Context, call: Call, *, issuer: bool = True) -> Values:
    """Return the values with which findings describe a call; `wording.call` renders them.

    ``op``, ``sequence``, ``shapes`` and ``dtypes`` as in `Call`; ``issued_by``: the part of torch
    that issued it; ``called_from``: the file of an installed library that made it; ``group`` of a
    collective, in a run with several groups; ``tensor``: its name, where ranks meet by
    it; ``peer`` (None: any rank) and ``tag`` of a message. Values that do not apply are left out.

    Parameters
    ----------
    issuer
        Whether to include ``issued_by`` and ``called_from``.
    """
    values: Values = {"op": call.op}
    if call.sequence is not None:
        values["sequence"] = call.sequence
    if call.shapes and call.dtypes:
        values |= {"shapes": call.shapes, "dtypes": call.dtypes}
    if issuer and call.caller:
        values["issued_by"] = call.caller
    if issuer and call.called_from:
        values["called_from"] = call.called_from
    if call.kind == "p2p":
        values["peer"] = call.peer
        if call.tag:
            values["tag"] = call.tag
    elif call.kind == "collective" and meets_by_tensor(context.snapshot.framework):
        if tensor := tensor_of(call):
            values["tensor"] = tensor
    elif call.kind == "collective" and call.group and context.matching.groups > 1:
        values["group"] = call.group
    return values


def of_wait(context: Context, waiting: Iterable[int]) -> Values:
    """Return ``waited_s``, how long victims have been waiting, or ``freed`` if none is blocked."""
    victims = list(waiting)
    if victims and not any(context.reports[rank].state == "blocked" for rank in victims):
        return {"freed": True}
    waited_s = context.blocked_for(victims)
    return {} if waited_s is None else {"waited_s": waited_s}


def ended_graph(context: Context, call: Call, rank: int) -> Call | None:
    """Return a rank's own execution of a graph, if it has ended and another rank is inside still.

    None for any other call.
    """
    theirs = context.counterpart(call, rank) if call.is_graph else None
    return theirs if theirs is not None and theirs.status == "done" else None


def by_call(context: Context, waiting: Iterable[int]) -> Iterator[tuple[list[int], Call]]:
    """Yield the victims, grouped by their call and line."""
    groups: dict[object, list[int]] = defaultdict(list)
    for rank in waiting:
        if rank in context.halted:
            call = context.halted[rank]
            alike = (tuple(of_call(context, call, issuer=False).items()), context.place(call.where))
            groups[alike].append(rank)
    for ranks in groups.values():
        yield ranks, context.halted[ranks[0]]


def blocked_in(context: Context, waiting: Iterable[int]) -> list[Fact]:
    """Return one fact for each call in which victims are blocked."""
    return [
        Fact(
            kind=_blocked(context, ranks, call),
            place=context.place(call.where, "waits"),
            ranks=tuple(ranks),
            values=of_call(context, call),
        )
        for ranks, call in by_call(context, waiting)
    ]


def awaited_files(context: Context, ranks: Iterable[int]) -> list[Fact]:
    """Return the files for which ranks ask again and again, and which do not exist."""
    asked: dict[str, list[int]] = defaultdict(list)
    for rank in ranks:
        report = context.reports.get(rank)
        seen = report.activity if report is not None and report.state == "running" else None
        # a rank at work may look for a file by which others tell it to stop
        if seen is not None and seen.waits_for == "missing file" and not seen.computes:
            asked[seen.file].append(rank)
    return [
        Fact(kind="file-missing", ranks=tuple(members), values={"file": file})
        for file, members in asked.items()
    ]


def functions_inside(context: Context, ranks: Iterable[int]) -> list[Fact]:
    """Return the user's functions that a thread of a framework runs for ranks."""
    found = []
    for rank in ranks:
        report = context.reports.get(rank)
        seen = report.activity if report is not None else None
        if seen is not None and seen.inside is not None:
            found.append(
                Fact(
                    kind="runs-inside",
                    place=context.place(seen.inside, "runs"),
                    ranks=(rank,),
                    values={"inside_s": seen.inside_s},
                )
            )
    return found


def awaited_threads(context: Context, ranks: Iterable[int]) -> list[Fact]:
    """Return the exceptions that ended the threads for which ranks wait."""
    found = []
    for rank in ranks:
        report = context.reports.get(rank)
        seen = report.activity if report is not None and report.waits_for_ever else None
        if seen is not None and seen.thread_error is not None:
            error = seen.thread_error
            found.append(
                Fact(
                    kind="thread-ended",
                    place=context.place(error.where, "raised"),
                    ranks=(rank,),
                    values={"error": str(error).partition("\n")[0]},
                )
            )
    return found


def nobody_makes_them(context: Context, awaited: list[Fact]) -> bool:
    """Whether no other rank is at work, which might still make the files."""
    asking = {rank for fact in awaited for rank in fact.ranks}
    return bool(awaited) and not any(
        report.state in ("running", "silent", "stopped") and rank not in asking
        for rank, report in context.reports.items()
    )


def _blocked(context: Context, ranks: Iterable[int], call: Call) -> str:
    if any(context.reports[rank].device_waits for rank in ranks):
        return "open-on-device"
    return "waits-for-handle" if call.asynchronous else "blocked-in"


def gone_on(context: Context, waiting: Iterable[int]) -> list[Fact]:
    """Return where the host stands, and how many collectives it had issued behind the open one.

    The device waits in the open one; Python has gone on from its line. Dumps of NCCL show the same
    without the host's line.
    """
    behind: dict[tuple[int, str, int | None], list[int]] = defaultdict(list)
    stand: dict[Position | None, list[int]] = defaultdict(list)
    for rank in waiting:
        report, open_ = context.reports[rank], context.halted.get(rank)
        if open_ is None or not (report.device_waits or context.snapshot.origin == "dumps"):
            continue
        if report.device_waits:
            stand[report.position].append(rank)
        issued = (call for call in report.calls if call.kind != "setup")
        later = [call for call in issued if call.index > open_.index]
        recorded = all(call.source == "flight recorder" for call in later)
        if later and (report.device_waits or recorded):
            key = len(later), later[-1].op, later[-1].sequence
            behind[key].append(rank)
    stands = [
        Fact(kind="host-stands", place=context.place(at, "stood"), ranks=tuple(ranks))
        for at, ranks in stand.items()
    ]
    return stands + [
        Fact(
            kind="issued-behind",
            ranks=tuple(ranks),
            values={"count": key[0], "op": key[1], "sequence": key[2]},
        )
        for key, ranks in behind.items()
    ]


def did_instead(context: Context, ranks: Iterable[int], group: str | None = None) -> list[Fact]:
    """Return what ranks did instead: their state, and their last collective on a group.

    Ranks with the same facts share them.
    """
    alike: list[tuple[list[Fact], list[int]]] = []
    for rank in ranks:
        facts = _instead(context, rank, group)
        same = next((members for known, members in alike if known == facts), None)
        if same is None:
            alike.append((facts, [rank]))
        else:
            same.append(rank)
    return [
        Fact(kind=fact.kind, place=fact.place, ranks=tuple(members), values=fact.values)
        for facts, members in alike
        for fact in facts
    ]


def _instead(context: Context, rank: int, group: str | None) -> list[Fact]:
    """Return the last state and the last collective of a rank; without the rank's number.

    If the rank is not at its last collective, these are two facts.
    """
    if rank not in context.reports:
        return [Fact(kind="no-record")]
    report = context.reports[rank]
    standing = report.state in _STANDING
    calls = [c for c in report.calls if c.kind == "collective" and group in (None, c.group)]
    values: Values = {}
    if report.state == "died":
        values = {"signal": report.exit_signal, "exit_code": report.exit_code}
    elif report.state == "finished":
        values = of_script(context)
    if not calls:
        place = context.place(report.position) if standing else None
        return [Fact(kind=STATES[report.state], place=place, values=values)]
    last = context.place(calls[-1].where, "called")
    called = of_call(context, calls[-1], issuer=False)
    if not standing:
        return [Fact(kind=STATES[report.state], place=last, values=values | called)]
    return [
        Fact(kind=STATES[report.state], place=context.place(report.position), values=values),
        Fact(kind="last-collective", place=last, values=called),
    ]


#: States in which the rank's line is informative.
_STANDING = frozenset({"blocked", "running", "stopped", "silent"})
#: Last state of a rank -> the kind of the fact.
STATES: dict[RankState, str] = {
    "finished": "finished",
    "raised": "raised-exception",
    "died": "ended",
    "blocked": "blocked",
    "running": "still-running",
    "stopped": "suspended",
    "silent": "does-not-answer",
    "idle": "not-asked",
    "recorded": "record-ends-before",
}


def of_script(context: Context) -> Values:
    """Return ``script`` if the ranks ran a script, and nothing if they ran a cell."""
    return {"script": True} if context.snapshot.cell.file else {}


def reasons(found: Iterable[Reason]) -> list[Fact]:
    """Return one fact for all ranks that the same line of the source led past the call."""
    together: dict[tuple[Place, str, tuple[tuple[str, object], ...]], set[int]] = {}
    for reason in found:
        key = (reason.place, reason.kind, tuple(reason.values.items()))
        together.setdefault(key, set()).add(reason.rank)
    facts = []
    for (place, kind, values), ranks in together.items():
        shown: Values = dict(values)
        facts += [
            Fact(
                kind="stored-last" if at is not None else "not-stored",
                place=at,
                ranks=by,
                values={"name": name},
            )
            for name, lines in shown.pop("stored", ())
            for at, by in lines
        ]
        split = shown.pop("split", None)
        facts.append(Fact(kind=kind, place=place, ranks=tuple(sorted(ranks)), values=shown))
        facts += [Fact(kind="split-at", place=split)] if split is not None else []
    return facts


def forward_passes(
    context: Context, models: Mapping[int, ModelTraining]
) -> dict[int, Place | None]:
    """Return the line of the first forward pass with gradients through each rank's model."""
    return {rank: context.place(model.where, "called") for rank, model in models.items()}
