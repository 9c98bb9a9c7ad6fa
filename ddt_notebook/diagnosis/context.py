"""What all rules share: the matched calls, who waits for whom, and the effects of a mismatch."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath

from ddt_notebook.model import Call, Place, Position, RankError, RankReport, Role, Snapshot
from ddt_notebook.model.agreements import RankAgreements, broken, of_calls
from ddt_notebook.model.frameworks import ends_framework, known_operation
from ddt_notebook.model.user_code import is_user_code
from ddt_notebook.model.waits import (
    MOVING,
    Wait,
    cannot_complete,
    gives_up,
    lock_holders,
    waits,
)
from ddt_notebook.program.escape_paths import LEAVES_LOOP, EscapePaths, Reason
from ddt_notebook.program.program import Program

from .errors import classify, first_of_chain, is_peer_error
from .matched_calls import Matching, Mismatch, match
from .matched_messages import MessageMismatch, message_bytes
from .own_lines import by_own_lines, gave_parts
from .parting_reasons import REPORTED
from .partings import Partings
from .rank_stores import stored_by_some
from .rendezvous import Discord, discord
from .silent_partings import parted_in_silence
from .stopped_loops import ended_framework, stopped_alone
from .thread_clash import ThreadClash, thread_clash
from .ways import Ways

#: What Horovod says of a call in a process set that it does not have.
_NO_SET = "Process set provided does not exist"
#: The signals by which a mismatch ends a process: gloo aborts or overruns a buffer.
_ABORTS = frozenset({6, 7, 11})
#: After a mismatch in these fields, bytes are left over or missing in the group's next collective.
_SPOILS = frozenset({"op", "root", "shape", "dtype"})


_FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')


def crash_frames(text: str) -> list[Position]:
    """Return the stack of the crashed thread as ``faulthandler`` wrote it, innermost first."""
    # Without this heading a C++ thread crashed; then the stacks of all Python threads matter, and
    # most that of the main thread, which is written last.
    stack = text.partition("Current thread")[2] or "\n\n".join(reversed(text.split("\n\n")))
    return [
        Position(file=file, line=int(line), function=function)
        for file, line, function in _FRAME.findall(stack)
    ]


def _with_stack(report: RankReport) -> RankReport:
    """Return a report with the stack of a rank that died, or that a peer's fault ended."""
    if report.stack:
        return report
    if report.state == "died":
        return replace(report, stack=tuple(reversed(crash_frames(report.crash_text))))
    if report.error is not None and is_peer_error(report.error):
        return replace(report, stack=report.error.frames)
    return report


def _destroys_on_the_way_out(call: Call, error: RankError) -> bool:
    """Whether a rank destroyed its groups in a ``finally`` that its exception passed through."""
    ends = call.op == "destroy_process_group" or ends_framework(call.op)
    return bool(ends) and call.where != error.where


def _is_file_of_user(file: str) -> bool:
    """Whether a path that ``faulthandler`` wrote is the user's; it writes whole paths."""
    return PurePath(file).is_absolute() and is_user_code(file)


