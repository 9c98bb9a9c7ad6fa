"""How the replay of one rank of a job went."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from ..model import RankError
from ..model.replay import Departure, InputCall, ReplayOutcome
from . import html, safe, terminal
from .displayable import Displayable

#: The sign and the colour of each way in which a replay may end.
_SIGNS = {
    "same error": ("✓", "ok"),
    "finished": ("✓", "ok"),
    "stood": ("✓", "ok"),
    "record ended": ("?", "hint"),
    "departed": ("▲", "warning"),
    "other end": ("▲", "warning"),
}
#: The names of operations for the calls that DDP issues in C++.
_OF_DDP = {"allreduce": "all_reduce", "allgather": "all_gather"}


class ReplayView(Displayable):
    """The replay of a rank: whether it went as in the job, and what is alive afterwards.

    Parameters
    ----------
    outcome
        How far it got.
    agreement
        How its end compares with that of the recorded rank: ``"same error"``, ``"finished"``,
        ``"stood"``, ``"departed"``, ``"record ended"`` or ``"other end"``.
    error, recorded_error
        The exceptions that ended the replay and the recorded rank.
    script, changed
        The script, and whether it has changed since.
    run
        The result of the run; its ``errors`` hold the traceback.
    session
        The session of one rank in which the variables are alive; `Session.stop` ends it.
    """

    __slots__ = (
        *("agreement", "changed", "error", "outcome"),
        *("recorded_error", "run", "script", "session"),
    )

    def __init__(
        self,
        outcome: ReplayOutcome,
        agreement: str,
        *,
        error: RankError | None,
        recorded_error: RankError | None,
        script: str,
        changed: bool,
        run: Any,
        session: Any,
    ) -> None:
        self.outcome, self.agreement = outcome, agreement
        self.error, self.recorded_error = error, recorded_error
        self.script, self.changed = script, changed
        self.run, self.session = run, session

    @property
    def ok(self) -> bool:
        """Whether the replay went as the job did, as far as the record goes."""
        return _SIGNS[self.agreement][1] == "ok" and not self.outcome.unequal

    def to_text(self) -> str:
        """The verdict, the traceback and the variables."""
        sign, _ = _SIGNS[self.agreement]
        lines = [f"{sign} {safe.one_line(self._title)}"]
        for label, text in self._rows():
            lines += terminal.wrap(label, safe.one_line(text, 600))
        if self.error is not None:
            lines += ["", safe.block(self.error.traceback)]
        return "\n".join(lines)

    def to_html(self) -> str:
        """The verdict, the traceback and the variables."""
        sign, kind = _SIGNS[self.agreement]
        rows = [
            (html.tag("span", label, style="white-space:nowrap"), safe.one_line(text, 600))
            for label, text in self._rows()
        ]
        shown = [html.line(html.chip(sign, self.agreement, kind), " ", self._title)]
        shown.append(html.table(rows))
        if self.error is not None:
            shown.append(html.details("traceback", html.pre(self.error.traceback)))
        return html.view(html.card(kind, *shown))

    def to_json(self) -> dict[str, Any]:
        """The outcome as plain data."""
        outcome = self.outcome
        at = outcome.departure or next(iter(outcome.unequal), None)
        call = (at.replayed or at.recorded) if at is not None else outcome.at
        return {
            "ok": self.ok,
            "agreement": self.agreement,
            "rank": outcome.rank,
            "served": outcome.served,
            "recorded": outcome.recorded,
            "departs": at.what if at is not None else None,
            "where": call.where.label if call is not None and call.where is not None else None,
            "error": str(self.error) if self.error is not None else None,
            "changed": self.changed,
        }

    @property
    def _title(self) -> str:
        outcome = self.outcome
        return (
            f"replay of rank {outcome.rank} of {outcome.world_size}, {PurePath(self.script).name}: "
            f"{outcome.served} of {outcome.recorded} recorded calls answered"
        )

    def _rows(self) -> Iterator[tuple[str, str]]:
        yield "ended", self._verdict()
        for departure in self.outcome.unequal:
            yield "differs", _unequal(departure)
        if self.changed:
            yield "note", f"{PurePath(self.script).name} has changed since the job ran"
        if self.outcome.names and not self.session.stopped:
            names = ", ".join(self.outcome.names)
            yield "alive", f"in cells of this rank (%%ddt): {names}"

    def _verdict(self) -> str:
        outcome, before, now = self.outcome, self.recorded_error, self.error
        match self.agreement:
            case "same error":
                return f"with the same exception as in the job, {_at(now)}"
            case "finished":
                return "well, as in the job"
            case "stood":
                stood = outcome.at
                return f"where the rank stood when its job ended: {_call(stood)}"
            case "record ended":
                why = "the record ends here" if outcome.end == "limit" else "no result was kept"
                return f"{why}, since {outcome.reason}: {_call(outcome.at)}"
            case "departed":
                assert outcome.departure is not None
                return self._departs(outcome.departure)
        job = f"the job's rank raised {_at(before)}" if before is not None else "the job's did not"
        if before is None and now is not None:
            return f"with an exception that the job's rank did not have: {_at(now)}"
        return f"{_at(now) if now is not None else 'well'}, but {job}"

    def _departs(self, departure: Departure) -> str:
        before, now = departure.recorded, departure.replayed
        number = departure.number
        if now is None:
            end = (
                f"the replay ended before, {_at(self.error)}" if self.error else "the replay ended"
            )
            return f"call {number} is missing: the job called {_call(before)}; {end}"
        if before is None:
            job = self.recorded_error
            ended = f"had raised {_at(job)}" if job is not None else "made no further call"
            return f"call {number} is not in the record: {_call(now)}; the job's rank {ended}"
        what = departure.what
        return (
            f"call {number} is another one ({what}): the job called {_call(before)}, and the "
            f"replay calls {_call(now)}"
        )


def _unequal(departure: Departure) -> str:
    call = departure.replayed
    if departure.what == "values":
        return f"from call {departure.number} on, this rank sends other values: {_call(call)}"
    states = "states" if len(departure.libraries) > 1 else "state"
    return (
        f"from call {departure.number} on, the random {states} of "
        f"{' and '.join(departure.libraries)}: {_call(call)}"
    )


def _call(call: InputCall | None) -> str:
    """``all_reduce (22 × float32, root 0) of ranks 0, 1 at train.py line 20: …``."""
    if call is None:
        return "nothing"
    inside = [
        f"{' × '.join(map(str, shape)) or '1'} × {dtype}"
        for shape, dtype in zip(call.shapes[:2], call.dtypes, strict=False)
    ]
    inside += [f"{name} {value}" for name, value in (call.details or {}).items()]
    described = _OF_DDP.get(call.op, call.op) + (f" ({', '.join(inside)})" if inside else "")
    if call.ddp:
        described += " of DDP"
    if len(call.members) == 1:
        described += f" in the group of rank {call.members[0]}"
    elif call.members:
        few = ", ".join(map(str, call.members[:8])) + (", …" if len(call.members) > 8 else "")
        described += f" in the group of ranks {few}"
    return f"{described} at {call.where.label}" if call.where is not None else described


def _at(error: RankError | None) -> str:
    if error is None:
        return "without an exception"
    where = f" at {error.where.label}" if error.where is not None else ""
    return f"{error}{where}"
