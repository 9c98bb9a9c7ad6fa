"""The command ``ddt-notebook run``: starts a job with its usual command, and records it."""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from .argument_types import seconds
from .demo import use_colour
from .diagnosis import diagnose
from .formatting import naming_hosts
from .host.errors import SessionError
from .host.limits import parse_bytes, parse_simulated
from .jobs import job_key, recorder_folder
from .jobs.launches import allocation_of, is_recorded
from .jobs.passed_signals import PassedSignals
from .jobs.recorded_process import RecordedRank
from .jobs.watch import JobWatch, collect_garbage_rarely
from .model import FormatError, Snapshot
from .preflight.shadows import shadow_checks
from .runs import observe_next_run
from .views import safe, waiting, words
from .views.report import DisplayedReport, show
from .wire import job_files
from .wire.rank_inputs import INPUTS

if TYPE_CHECKING:
    from .jobs.collector import Collection

#: Time between two looks at the job, in seconds, and while all ranks are at work.
_TICK_S, _AT_WORK_S = 0.05, 0.25
#: A wait is shown from this time on, in seconds, and again after as long.
_SHOW_WAIT_AFTER_S = 5.0
#: A job that is to be stopped gets this long between SIGTERM and SIGKILL, in seconds.
_STOP_LIMIT_S = 10.0
#: The system ends a process this long after SIGKILL, in seconds.
_KILL_LIMIT_S = 2.0
#: A launcher gets this long to end or restart the ranks after one has failed, in seconds: torchrun
#: waits 30 s for ranks that do not end at SIGTERM.
_LAUNCHER_LIMIT_S = 40.0
#: Another host gets this long to report a hang, or to end after this one, in seconds.
_OTHERS_LIMIT_S = 10.0


def add_run(commands: Any) -> None:
    """Declare the command on the parser of ``ddt-notebook``."""
    command = commands.add_parser(
        "run",
        usage="ddt-notebook run [-h] [--to FOLDER] [--hang-after SECONDS] "
        "[--on-hang {report,stop,wait}] [--collect HOST:PORT] [--branches] [--record-inputs RANK] "
        "[--record-limit SIZE] [--simulate cuda:N] -- COMMAND ...",
        help="run a job (torchrun, mpirun, srun, python …), record its ranks and diagnose it",
        description="Run a command that starts a distributed job, unchanged. Its ranks record "
        "themselves; a hang is reported while the job stands still, and a failure or a silent "
        "fault at its end. Output and exit status are those of the command.",
    )
    command.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where to record (default: a new folder here)"
    )
    command.add_argument(
        "--collect",
        type=_address,
        metavar="HOST:PORT",
        help="of a job on hosts without a common folder: the host with this address collects the "
        f"records of all, encrypted; {job_key.VARIABLE} holds the key (see ddt-notebook key)",
    )
    command.add_argument(
        "--hang-after",
        type=seconds,
        default=3.0,
        metavar="SECONDS",
        help="a wait that can no longer end is a hang after this time (default %(default)s)",
    )
    command.add_argument(
        "--on-hang",
        choices=("report", "stop", "wait"),
        default="report",
        help="report a hang and leave the job as it is (default), report it and stop the job, or "
        "report it when the job has ended",
    )
    command.add_argument(
        "--branches",
        action="store_true",
        help="observe which way each rank goes; always on from Python 3.12, slower on 3.11",
    )
    command.add_argument(
        "--record-inputs",
        type=_rank,
        metavar="RANK",
        help="keep what this rank receives, so that %%ddt_replay can run it without the others; "
        "it costs the rank about 0.4 ms a call and 1 ms a megabyte, and with --collect it stays on "
        "the rank's host",
    )
    command.add_argument(
        "--record-limit",
        type=_size,
        default=1 << 30,
        metavar="SIZE",
        help="keep at most so much of that, from the start of the job on (default 1G)",
    )
    command.add_argument(
        "--simulate",
        type=_gpus,
        default=0,
        metavar="cuda:N",
        help="pretend in each process that there are N GPUs: devices are checked, the CPU computes",
    )
    command.add_argument(
        "command",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND …",
        help="how the job is started, such as torchrun --nproc-per-node 2 train.py",
    )
    command.set_defaults(run=_run)

    key = commands.add_parser(
        "key",
        help="make the key of a job whose hosts share no folder (run --collect)",
        description=f"Print a new key. {job_key.VARIABLE} must hold the same one on all hosts of a "
        "job that ddt-notebook run --collect records.",
    )
    key.set_defaults(run=_key)