@dataclass(frozen=True)
class Context:
    """A snapshot, prepared for the rules."""

    snapshot: Snapshot

    @cached_property
    def reports(self) -> dict[int, RankReport]:
        return {report.rank: report for report in self.snapshot.ranks}

    def on_one_host(self, rank: int, other: int) -> bool:
        """Whether two ranks ran on the same host, as far as is known."""
        hosts = [self.reports[one].host for one in (rank, other) if one in self.reports]
        return len(set(hosts)) < 2

    @cached_property
    def matching(self) -> Matching:
        return match(self.snapshot, self.ways)

    @cached_property
    def given_apart(self) -> bool:
        """Whether a framework was given values that make ranks call differently."""
        return any(
            one.decides_calls and not (one.axis == "training" and self.snapshot.outcome == "ok")
            for one in broken(self.agreements)
        )

    @cached_property
    def agreements(self) -> tuple[RankAgreements, ...]:
        """What frameworks need to be equal, or different, on some ranks, as each was given it."""
        size = self.snapshot.world_size
        return (*self.snapshot.agreements, *of_calls(self.reports.values(), size))

    @cached_property
    def thread_clash(self) -> ThreadClash | None:
        """The collective of a thread that kept the ranks from meeting; None if there is none."""
        return thread_clash(self.snapshot, self.matching)

    @cached_property
    def discord(self) -> Discord | None:
        return discord(self.snapshot)

    @cached_property
    def program(self) -> Program:
        """The cells as a program that can be analysed."""
        return Program.of(self.snapshot)

    @cached_property
    def escape_paths(self) -> EscapePaths:
        """The paths that avoid calls, as far as the program shows them."""
        partitions = {part.rank: part for part in self.snapshot.partition}
        return EscapePaths(self.program, partitions)

    @cached_property
    def lock_holders(self) -> dict[int, int]:
        """For each rank that waits for the lock of a file, the rank that holds the lock."""
        return lock_holders(self.snapshot.ranks)

    @cached_property
    def ways(self) -> Ways:
        """How ranks came to the lines of their calls."""
        return Ways(self.program)

    @cached_property
    def partings(self) -> Partings:
        """Where ranks were observed to take different paths."""
        return Partings(
            self.snapshot, self.program, self.matching.meetings, self.escape_paths, self.ways
        )

    def why_absent(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """Why ``absent`` did not reach ``call``, which ``caller`` has made.

        An observed parting of the ranks comes first; the source is read only if there is none, and
        not believed about a condition at which both ranks were seen to go the same ways.

        Parameters
        ----------
        at
            Where ``absent`` was instead; None if it had finished the cell.
        """
        frames = self.escape_paths.frames(call, caller)
        ended = ended_framework(self.program, frames, caller, absent)
        if ended is not None:
            return ended
        observed = self.where_parted(call, caller, absent, at)
        if observed is not None and observed.priority != REPORTED:
            return observed
        stopped = stopped_alone(self.program, caller, absent)
        if stopped is not None:
            return stopped
        inferred = self.why_inferred(call, caller, absent, at)
        if observed is None:
            return inferred
        if inferred is not None and inferred.raises and inferred.cause == observed.cause:
            return inferred  # the condition under which the rank raised what was caught
        return observed

    def why_inferred(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """The same, from the source alone."""
        ranks = _with_stack(caller), _with_stack(absent)
        reason = self.escape_paths.why_absent(call, *ranks, at)
        if reason is None or self.partings.went_alike(reason.place, caller.rank, absent.rank):
            return None
        found = by_own_lines(self.program, call, caller, absent, at, reason)
        if found is None:  # the condition gave them their parts; one may have left a loop of both
            found = self.escape_paths.why_absent(call, *ranks, at, [reason.place])
            return found if found is not None and found.kind in LEAVES_LOOP else None
        if found.kind != "uneven-rounds":
            return found
        stored = (*stored_by_some(self.program, found.place, (caller.rank, absent.rank)),)
        return replace(found, values=found.values | {"stored": stored}) if stored else found

    def where_parted(
        self, call: Call, caller: RankReport, absent: RankReport, at: Position | None
    ) -> Reason | None:
        """The same, only as it was observed."""
        if caller.state == "died" and not caller.stack:
            caller = replace(caller, stack=tuple(reversed(crash_frames(caller.crash_text))))
        reason = self.partings.why_absent(call, caller, absent, at)
        if reason is None or gave_parts(self.program, call, caller, absent, at, reason):
            return None
        return reason

    @cached_property
    def halted(self) -> dict[int, Call]:
        """The call in which each victim is blocked, or which a peer's fault made it leave."""
        return {
            report.rank: call
            for report in self._as_halted
            if report.state == "blocked" and (call := report.blocked_call) is not None
        }

    @cached_property
    def _as_halted(self) -> tuple[RankReport, ...]:
        """Return the reports; ranks that left a call through a peer error are put back."""
        reports = []
        for report in self.snapshot.ranks:
            error = report.error
            call = None
            if report.state == "raised" and error is not None and is_peer_error(error):
                call = self._raised_in(report)
            elif report.rank in self.lost_sets:
                call = self.lost_sets[report.rank]
            elif report.rank in self.met_nobody:
                call = self.met_nobody[report.rank]
            reports.append(
                replace(report, state="blocked", blocked_in=call.index) if call else report
            )
        return tuple(reports)

    @cached_property
    def lost_sets(self) -> dict[int, Call | None]:
        """Ranks that lost a process set of Horovod, which ends with the first rank that ends.

        Calls in the set were complete before. Of each, the call for which a rank of the set is
        missing that has ended; None if there is none.
        """
        if any(self.program.calls("remove_process_set")):
            return {}
        reports = self.reports.values()
        ended = {one.rank for one in reports if one.state in ("finished", "died")}
        told = any(one.error is not None and is_peer_error(one.error) for one in reports)
        found: dict[int, Call | None] = {}
        for report in reports if ended or told else ():
            error, (*before, last) = report.error, report.calls or (None,)
            lost = error is not None and error.type == "ValueError" and _NO_SET in error.message
            if lost and last is not None:
                known = ((x.members, x.status) for x in before if x is not None)
                if (last.members, "done") in known:
                    found[report.rank] = last if ended & {*last.members} else None
        return found

    @cached_property
    def met_nobody(self) -> dict[int, Call]:
        """Ranks that aborted where ranks meet and others never came, and the call of each.

        So Horovod's library ends its process when its time limit is over.
        """
        found = {}
        for rank, report in self.reports.items():
            call = report.calls[-1] if report.calls else None
            if report.state != "died" or report.exit_signal != signal.SIGABRT or call is None:
                continue
            met = {
                other
                for other, theirs in self.reports.items()
                if any((one.op, one.sequence) == (call.op, call.sequence) for one in theirs.calls)
            }
            if call.kind == "setup" and call.status == "pending" and set(call.members) - met:
                found[rank] = call
        return found

    @staticmethod
    def _raised_in(report: RankReport) -> Call | None:
        """Return the call that raised a rank's exception, None if it was raised elsewhere."""
        if report.error is None:
            return None
        if report.error.call is not None:
            wanted = report.error.call
            return next((call for call in report.calls if call.index == wanted), None)
        # waiting for one of several asynchronous calls raised, so the later ones are still open
        later = (
            call
            for call in reversed(report.calls)
            if call.status != "issued" and not _destroys_on_the_way_out(call, report.error)
        )
        last = next(later, None)
        if last is None or not is_peer_error(report.error):
            return None
        # The Flight Recorder also retires a library's collective that failed.
        retired = last.source == "flight recorder" and last.where in (
            None,  # the lines of many collectives are not read
            report.error.where,
        )
        return last if retired or last.status in ("failed", "pending") else None

    @cached_property
    def waits(self) -> dict[int, Wait]:
        """What each victim waits for (see `halted`), unless its wait ends by itself."""
        return {
            rank: self._still_missing(wait)
            for rank, wait in waits(self._as_halted).items()
            if not gives_up(self.reports[rank], wait.call)
        }

    def _still_missing(self, wait: Wait) -> Wait:
        """Return the wait without ranks that are in the same call or left it through an error."""
        missing = frozenset(
            rank
            for rank in wait.missing
            if rank in wait.mismatched or not self._together(wait.call, self.halted.get(rank))
        )
        return replace(wait, missing=missing)

    @staticmethod
    def _together(one: Call, other: Call | None) -> bool:
        return (
            other is not None
            and one.kind == other.kind != "p2p"
            and (one.kind != "setup" or one.op == other.op)
            and (one.group, one.sequence) == (other.group, other.sequence)
        )

    @cached_property
    def endless(self) -> frozenset[int]:
        """Blocked ranks that could never have continued."""
        ranks = self.snapshot.ranks
        return cannot_complete(waits(ranks), ranks)

    def victims(self, ranks: Iterable[int]) -> list[int]:
        """Return the ranks that wait for ``ranks``, directly or through others."""
        culprits = set(ranks)
        reached = set(culprits)
        grown = True
        while grown:
            new = {rank for rank, wait in self.waits.items() if wait.missing & reached} - reached
            reached |= new
            grown = bool(new)
        return sorted(reached - culprits)

    def strayed(self, rank: int, call: Call) -> bool:
        """Whether a rank made the same call on a group of which it is not a member."""
        return call.kind == "collective" and any(
            single.rank == rank and single.call.op == call.op for single in self.matching.outsiders
        )

    @cached_property
    def handled(self) -> dict[int, RankError]:
        """Exceptions that ranks raised before they entered their current call."""
        earlier = {}
        for rank in self.halted:
            error = self.reports[rank].error
            first = first_of_chain(error) if error is not None else None
            if first is not None and not is_peer_error(first):
                earlier[rank] = first
        return earlier

    @cached_property
    def exhausted(self) -> frozenset[int]:
        """Ranks that still ran when the hang was declared and then ran out of memory.

        The interrupt that frees the other ranks cannot cause this error.
        """
        return frozenset(
            rank
            for rank, report in self.reports.items()
            if report.state in MOVING
            and report.error is not None
            and classify(report.error).symptom == "D.1.2"
        )

    def last_call(self, rank: int) -> Call | None:
        """Return the call in which a rank ended or is blocked, None if there is none."""
        report = self.reports[rank]
        if rank in self.halted:
            return self.halted[rank]
        if report.error is not None:
            return self._raised_in(report)
        if report.state == "died" and report.calls and report.calls[-1].status == "pending":
            return report.calls[-1]
        return None

    @cached_property
    def parted_in_silence(self) -> Mismatch | None:
        """The collective before a rank's own error in which ranks were out of step, yet fitted."""
        return parted_in_silence(self)

    @cached_property
    def consequences(self) -> dict[int, Mismatch | MessageMismatch]:
        """Ranks that died or raised because of a mismatch, with that mismatch."""
        result: dict[int, Mismatch | MessageMismatch] = {}
        silent = self.parted_in_silence
        for rank, report in self.reports.items():
            if report.state not in ("died", "raised"):
                continue
            if report.state == "died" and report.exit_signal not in _ABORTS:
                continue
            call = self.last_call(rank)
            if call is None and report.state == "died" and report.calls:
                last = report.calls[-1]
                call = last if last.status == "issued" else None  # it waited for the handle
            elif call is None and report.state == "raised" and report.calls:
                # what TensorFlow raises in a call may reach the program as another exception
                call = report.calls[-1] if report.calls[-1].status == "failed" else None
            mismatch = self._mismatch_before(rank, call) if call is not None else None
            mismatch = mismatch or self._overflow(rank) or self._received(report)
            if mismatch is None and silent is not None and report.state == "raised":
                mismatch = silent if rank in silent.calls else None
            if mismatch is not None:
                result[rank] = mismatch
        return result

    def _mismatch_before(self, rank: int, call: Call) -> Mismatch | MessageMismatch | None:
        """Return the mismatch of a call, or an earlier one that spoiled the group for it."""
        for message in self.matching.message_mismatches:
            mine = message.send if message.sender == rank else message.receive
            if rank in message.ranks and mine == call:
                return message
        if call.kind != "collective" or call.sequence is None:
            return None
        for mismatch in self.matching.mismatches:
            if mismatch.group != call.group or rank not in mismatch.ranks:
                continue
            spoiled = mismatch.sequence < call.sequence and _SPOILS.intersection(mismatch.fields)
            own_error = self.reports[rank].error
            foreign = own_error is None or is_peer_error(own_error)
            # what a graph has more on another rank meets what comes next on this one; and after a
            # call that failed, as where Keras tries a layer again, the next ones fail as well
            first = mismatch.calls[rank]
            goes_on = known_operation(first.op) is None or first.status == "failed"
            inside = mismatch.sequence < call.sequence and goes_on
            inside = inside and own_error is not None and own_error.call == call.index
            if mismatch.sequence == call.sequence or (spoiled and foreign) or inside:
                return mismatch
        return None

    def _received(self, report: RankReport) -> Mismatch | None:
        """Return the mismatch of the last collective, if its statement raised after it returned.

        What the rank received in it was meant for another call.
        """
        error, last = report.error, report.calls[-1] if report.calls else None
        if error is None or last is None or error.where is None or last.where is None:
            return None
        if (error.where.file, error.where.line) != (last.where.file, last.where.line):
            return None
        found = self._mismatch_before(report.rank, last) if last.status == "done" else None
        if not isinstance(found, Mismatch) or found.sequence != last.sequence:
            return None
        return found if _SPOILS.intersection(found.fields) else None

    def _overflow(self, rank: int) -> MessageMismatch | None:
        """Return the message that did not fit into the tensor of a rank that died.

        gloo aborts the process or writes past the end of the tensor, maybe after the call.
        """
        if self.reports[rank].state != "died":
            return None
        for message in self.matching.message_mismatches:
            sent, room = message_bytes(message.send), message_bytes(message.receive)
            if message.receiver == rank and sent is not None and room is not None and sent > room:
                return message
        return None

    # -- places ----------------------------------------------------------------------------------

    def place(self, position: Position | None, role: Role = "stood") -> Place | None:
        """Return a line with what a rank did there; missing source is looked up."""
        if position is None:
            return None
        known = self._places.get((position, role))
        if known is None:
            code = position.code or self.snapshot.code_at(position).strip()
            known = Place(
                file=position.file,
                line=position.line,
                function=position.function,
                code=code,
                role=role,
            )
            self._places[position, role] = known
        return known

    @cached_property
    def _places(self) -> dict[tuple[Position, Role], Place]:
        return {}

    def label(self, position: Position | None) -> str:
        """Return ``cell[3] line 6: dist.all_reduce(loss)``, which distinguishes lines."""
        place = self.place(position)
        return place.label if place is not None else "an unknown line"

    def where(self, rank: int) -> Position | None:
        """Return the line where a rank was: its blocked call, its error, or else its last line."""
        report = self.reports[rank]
        call = self.halted.get(rank)
        waits_for_handle = report.state == "blocked" and not report.device_waits
        if waits_for_handle and call is not None and call.asynchronous:
            return report.position or call.where  # it waits for the handle at another line
        if call is not None and call.where is not None:
            return call.where
        if report.error is not None and report.error.where is not None and report.state == "raised":
            return report.error.where
        if report.state == "died":  # the crash wrote these frames after the last line was seen
            frames = crash_frames(report.crash_text)
            mine = (f for f in frames if f.cell is not None or _is_file_of_user(f.file))
            return next(mine, report.position)
        return report.position

    def places(self, ranks: Iterable[int]) -> dict[int, Place]:
        """Return where ranks were, without those whose line is unknown."""
        known = {rank: self.where(rank) for rank in sorted(set(ranks)) if rank in self.reports}
        found = {rank: self.place(where, self._role(rank)) for rank, where in known.items()}
        return {rank: place for rank, place in found.items() if place is not None}

    def _role(self, rank: int) -> Role:
        """Return what a rank did at its last line."""
        if rank in self.halted:
            return "waits"
        state = self.reports[rank].state
        if state in MOVING:
            return "runs"
        return state if state in ("raised", "died") else "stood"

    def counterpart(self, call: Call, rank: int) -> Call | None:
        """Return the call with which ``rank`` entered a collective, None if it never did."""
        if call.sequence is None:
            return None
        return self.matching.meetings.get(call.group, {}).get(call.sequence, {}).get(rank)

    def blocked_for(self, ranks: Iterable[int]) -> float | None:
        """Return for how many seconds the longest waiting of ``ranks`` has been waiting."""
        times = [self.reports[rank].blocked_s for rank in ranks]
        return max((t for t in times if t is not None), default=None)
