"""What the magics that run cells share: the active session, and how a run is shown."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import Any

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics

from ..assistant.errors import in_magics
from ..diagnosis import diagnose
from ..diagnosis.compare_runs import compare
from ..host import idle_ranks, launcher
from ..host.errors import SessionError
from ..host.limits import check_framework, parse_simulated
from ..host.place import Place
from ..host.run_result import RunResult
from ..host.session import Session, active
from ..model.frameworks import described
from ..runs import observe_next_run, view_of
from ..views import safe
from ..views.comparison import ComparisonView
from ..views.displayable import Displayable
from ..views.overview import Overview
from ..views.registry import below_diagnosis
from ..views.report import DisplayedReport, show
from ..views.run_view import RunView
from .cell_position import first_line
from .config import DDT
from .failure import CellFailed
from .output_stream import OutputStreamer, live_line

#: So many ranks start within two seconds, also on two busy cores.
_SOON_STARTED = 16
#: Options that start ranks on other hosts.
WAYS = ("join", "hosts", "slurm", "ray")


class RunningMagics(Magics):
    """Base of the magics that work on the one active session of the notebook.

    Parameters
    ----------
    shell
        The notebook's shell.
    config
        The defaults that ``%config DDT`` sets.
    """

    def __init__(self, shell: InteractiveShell, config: DDT) -> None:
        super().__init__(shell)
        self._shell = shell
        self._defaults = config

    @property
    def _has_buttons(self) -> bool:
        """Whether a panel with buttons can be shown."""
        return self._defaults.widgets and getattr(self._shell, "kernel", None) is not None

    def _session(self, *, wake: bool = True) -> Session:
        session = active.get()
        if session is None:
            raise UsageError("no session: start one with %ddt_start -n 4 first")
        if wake:
            self._wake(session)
        return session

    def _wake(self, session: Session) -> None:
        """Start new ranks if they were stopped because nobody used them."""
        if session.resting:
            with one_line("ddt"), self._while_starting(session.world_size, session.framework or ""):
                session.wake()

    def _start(self, args: argparse.Namespace) -> Session:
        """A session from a magic's options, the rest from the defaults."""
        given = {name: value for name, value in vars(args).items() if value is not None}
        defaults = self._defaults
        framework = given.get("framework", "")
        if not given.keys().isdisjoint(WAYS):
            with one_line("ddt_start"):  # before anybody waits for hosts
                if framework:
                    check_framework(framework, on_hosts=framework, simulated="simulate" in given)
                backend, device = given.get("backend", defaults.backend), given.get("device")
                parse_simulated(given.get("simulate"), backend, device)
        ranks, hosts = self._hosts(given)
        starting = self._while_starting(ranks, framework) if hosts is None else nullcontext()
        with one_line("ddt_start"), starting:
            try:
                session = Session(
                    ranks,
                    hosts=hosts,
                    backend=given.get("backend", defaults.backend),
                    device=given.get("device", None if "simulate" in given else defaults.device),
                    timeout=given.get("timeout", defaults.timeout),
                    hang_after=given.get("hang_after", defaults.hang_after),
                    memory=given.get("memory", defaults.memory),
                    seed=given.get("seed"),
                    group=not given.get("no_group", False),
                    simulate=given.get("simulate"),
                    framework=given.get("framework"),
                )
            except BaseException:
                if hosts is not None:
                    hosts.close()
                raise
        idle_ranks.watch(session, defaults.idle_minutes, self._say)
        return session

    def _hosts(self, given: Mapping[str, Any]) -> tuple[int, Place | None]:
        """The number of ranks and the hosts on which they run; None for this machine."""
        ranks = given.get("world_size", self._defaults.ranks)
        if "join" in given:
            return ranks, self._joined(ranks, given)
        if "hosts" in given:
            return self._reached_by_ssh(given)
        if "slurm" in given:
            return self._in_allocation(given)
        if "ray" in given:
            return self._on_ray(given)
        return ranks, None

    def _joined(self, ranks: int, given: Mapping[str, Any]) -> Place:
        """Show the command that joins hosts, wait for them, and take the command away again."""
        from ..host.joining import LIMIT_S, Joining

        in_notebook = getattr(self._shell, "kernel", None) is not None
        printed: list[str] = []
        with one_line("ddt_start"), live_line(self._shell, "waiting for hosts …") as show:

            def say(text: str) -> None:
                command, _, progress = text.partition("\n")
                if not in_notebook and not printed:  # the live lines of a terminal are cut
                    printed.append(command)
                    print(command, flush=True)
                show(text if in_notebook else progress)

            joining = Joining(
                ranks,
                given.get("nnodes", ranks),
                given["join"],
                limit_s=given.get("wait", LIMIT_S),
                say=say,
                framework=given.get("framework", ""),
            )
            return joining.place()

    def _reached_by_ssh(self, given: Mapping[str, Any]) -> tuple[int, Place]:
        from ..host.engines.ssh import Ssh
        from ..host.joining import LIMIT_S, parse_hosts, start_with

        with one_line("ddt_start"), live_line(self._shell, "starting agents by ssh …") as say:
            wanted = parse_hosts(given["hosts"])
            ranks = sum(host.ranks for host in wanted)
            if given.get("world_size", ranks) != ranks:
                raise SessionError(
                    f"{given['hosts']} starts {ranks} ranks, not {given['world_size']}",
                    "leave out -n",
                )
            engine = Ssh(wanted)
            limit_s, framework = given.get("wait", LIMIT_S), given.get("framework", "")
            return ranks, start_with(engine, wanted, limit_s=limit_s, say=say, framework=framework)

    def _in_allocation(self, given: Mapping[str, Any]) -> tuple[int, Place]:
        from ..host.engines.slurm import Allocation, Slurm
        from ..host.joining import LIMIT_S, start_with

        limit_s, framework = given.get("wait", LIMIT_S), given.get("framework", "")
        with one_line("ddt_start"), live_line(self._shell, "starting agents by srun …") as say:
            allocation = None
            if "salloc" in given:
                allocation = Allocation(given["salloc"], limit_s=limit_s, say=say)
            try:
                engine = Slurm(given.get("world_size"), given["slurm"], allocation)
            except BaseException:
                if allocation is not None:
                    allocation.release()
                raise
            ranks = sum(host.ranks for host in engine.hosts)
            return ranks, start_with(
                engine, engine.hosts, limit_s=limit_s, say=say, framework=framework
            )

    def _on_ray(self, given: Mapping[str, Any]) -> tuple[int, Place]:
        from ..host.engines.ray_cluster import RayCluster
        from ..host.joining import LIMIT_S, start_with

        limit_s, framework = given.get("wait", LIMIT_S), given.get("framework", "")
        with one_line("ddt_start"), live_line(self._shell, "entering the Ray cluster …") as say:
            engine = RayCluster(
                given.get("world_size"),
                given.get("nnodes"),
                given["ray"],
                limit_s=limit_s,
                say=say,
            )
            ranks = sum(host.ranks for host in engine.hosts)
            return ranks, start_with(
                engine, engine.hosts, limit_s=limit_s, say=say, framework=framework
            )

    def _say(self, line: str) -> None:
        """Print a line from another thread: below the cell that started the ranks."""
        if getattr(self._shell, "kernel", None) is not None:  # a terminal shows a prompt now
            print(line, flush=True)

    def _while_starting(self, ranks: int, framework: str = "") -> AbstractContextManager[object]:
        """Say what is waited for: in a notebook's first session, torch; later, only many ranks."""
        if self.shell is None:
            return nullcontext()
        if launcher.is_warm(framework):
            if ranks <= _SOON_STARTED:
                return nullcontext()
            return live_line(self.shell, f"starting {ranks} ranks …")
        what = f"torch and {described(framework).title}" if framework else "torch"
        return live_line(
            self.shell, f"starting: importing {what} for the ranks, once per notebook …"
        )

    def _run(
        self,
        session: Session,
        cell: str,
        args: argparse.Namespace,
        *,
        overview: bool = False,
        before: RunResult | None = None,
        number: int | None = None,
        begins_at: int | None = None,
        script: Sequence[str] = (),
        **settings: Any,
    ) -> Displayable:
        """Run a cell, or a script with its arguments, and show its diagnosis."""
        running = range(session.world_size) if args.ranks is None else args.ranks
        settings |= {
            "timeout": args.timeout,
            "number": number or self._shell.displayhook.prompt_count or None,  # as Out[] shows it
            "listener": OutputStreamer(
                self._shell, running, session.output_file, hosts=session.hosts
            ),
        }
        with one_line("ddt"):
            if script:
                run = session.run_script(script[0], script[1:], **settings)
            else:
                begins_at = begins_at or first_line(self._shell, cell)
                run = session.run_cell(cell, ranks=args.ranks, first_line=begins_at, **settings)
        if args.out:
            self._shell.user_ns[args.out] = run
        report = report_of(run)
        if report.findings:
            active.keep_faulty(run)
        shown: Displayable = report
        if overview and not run.frozen:
            views = _views(run)
            odd = sum(any(f.kind != "hint" for f in view.flags) for view in views.values())
            report = replace(report, flagging=odd)
            shown = Overview(report, views, cut_off=not run.ok)
        if before is not None:
            earlier = report_of(before)
            shown = ComparisonView(
                compare(earlier, report, (before.snapshot, run.snapshot)), earlier, report, shown
            )
        if run.ok:
            return shown
        in_terminal = getattr(self._shell, "kernel", None) is None
        colour = self._defaults.colour and self._shell.colors.lower() != "nocolor"
        if in_terminal:
            print(report.to_terminal(colour=colour) if shown is report else shown.to_text())
        else:
            self._shell.display_pub.publish(shown._repr_mimebundle_())
        raise CellFailed(report, colour=colour)


