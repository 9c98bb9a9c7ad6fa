"""Rules about faults that stop no rank: the run ends, but its results are wrong."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.diagnosis.matched_calls import Absence
from ddt_notebook.model import Call, Fact, Finding

from .facts import did_instead, of_call, reasons


def unnoticed_absences(context: Context) -> Iterator[Finding]:
    """Report collectives that some members completed although others never entered."""
    if context.snapshot.outcome != "ok":
        return
    for absence in _first_of_group(context):
        call = next(iter(absence.entered.values()))
        if not _pending_only(absence):
            yield _absence(context, absence, call)


def unanswered_handles(context: Context) -> Iterator[Finding]:
    """Report, as a hint, async collectives that no rank waited for and some have not entered."""
    if context.snapshot.outcome != "ok":
        return
    for absence in _first_of_group(context):
        if _pending_only(absence):
            call = next(iter(absence.entered.values()))
            yield conclude(
                "D.2.4",
                "handle-not-waited",
                cause="handle-not-waited",
                ranks=absence.absent,
                values=of_call(context, call) | {"entered": tuple(absence.entered)},
                places={r: context.place(c.where, "called") for r, c in absence.entered.items()},
                confidence="possible",
                op=call.op,
            )


def _first_of_group(context: Context) -> Iterator[Absence]:
    seen = set()
    for absence in context.matching.absences:
        calls = absence.entered.values()
        # The Flight Recorder may have lost entries; a failed call may have had no partner.
        if any(c.source == "flight recorder" for c in calls) or all(
            c.status == "failed" for c in calls
        ):
            continue
        if absence.group not in seen:
            seen.add(absence.group)
            yield absence


def _pending_only(absence: Absence) -> bool:
    return all(call.status in ("issued", "failed") for call in absence.entered.values())


def _absence(context: Context, absence: Absence, call: Call) -> Finding:
    idle = all(context.reports[rank].state == "idle" for rank in absence.absent)
    caller = context.reports[min(absence.entered)]
    found = [
        reason
        for rank in (absence.absent if not idle else ())
        if (reason := context.escape_paths.why_absent(call, caller, context.reports[rank], None))
    ]
    cause = "cell-ran-on-some-ranks" if idle else "rank-skips-collective"
    entered = tuple(sorted(absence.entered))
    return conclude(
        "D.2.4",
        "absence-unnoticed",
        cause=found[0].cause if found else cause,
        ranks=absence.absent,
        values=of_call(context, call) | {"entered": entered},
        places={r: context.place(c.where, "called") for r, c in sorted(absence.entered.items())},
        facts=[
            Fact(
                kind="entered",
                place=context.place(call.where, "called"),
                ranks=entered,
                values=of_call(context, call),
            ),
            *did_instead(context, absence.absent, absence.group),
            *reasons(found)[:1],
            Fact(kind="group-out-of-step"),
        ],
        op=call.op,
    )


def swaps(context: Context) -> Iterator[Finding]:
    """Report, as a hint, two collectives of equal form that ranks issued from swapped lines."""
    for swap in context.matching.swaps:
        places = {
            rank: context.place(call.where, "called")
            for rank, call in zip(swap.ranks, swap.calls, strict=True)
        }
        first = {"op": swap.calls[0].op, "sequence": swap.sequence}
        yield conclude(
            "D.2.4",
            "swapped-collectives",
            cause="swapped-collectives",
            ranks=swap.ranks,
            values=first | {"next_sequence": swap.sequence + 1},
            places=places,
            facts=[
                *(
                    Fact(kind="entered", place=place, ranks=(rank,), values=first)
                    for rank, place in places.items()
                ),
                Fact(kind="calls-fit"),
            ],
            confidence="possible",
            op=swap.calls[0].op,
        )


RULES = (unnoticed_absences,)
HINTS = (swaps, unanswered_handles)