def _key(options: argparse.Namespace) -> int:
    print(job_key.new_key())
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def _rank(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a rank; write one, such as 1")
    return int(text)


def _size(text: str) -> int:
    try:
        return parse_bytes(text)
    except SessionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _gpus(text: str) -> int:
    try:
        return parse_simulated(text, "gloo", None)
    except SessionError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print("ddt-notebook run: name the command that starts the job, such as", file=sys.stderr)
        print("  ddt-notebook run -- torchrun --nproc-per-node 2 train.py", file=sys.stderr)
        return 2
    other = _other_job(options.to) if options.to is not None else ""
    if other:
        print(
            f"ddt-notebook run: {options.to} holds the record of another job{other}: "
            "name a new folder, or remove this one",
            file=sys.stderr,
        )
        return 2
    folder = environment = None
    secret = job_key.given_secret() if options.collect else ""
    try:
        folder = _folder(options.to)
        kept = options.record_inputs
        environment = recorder_folder.environment(
            folder,
            os.environ,
            branches=options.branches,
            inputs=f"{kept}:{options.record_limit}" if kept is not None else "",
            gpus=options.simulate,
        )
    except OSError as error:  # the job must run all the same
        _say(f"the job is not recorded: {error.filename}: {error.strerror}")
    try:
        job = subprocess.Popen(command, env=environment)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        why = "this command was not found" if missing else error.strerror
        if isinstance(error, PermissionError) and command[0].endswith(".py"):
            why = f"this file is not executable; `python {shlex.quote(command[0])}` runs it"
        print(f"ddt-notebook run: {command[0]}: {why}", file=sys.stderr)
        if folder is not None and options.to is None:
            shutil.rmtree(folder, ignore_errors=True)
        return 127 if missing else 126
    signals = PassedSignals(job)
    signals.install()
    if folder is None or environment is None:
        status = job.wait()
        signals.end_left(_STOP_LIMIT_S)
        return _status(status)
    _allow_many_files()  # now, since the job keeps the limits that it had
    collect_garbage_rarely()
    collection = _collection(folder, options.collect, secret) if options.collect else None
    try:
        status = _Recording(folder, options, job, collection=collection).follow(signals)
    finally:
        if collection is not None:
            collection.close()
    return _status(status)


def _collection(folder: Path, address: tuple[str, int], secret: str) -> Collection | None:
    from .jobs.collector import collect  # only these jobs need ZeroMQ

    try:
        return collect(folder, address, secret, _say)
    except SessionError as error:  # the job runs already
        _say(f"{error}; this host reports on its own ranks")
        return None


def _other_job(folder: Path) -> str:
    """Whether and how a folder shows that another job has recorded to it; empty if it does not.

    Watchers of other hosts may have begun with the same job.
    """
    if is_recorded(folder, socket.gethostname()):
        return " on this host"
    own, theirs = job_files.allocation(os.environ), allocation_of(folder)
    return f" ({theirs}; this one is {own})" if own and theirs and own != theirs else ""


def _folder(asked: Path | None) -> Path:
    if asked is None:
        return Path(tempfile.mkdtemp(prefix=time.strftime("ddt-job-%m%d-%H%M-"), dir=".")).resolve()
    asked.mkdir(mode=0o700, parents=True, exist_ok=True)
    return asked.resolve()


def _allow_many_files() -> None:
    """Let this process open as many files as the system allows; it holds four for each rank."""
    with suppress(ValueError, OSError):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _status(returned: int) -> int:
    """The exit status of a shell for a command that ended so."""
    return returned if returned >= 0 else 128 - returned


def _say(text: str) -> None:
    print(f"[ddt-notebook] {safe.clean(text)}", file=sys.stderr, flush=True)


def _hidden_modules(command: Any) -> Iterator[str]:
    """Which files beside a command's scripts Python imports in place of modules of its own."""
    scripts = [Path(word) for word in command if word.endswith(".py") and Path(word).is_file()]
    folders = dict.fromkeys(script.resolve().parent for script in scripts)
    for check in shadow_checks([*folders] or [Path.cwd()]):
        if check.verdict == "error":
            yield f"{check.seen}: {check.meaning}; if that is not intended, {check.fix}"


class _Recording:
    """Follows a job, and reports on it. An error of its own never ends the job.

    If the command runs several jobs at the same time, each has its own; the first one, which also
    ends the command, is the ``first`` of the others.
    """

    def __init__(
        self,
        folder: Path,
        options: argparse.Namespace,
        job: subprocess.Popen[bytes],
        *,
        only: str = "",
        first: _Recording | None = None,
        collection: Collection | None = None,
    ) -> None:
        self._folder, self._options, self._job = folder, options, job
        self._watch = JobWatch(folder, hang_after_s=options.hang_after, only=only, command=job.pid)
        self._first = first or self
        self._collection = collection
        self._others: dict[str, _Recording] = {}
        self._shown_s = time.monotonic()
        self._stopped_s: float | None = None
        self._stopped_alone: list[psutil.Process] = []  # if the command goes on with other jobs
        self._stopped_once = False
        self._failed_s: float | None = None
        self._reports = 0
        self._kept: list[DisplayedReport] = []  # shown at the end, if hangs are not reported before
        self._broken = False
        self._builds: list[job_files.Build] = []  # of which was told

    def follow(self, signals: PassedSignals) -> int:
        while (status := self._job.poll()) is None:
            self._guarded(self._step)
            for one in self._all:
                one._kill_late()
        for one in self._all:
            if one._stopped_s is not None:
                self._guarded(one._end_ranks)
        if left := signals.end_left(_STOP_LIMIT_S):
            _say(f"{words.count(left, 'process')} that the command left behind: ended")
        self._guarded(self._finish)
        return status

    @property
    def _all(self) -> tuple[_Recording, ...]:
        """Those of all jobs of the command."""
        return (self._first, *self._first._others.values())

    @property
    def _ranks(self) -> list[RecordedRank]:
        """The ranks that are stopped together."""
        jobs = (self,) if self._stopped_alone else self._all
        return [rank for one in jobs for rank in one._watch.job.ranks]

    def _kill_late(self) -> None:
        """Kill a job that has not ended long after it was stopped."""
        if self._stopped_s is None or time.monotonic() - self._stopped_s < _STOP_LIMIT_S:
            return
        self._stopped_s = None
        if not self._stopped_alone:
            self._job.kill()
        for launcher in self._stopped_alone:
            with suppress(psutil.Error):
                launcher.kill()
        for rank in self._ranks:  # they outlive a launcher that was killed
            rank.kill()

    def _end_ranks(self) -> None:
        """End the ranks of a stopped job that its launcher has left behind, as DeepSpeed's does."""
        assert self._stopped_s is not None
        ranks = self._ranks
        while any(rank.is_here and rank.runs for rank in ranks):
            if time.monotonic() - self._stopped_s > _STOP_LIMIT_S:
                for rank in ranks:
                    rank.kill()
                killed = [rank.process for rank in ranks if rank.process is not None]
                psutil.wait_procs(killed, timeout=_KILL_LIMIT_S)
                return
            time.sleep(_TICK_S)

    def _guarded(self, action: Any) -> None:
        if self._broken:
            time.sleep(_TICK_S)
            return
        try:
            action()
        except Exception:  # noqa: BLE001  (the job is worth more than its record)
            self._broken = True
            text = traceback.format_exc()
            try:
                (self._folder / "watch-error.txt").write_text(text, "utf-8", "replace")
                _say(f"the job is no longer watched, see {self._folder / 'watch-error.txt'}")
            except OSError:
                _say(f"the job is no longer watched:\n{text}")

    def _step(self) -> None:
        self._look()
        for name in self._watch.job.beside - set(self._others):
            self._others[name] = _Recording(
                self._folder,
                self._options,
                self._job,
                only=name,
                first=self,
                collection=self._collection,
            )
        for other in self._others.values():
            other._look()

    def _look(self) -> None:
        if self._collection is not None:
            self._watch.let_report(self._collection.reports_here())
            reason = self._collection.stop_reason
            if reason and self._stopped_s is None and not self._stopped_once:
                self._stop(reason)
        snapshot = self._watch.step(_TICK_S, at_work_s=_AT_WORK_S / len(self._all))
        if not self._watch.judged:
            self._failed_s = None  # its launcher has started the ranks again
        if self._failed_s is not None and time.monotonic() - self._failed_s > _LAUNCHER_LIMIT_S:
            self._failed_s = None
            self._stop("a rank has failed, and the others wait for it")
        now = self._watch.waiting
        waits = now is not None and now.waited_s > _SHOW_WAIT_AFTER_S
        if now is not None and waits and time.monotonic() - self._shown_s > _SHOW_WAIT_AFTER_S:
            self._shown_s = time.monotonic()
            with naming_hosts(self._watch.job.hosts):
                _say("; ".join(waiting.parts(now)))
        if self._first is self and time.monotonic() - self._shown_s > _SHOW_WAIT_AFTER_S:
            self._say_builds()
        if snapshot is None:
            return
        here = self._watch.job.reports_here
        if here:
            self._report(snapshot)
        if not self._watch.judged:
            if here:
                self._print_faults(snapshot)
                _say(f"other ranks were started; those before them: {self._counts(snapshot)}")
            return
        self._act(snapshot, here=here)

    def _say_builds(self) -> None:
        """Say once which processes build an extension, or wait for one that may be of no process.

        They need not be ranks yet: DeepSpeed builds before it forms a group.
        """
        for file in sorted(self._folder.glob(f"{socket.gethostname()}-*.build")):
            with suppress(OSError, FormatError):
                noted = job_files.read(file)
                if isinstance(noted, job_files.Build) and noted not in self._builds:
                    self._builds.append(noted)
                    _say(waiting.of_process(noted.pid, noted.waits_for, noted.file, noted.held_by))

    def _act(self, snapshot: Snapshot, *, here: bool) -> None:
        """Show what was found, and stop the job if that was asked for."""
        if here and self._options.on_hang == "wait":
            self._kept.append(self._shown)
        elif here:
            self._print_faults(snapshot)
        if self._watch.job.ended:
            _say("the ranks have ended, and the command still runs")
        elif self._options.on_hang == "stop" and snapshot.outcome == "hung":
            if not here:
                self._wait_for_report()
            self._stop("it hangs")
        elif self._options.on_hang == "stop":
            self._failed_s = time.monotonic()

    def _stop(self, reason: str) -> None:
        self._stopped_once = True
        others = [one for one in self._all if one is not self and not one._watch.job.ended]
        if not others:
            _say(f"the job is stopped, since {reason}")
            if self._collection is not None:
                self._collection.stop(reason)
            self._first._stopped_s = time.monotonic()
            self._job.terminate()
            return
        _say(f"the job is stopped, since {reason}; the other jobs of the command go on")
        self._stopped_alone = self._own_processes(others)
        self._stopped_s = time.monotonic()
        for process in self._stopped_alone:
            with suppress(psutil.Error):
                process.terminate()

    def _own_processes(self, others: list[_Recording]) -> list[psutil.Process]:
        """The launchers of this job alone, or its ranks if they share one with other jobs."""
        theirs = {rank.pid for one in others for rank in one._watch.job.ranks if rank.is_here}
        found = []
        for rank in self._watch.job.ranks:
            if rank.process is None:
                continue
            highest = rank.process
            with suppress(psutil.Error):
                parents = {one.pid: one for one in rank.process.parents()}
                if self._job.pid not in parents:  # a batch system started it
                    parents = {}
                for pid, parent in parents.items():
                    below = {child.pid for child in parent.children(recursive=True)}
                    if pid == self._job.pid or below & theirs:
                        break
                    highest = parent
            found.append(highest)
        return list(dict.fromkeys(found))

    def _wait_for_report(self) -> None:
        """Let the first rank's host see the hang as it is, before ranks are ended here."""
        limit_s = time.monotonic() + _OTHERS_LIMIT_S
        while not any(self._folder.glob("report-*.json")) and time.monotonic() < limit_s:
            if self._collection is not None and self._collection.stop_reason:
                return
            time.sleep(_TICK_S)
            self._watch.share()  # the first rank's host asks for it

    def _report(self, snapshot: Snapshot) -> None:
        """Diagnose a snapshot, and write the report to the folder."""
        self._first._reports += 1
        self._snapshot = snapshot
        report = diagnose(snapshot)
        self._shown = show(report, snapshot, observe_next_run(snapshot, report))
        name = self._folder / f"report-{self._first._reports}"
        try:
            snapshot.save(name.with_suffix(".ddt.json"))
            name.with_suffix(".txt").write_text(self._shown.to_text(), "utf-8")
            plain = json.dumps(self._shown.to_json(), indent=2, ensure_ascii=False)
            name.with_suffix(".json").write_text(plain, "utf-8")
        except OSError as error:
            _say(f"the report could not be written: {error.filename}: {error.strerror}")

    def _print(self, shown: DisplayedReport) -> None:
        text = shown.to_terminal(colour=use_colour(sys.stderr))
        print(f"\n{text}\n", file=sys.stderr, flush=True)

    def _print_faults(self, snapshot: Snapshot) -> None:
        if snapshot.outcome != "ok" or not self._shown.ok:
            self._print(self._shown)

    def _finish(self) -> None:
        if self._collection is not None:
            self._watch.let_report(self._collection.reports_here(ending=True))
        for shown in self._kept:
            self._print(shown)
        job = self._watch.job
        limit_s = time.monotonic() + _OTHERS_LIMIT_S
        while job.runs_elsewhere and time.monotonic() < limit_s:
            time.sleep(_TICK_S)
            job.look()
        while (snapshot := self._watch.last()) is not None:
            if not job.reports_here:
                continue
            self._report(snapshot)
            self._print_faults(snapshot)
        for line in self._summary():
            _say(line)
        job.close()
        for other in self._others.values():
            other._finish()
        if self._first is not self:
            return
        for file in self._folder.glob("*.build"):
            file.unlink(missing_ok=True)
        if self._options.to is None and not any(self._folder.glob("*.*")):
            shutil.rmtree(self._folder, ignore_errors=True)  # nothing was recorded

    def _summary(self) -> Iterator[str]:
        job = self._watch.job
        if not job.runs:
            yield f"no rank was seen: {self._what_was_seen()}{job.why_not_recorded()}"
            if self._job.returncode or job.why_not_recorded():
                yield from _hidden_modules(self._job.args)
            return
        left = [rank for rank in job.ranks if rank.is_here and rank.runs]
        if left:
            numbers = ", ".join(f"rank {rank.rank} (process {rank.pid})" for rank in left[:8])
            yield f"the command has ended, but these ranks still run: {numbers}"
        if not job.reports_here:
            ranks, first = words.ranks(r.rank for r in job.ranks if r.is_here), job.ranks[0]
            reports = f"{first.started.host}, which ran rank {first.rank}, reports"
            if job.reports is False:
                reports = f"the host at {':'.join(map(str, self._options.collect))} reports"
            yield f"{ranks} ran here; {reports}"
            if any(self._folder.glob(f"*{INPUTS}")):
                yield from self._replay()
            return
        yield from job.died_at_exit
        yield from self._replay()
        yield f"{self._counts(self._snapshot)}; %ddt_load {self._folder} opens the record"

    def _replay(self) -> Iterator[str]:
        kept = self._options.record_inputs
        if kept is None or self._first is not self:
            return
        host = self._watch.job.hosts.get(kept, socket.gethostname())
        if any(self._folder.glob(f"*{INPUTS}")):
            yield f"%ddt_replay {self._folder} runs rank {kept} again, without the others"
        elif self._options.collect and host != socket.gethostname():
            yield f"the inputs of rank {kept} are kept on {host}; %ddt_replay runs it again there"
        else:
            yield (
                f"no inputs were kept: rank {kept} did not run here, or it does not exchange data "
                "through torch.distributed"
            )

    def _what_was_seen(self) -> str:
        """What the processes of a command without ranks did."""
        return recorder_folder.what_was_seen(recorder_folder.processes(self._folder))

    def _counts(self, snapshot: Snapshot) -> str:
        """What was seen and found in the ranks that were reported last."""
        found = len(self._shown.findings)
        what = words.count(found, "finding") if found else "no finding"
        calls = sum(len(report.calls) for report in snapshot.ranks)
        ranks = words.count(len(snapshot.ranks), "rank")
        return f"{ranks}, {words.count(calls, 'call')} recorded, {what}"