def script_of(args: argparse.Namespace, body: str | None) -> list[str]:
    """The script that a line names, with its arguments; empty for a cell.

    Below ``%%ddt --script FILE`` the body of the cell contains more arguments.
    """
    if args.script is None:
        return []
    if not args.script:
        raise UsageError("ddt: --script needs a file: %ddt --script train.py --lr 0.1")
    if args.ranks is not None:
        raise UsageError("ddt: a script runs on all ranks, as with torchrun: leave out -r")
    try:
        return [*args.script, *shlex.split(body or "", comments=True)]
    except ValueError as error:
        raise UsageError("ddt: a quotation mark is not closed") from error


def report_of(run: RunResult, notes: Iterable[str] = ()) -> DisplayedReport:
    """The diagnosis of a run, with notes on ranks that were replaced or are held."""
    killed = {report.rank for report in run.snapshot.ranks if report.killed}
    lost = [
        f"rank {rank} {'would not end and ' if rank in killed else ''}was replaced by a fresh one; "
        f"it lost {', '.join(names) if names else 'what this cell made'}"
        for rank, names in run.lost.items()
    ]
    what = "moment" if run.snapshot.outcome == "interrupted" else "hang"
    held = [f"the {what} is held: %ddt_show stacks shows it, %ddt_release ends it"]
    report = diagnose(run.snapshot)
    notes = [*lost, *(held if run.frozen else []), *notes, *observe_next_run(run, report)]
    return show(report, run.snapshot, notes)


def _views(run: RunResult) -> dict[str, RunView]:
    """The views of a run, less those of which nothing was recorded."""
    views = {}
    for view in below_diagnosis():
        with suppress(ValueError):
            views[view.name] = view_of(view.name, run)
    return views


@contextmanager
def one_line(magic: str) -> Iterator[None]:
    """Turn what the session refuses into the one-line error of a magic."""
    try:
        yield
    except (SessionError, ValueError) as error:
        raise UsageError(f"{magic}: {safe.one_line(in_magics(error), 1000)}") from error
