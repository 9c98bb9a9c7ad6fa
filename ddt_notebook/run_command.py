"""The command ``ddt-notebook run``: starts a job as it is started today, and records it."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import FrameType
from typing import Any

from .demo import use_colour
from .diagnosis import diagnose
from .jobs import recorder_folder
from .jobs.watch import JobWatch, Verdict
from .views import waiting, words
from .views.report import show

_TICK_S = 0.05
#: A wait is shown from this time on, in seconds, and again after as long.
_SHOW_WAIT_AFTER_S = 5.0
#: A job that is to be stopped gets this long between SIGTERM and SIGKILL, in seconds.
_STOP_LIMIT_S = 10.0


def add_run(commands: Any) -> None:
    """Declare the command on the parser of ``ddt-notebook``."""
    command = commands.add_parser(
        "run",
        help="run a job (torchrun, mpirun, srun, python …), record its ranks and diagnose it",
        description="Run a command that starts a distributed job, unchanged. Its ranks record "
        "themselves; a hang is reported while the job stands still, and a failure or a silent "
        "fault at its end. Output and exit status are those of the command.",
    )
    command.add_argument(
        "--to", type=Path, metavar="FOLDER", help="where to record (default: a new folder here)"
    )
    command.add_argument(
        "--hang-after",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="a wait that can no longer end is a hang after this time (default %(default)s)",
    )
    command.add_argument(
        "--on-hang",
        choices=("report", "stop", "wait"),
        default="report",
        help="report a hang and go on, report it and stop the job, or report it at the end",
    )
    command.add_argument(
        "--branches",
        action="store_true",
        help="observe which way each rank goes; always on from Python 3.12, slower on 3.11",
    )
    command.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND …")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print("ddt-notebook run: name the command that starts the job, such as", file=sys.stderr)
        print("  ddt-notebook run -- torchrun --nproc-per-node 2 train.py", file=sys.stderr)
        return 2
    folder = environment = None
    try:
        folder = _folder(options.to)
        environment = recorder_folder.environment(folder, os.environ, branches=options.branches)
    except OSError as error:  # the job must run all the same
        _say(f"the job is not recorded: {error.filename}: {error.strerror}")
    try:
        job = subprocess.Popen(command, env=environment)
    except OSError as error:
        print(f"ddt-notebook: {command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    _forward_signals(job)
    if folder is None or environment is None:
        return _status(job.wait())
    status = _Recording(folder, options, job).follow()
    return _status(status)


def _folder(asked: Path | None) -> Path:
    if asked is None:
        return Path(tempfile.mkdtemp(prefix=time.strftime("ddt-job-%m%d-%H%M-"), dir=".")).resolve()
    asked.mkdir(mode=0o700, parents=True, exist_ok=True)
    return asked.resolve()


def _forward_signals(job: subprocess.Popen[bytes]) -> None:
    def forward(number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT:  # a terminal sends that one to the job, too
            job.send_signal(number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, forward)


def _status(returned: int) -> int:
    """The exit status of a shell for a command that ended so."""
    return returned if returned >= 0 else 128 - returned


def _say(text: str) -> None:
    print(f"[ddt-notebook] {text}", file=sys.stderr, flush=True)


class _Recording:
    """Follows a job, and reports on it. An error of its own never ends the job."""

    def __init__(
        self, folder: Path, options: argparse.Namespace, job: subprocess.Popen[bytes]
    ) -> None:
        self._folder, self._options, self._job = folder, options, job
        self._watch = JobWatch(folder, hang_after_s=options.hang_after)
        self._shown_s = time.monotonic()
        self._stopped_s: float | None = None
        self._reports = 0
        self._broken = False

    def follow(self) -> int:
        while (status := self._job.poll()) is None:
            self._guarded(self._step)
            if self._stopped_s is not None and time.monotonic() - self._stopped_s > _STOP_LIMIT_S:
                self._job.kill()
        self._guarded(self._finish)
        return status

    def _guarded(self, action: Any) -> None:
        if self._broken:
            time.sleep(_TICK_S)
            return
        try:
            action()
        except Exception:  # noqa: BLE001  (the job is worth more than its record)
            self._broken = True
            (self._folder / "watch-error.txt").write_text(traceback.format_exc())
            _say(f"the job is no longer watched: {self._folder / 'watch-error.txt'} has the reason")

    def _step(self) -> None:
        verdict = self._watch.step(_TICK_S)
        now = self._watch.waiting
        waits = now is not None and now.waited_s > _SHOW_WAIT_AFTER_S
        if now is not None and waits and time.monotonic() - self._shown_s > _SHOW_WAIT_AFTER_S:
            self._shown_s = time.monotonic()
            _say("; ".join(waiting.parts(now)))
        if verdict is None:
            return
        self._save(verdict)
        if self._options.on_hang != "wait":
            self._print(verdict)
        if self._options.on_hang == "stop":
            _say("the job is stopped, since it hangs")
            self._stopped_s = time.monotonic()
            self._job.terminate()

    def _save(self, verdict: Verdict) -> None:
        self._reports += 1
        self._verdict = verdict
        self._shown = show(diagnose(verdict.snapshot), verdict.snapshot)
        name = self._folder / f"report-{self._reports}"
        verdict.snapshot.save(name.with_suffix(".ddt.json"))
        name.with_suffix(".txt").write_text(self._shown.to_text())
        plain = json.dumps(self._shown.to_json(), indent=2, ensure_ascii=False)
        name.with_suffix(".json").write_text(plain)

    def _print(self, verdict: Verdict) -> None:
        text = self._shown.to_terminal(colour=use_colour(sys.stderr))
        print(f"\n{text}\n", file=sys.stderr, flush=True)

    def _finish(self) -> None:
        verdict = self._watch.last()
        if verdict is not None:
            self._save(verdict)
            if verdict.outcome != "ok" or not self._shown.ok:
                self._print(verdict)
        elif self._reports and self._options.on_hang == "wait":
            self._print(self._verdict)
        _say(self._summary(verdict))
        self._watch.job.close()

    def _summary(self, verdict: Verdict | None) -> str:
        job = self._watch.job
        if not job.runs:
            why = job.why_not_recorded()
            return (
                "no rank was seen: no process of this command called "
                f"torch.distributed.init_process_group with the recorder in it{why}"
            )
        ranks = words.count(len(job.runs), "rank")
        found = len(self._shown.findings)
        what = words.count(found, "finding") if found else "no finding"
        calls = sum(len(report.calls) for report in self._verdict.snapshot.ranks)
        return (
            f"{ranks}, {words.count(calls, 'call')} recorded, {what}; "
            f"%ddt_load {self._folder} opens the record"
        )
