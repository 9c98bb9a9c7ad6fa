"""Sessions that all tests of a module share, and the steps by which a case is tested."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session

from ..fixtures.cases import CELL, Case
from .processes import gone

_EARLIER_CELL, _NEXT_CELL = CELL + 1, CELL + 2
_GONE_WITHIN_S = 5


class Ranks:
    """One session for each number of ranks, started when it is first needed."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[int, bool], Session] = {}
        self._seen: dict[int, psutil.Process] = {}

    def session(self, n: int, *, group: bool = True) -> Session:
        if (n, group) not in self._sessions:
            self._sessions[n, group] = Session(n, group=group, timeout=10.0, hang_after=0.5)
        session = self._sessions[n, group]
        self._note(session)
        return session

    def check(self, case: Case) -> RunResult:
        """Run a case and check that it has the expected findings and loses no rank needlessly."""
        session = self.session(case.n, group=case.group)
        session.run_cell("kept = 100 + rank", number=_EARLIER_CELL)
        run = session.run_cell(case.source, case.on, timeout=case.timeout, number=CELL)
        self._note(session)
        report = ddt.diagnose(run)
        assert not case.complaints(run.snapshot.outcome, report), str(report)
        died = {report.rank for report in run.snapshot.ranks if report.state == "died"}
        assert case.lost == "any" or set(run.lost) == died.union(case.lost)
        return run

    def check_still_usable(self, case: Case, lost: Collection[int] = ()) -> None:
        """The next cell of the session is healthy, and finds the variables of earlier cells."""
        session = self.session(case.n, group=case.group)
        form = "" if case.group else "dist.init_process_group('gloo')\n"
        leave = "" if case.group else "dist.destroy_process_group()\n"
        source = "total = torch.ones(2)\ndist.all_reduce(total)\nassert total[0] == world_size\n"
        run = session.run_cell(form + source + leave + "globals().get('kept')", number=_NEXT_CELL)
        assert run.ok, run.errors
        report = ddt.diagnose(run)
        assert not report.findings, str(report)
        assert not report.hints, str(report)
        for rank, text in run.outputs.items():
            assert rank in lost or text.split() == [str(100 + rank)]

    def stop(self) -> None:
        """Stop all sessions; according to the system, none of their processes may be left."""
        for session in self._sessions.values():
            self._note(session)
            session.stop()
        _, left = psutil.wait_procs(self._seen.values(), timeout=_GONE_WITHIN_S)
        assert not left

    def _note(self, session: Session) -> None:
        """Add the processes of a session, and all that these started, to those that must end."""
        for pid in session.process_ids()[:-1]:  # the fork server serves other sessions, too
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                for known in (process, *process.children(recursive=True)):
                    self._seen.setdefault(known.pid, known)


@pytest.fixture(scope="module")
def ranks() -> Iterator[Ranks]:
    """The sessions of this module."""
    shared = Ranks()
    yield shared
    shared.stop()


@pytest.fixture
def session() -> Iterator[ddt.Session]:
    """A session of two ranks; afterwards no process of it may be left."""
    made = ddt.Session(2)
    pids = made.pids
    yield made
    made.stop()
    assert gone([*pids, *made.pids])
