"""Reads from the lines of logs what they say about the job as a whole."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ddt_notebook.model.log_facts import LogFacts, LogLine, LogTimeout, ProcessEnd, Said

from . import clocks, timeouts, working
from .lines import Line
from .sources import Origin, Source

#: The limits bound memory and what is shown; chosen, not measured. Different values that are kept
#: of one kind, characters that are kept of a line, and the last lines that are kept of a rank and
#: of those that no rank is named for.
_VALUES = 200
_EXCERPT = 240
_LAST_OF_RANK, _LAST_OF_ALL = 12, 400
#: The largest number of ranks that is believed.
_MOST_RANKS = 1 << 20
_ENDS = 64

#: NCCL's lines: host, process, thread and device before the text.
_NCCL = re.compile(r"(?<![^\s\]])([^\s:]{1,80}):(\d{1,10}):\d{1,10} \[\d+\] NCCL (?:INFO|WARN) ")
_COMM = re.compile(r"\bcomm 0x\w+ rank (\d+) n[Rr]anks (\d+)")
#: What NCCL prints with NCCL_DEBUG=INFO (init.cc, net.cc, transport/*.cc, misc/param.cc).
_NETWORK = (
    ("network", re.compile(r"Using network (\w[\w/ -]*)")),
    ("InfiniBand", re.compile(r"NET/IB ?: (No device found|Using \[0\].+?)(?=; OOB|\.?$)")),
    ("socket interfaces", re.compile(r"NET/Socket ?: Using (\[0\].+?)\.?$")),
    ("bootstrap interface", re.compile(r"Bootstrap ?: Using (?:\[0\])?([^:\s]+):")),
    ("libfabric provider", re.compile(r"NET/OFI Selected [Pp]rovider is (\w+)")),
    ("transport", re.compile(r"-> \S+(?: \[\w+\])? via (\S+)")),
    (
        "GPU Direct RDMA",
        re.compile(r"GPU Direct RDMA(?: \(\w+\))? (enabled|disabled)", re.IGNORECASE),
    ),
)
_SET = re.compile(r"\b([A-Z][A-Z0-9_]+) set by environment to (\S.*?)\.?$")
_ASSIGNED = re.compile(
    r"(?:^\s*(?:export |-e |\+ )?|\benv )"
    r"((?:NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|GLOO|UCX|FI|MASTER|CUDA_VISIBLE)_?\w*)=['\"]?([^\s'\"]+)"
)
_ADDRESS = re.compile(r"<\d+>|\[\d+\]")
_NUMBERS = re.compile(r"/\d+(?=/|$)|\(\d+\)")
_RELEASE = r"v?(\d+\.\d+(?:\.\d+)?[\w.+-]*\w)"
_VERSIONS = (
    ("NCCL", re.compile(r"(?<!with )NCCL version (\d[\w.+]*\w)")),
    (
        "torch",
        re.compile(
            r"\b(?:py)?torch(?:\.__version__|[ _]version)?['\"]?\s*(?::|=(?!=)|is)\s*['\"]?"
            + _RELEASE,
            re.IGNORECASE,
        ),
    ),
    (
        "CUDA",
        re.compile(
            r"\bCUDA (?:runtime )?(?:version|used to build PyTorch)\s*[:=]\s*(\d+\.\d+)",
            re.IGNORECASE,
        ),
    ),
    ("CUDA driver", re.compile(r"cudaDriverVersion (\d+)")),
    ("aws-ofi-nccl", re.compile(r"NET/OFI Initializing aws-ofi-nccl (\d[\w.-]*\w)")),
    ("DeepSpeed", re.compile(r"DeepSpeed info: version=(\d[\w.+]*\w)")),
    *(
        (
            name,
            re.compile(
                rf"\b{name}(?:[ _]version)?['\"]?\s*[:=](?!=)\s*['\"]?{_RELEASE}", re.IGNORECASE
            ),
        )
        for name in ("transformers", "accelerate", "deepspeed", "lightning", "datasets")
    ),
)
_PYTHON = re.compile(r'^\s*File "[^"]*/python(3\.\d+)/')
_WORLD = re.compile(
    r"\bn[Rr]anks (\d+)|\bworld[ _-]?size['\"]?\s?[:=]?\s?(\d+)|\bglobal_world_sizes=\[(\d+)"
    r"|\bNum processes: (\d+)",
    re.IGNORECASE,
)
_LAUNCHERS = (
    (
        "torchrun",
        ("torch/distributed/run.py", "torch.distributed.elastic", "torch/distributed/elastic"),
    ),
    ("Slurm", ("srun: ", "slurmstepd: ")),
    ("mpirun", ("mpirun noticed", "mpirun detected")),
    ("DeepSpeed", ("[launch.py:",)),
    ("accelerate", ("accelerate/commands/launch.py",)),
    ("horovodrun", ("horovodrun", "horovod/runner/")),
)
#: torchrun's summary, which names the first failure last.
_FIRST = "Root Cause (first observed failure)"
_SUMMARY_RANK = re.compile(r"\s*rank\s+: (\d{1,7}) \(local_rank: \d+\)")
_SUMMARY_CODE = re.compile(r"\s*exitcode\s+: (-?\d{1,3}) \(pid: \d+\)")
_SRUN = re.compile(r"srun: error: (\S+): tasks? ([\d,-]+): (.+)")
_SRUN_CODE = re.compile(r"Exited with exit code (\d+)")
_STEP = re.compile(
    r"slurmstepd: error: (?:\*\*\* (?:STEP|JOB) \S+ )(?:ON (\S+) )?CANCELLED AT \S+ (.*)"
)
_MPIRUN = re.compile(r"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)")
_DEEPSPEED = re.compile(r"exits with return code = (-?\d+)")
_POD = re.compile(r"^Name:\s+(\S+)")
_REASON = re.compile(r"^\s*Reason:\s+(\w+)")
_EXIT_CODE = re.compile(r"^\s*Exit Code:\s+(\d+)")
_POD_RESTARTS = re.compile(r"^\s*Restart Count:\s+(\d+)")
_RESTART = re.compile(r"(\d+)/(\d+) attempts left; will restart worker group|restart_count=(\d+)")
#: Time limits of gloo, of the store and of monitored_barrier, and the operation if it is not named.
_TIMEOUTS = (
    ("", re.compile(r"Timed out waiting (\d{1,12}) ?ms for (\w+)")),
    ("a request to the store", re.compile(r"waitForInput: .{0,200}timed out after (\d{1,12}) ?ms")),
    ("a request to the store", re.compile(r"[Ww]ait timeout after (\d{1,12}) ?ms, keys")),
    ("monitored_barrier", re.compile(r"to pass monitoredBarrier in (\d{1,12}) ms")),
)
#: The signals that srun names in words.
_SIGNALS = {"Segmentation fault": 11, "Aborted": 6, "Bus error": 7, "Killed": 9, "Terminated": 15}
_SIGTERM = 15

_Process = tuple[str, str, str]
#: An operation, its number in the group if it is known, and its time limit.
_Wait = tuple[str, int | None, float]


@dataclass(slots=True)
class _Tally:
    """Who printed a value."""

    line: LogLine
    ranks: set[int] = field(default_factory=set)
    processes: set[_Process] = field(default_factory=set)


class Reader:
    """Collects facts from the lines of one or several logs of a job."""

    def __init__(self) -> None:
        self._said: dict[str, dict[tuple[str, str], _Tally]] = defaultdict(dict)
        self._launchers: dict[str, LogLine] = {}
        self._rank_of: dict[_Process, tuple[int, int]] = {}
        self._world = 0
        self._ranks: set[int] = set()
        self._gave_up: dict[int, tuple[_Wait, Origin]] = {}
        self._by_nobody: dict[_Wait, Origin] = {}
        self._last: dict[Source, deque[Origin]] = {}
        self._ends: list[ProcessEnd] = []
        self._restarts = 0
        self._restarted: LogLine | None = None
        self._clocks = clocks.Events()
        self._order = 0
        self._summary: int | None = None
        self._first = False
        self._pod = self._reason = ""

    def read(self, lines: Sequence[Line], file: str = "", rank: int | None = None) -> None:
        """Add the lines of a log; those without a mark are of ``rank``, if it is given."""
        self._summary, self._first, self._pod, self._reason = None, False, "", ""
        text = "\n".join(line.text for line in lines)
        handlers = [(mark, handle) for mark, handle in _HANDLERS if mark in text]
        for line in lines:
            whose = line.rank if line.rank is not None else rank
            self._line(Origin(line.number, whose, line.text, file, self._order), handlers)
            self._order += 1

    def _line(self, line: Origin, handlers: Sequence[_Handler]) -> None:
        text = line.text
        if line.rank is not None:
            self._ranks.add(line.rank)
        last = self._last.get(line.source)
        if last is None:
            size = _LAST_OF_ALL if line.rank is None else _LAST_OF_RANK
            last = self._last[line.source] = deque(maxlen=size)
        last.append(line)
        for mark, handle in handlers:
            if mark in text:
                handle(self, line)
        self._clocks.read(line)

    # -- what a line says ---------------------------------------------------------------------

    def _note(
        self, group: str, name: str, value: str, line: Origin, whose: _Process | None
    ) -> None:
        values = self._said[group]
        key = name, value.strip()[:_EXCERPT]
        tally = values.get(key)
        if tally is None:
            if len(values) >= _VALUES:
                return
            tally = values[key] = _Tally(line.quoted())
        if line.rank is not None:
            tally.ranks.add(line.rank)
        elif whose is not None:
            tally.processes.add(whose)

    def _nccl(self, line: Origin) -> None:
        text = line.text
        process = None
        if match := _NCCL.search(text):
            process = (line.file, match[1], match[2])
            if comm := _COMM.search(text, match.end()):
                rank, size = int(comm[1]), int(comm[2])
                if rank < size <= _MOST_RANKS and size >= self._rank_of.get(process, (0, 0))[1]:
                    self._rank_of[process] = rank, size
            for name, pattern in _NETWORK:
                if found := pattern.search(text, match.end()):
                    self._note("network", name, _plain(name, found[1]), line, process)
        if match := _SET.search(text):
            self._note("variables", match[1], match[2], line, process)
        self._versions(line, process)

    def _version(self, line: Origin) -> None:
        if "NCCL" not in line.text:
            self._versions(line, None)

    def _versions(self, line: Origin, process: _Process | None) -> None:
        for name, pattern in _VERSIONS:
            if match := pattern.search(line.text):
                value = match[1]
                if name == "CUDA driver":
                    value = f"{int(value) // 1000}.{int(value) % 1000 // 10}"
                self._note("versions", name, value, line, process)

    def _python(self, line: Origin) -> None:
        if (match := _PYTHON.match(line.text)) and line.rank is not None:
            self._note("versions", "Python", match[1], line, None)

    def _assigned(self, line: Origin) -> None:
        if match := _ASSIGNED.search(line.text):
            self._note("variables", match[1], match[2], line, None)

    def _world_size(self, line: Origin) -> None:
        for match in _WORLD.finditer(line.text):
            size = int(next(filter(None, match.groups()))[:12])
            if self._world < size <= _MOST_RANKS:
                self._world = size

    def _launcher(self, line: Origin) -> None:
        for name, words in _LAUNCHERS:
            if name not in self._launchers and any(word in line.text for word in words):
                self._launchers[name] = line.quoted()

    def _timeout(self, line: Origin) -> None:
        found = timeouts.of_line(line.text, line.rank)
        if found is not None:
            rank, one = found
            self._waited(rank, (one.op, one.sequence, one.timeout_s), line)

    def _other_timeout(self, line: Origin) -> None:
        for op, pattern in _TIMEOUTS:
            if match := pattern.search(line.text):
                self._waited(line.rank, (op or match[2], None, int(match[1]) / 1000), line)
                return

    def _waited(self, rank: int | None, wait: _Wait, line: Origin) -> None:
        if rank is not None:
            self._gave_up.setdefault(rank, (wait, line))
        elif len(self._by_nobody) < _ENDS:
            self._by_nobody.setdefault(wait, line)

    # -- how processes ended ------------------------------------------------------------------

    def _end(self, line: Origin, **values: object) -> None:
        if len(self._ends) < _ENDS:
            self._ends.append(ProcessEnd(line=line.quoted(), **values))  # type: ignore[arg-type]

    def _torchrun(self, line: Origin) -> None:
        if match := _SUMMARY_RANK.match(line.text):
            self._summary = int(match[1])

    def _torchrun_code(self, line: Origin) -> None:
        if (match := _SUMMARY_CODE.match(line.text)) and self._summary is not None:
            status = int(match[1])
            signal = -status if status < 0 else None
            self._end(
                line,
                ranks=(self._summary,),
                code=None if signal else status,
                signal=signal,
                reason="launcher" if signal == _SIGTERM else "",
                first=self._first,
            )
            self._summary = None

    def _root(self, line: Origin) -> None:
        self._first = self._first or _FIRST in line.text

    def _slurm(self, line: Origin) -> None:
        if match := _SRUN.search(line.text):
            tasks = _tasks(match[2])
            how = match[3]
            code = _SRUN_CODE.search(how)
            signal = next((n for words, n in _SIGNALS.items() if how.startswith(words)), None)
            memory = "Out Of Memory" in how
            self._end(
                line,
                ranks=tasks,
                where=match[1],
                code=int(code[1][:3]) if code else None,
                signal=9 if memory else signal,
                reason="memory" if memory else "launcher" if signal == _SIGTERM else "",
            )
        elif match := _STEP.search(line.text):
            reason = "time" if "TIME LIMIT" in match[2] else "launcher"
            self._end(line, where=match[1] or "", signal=_SIGTERM, reason=reason)
        elif "oom_kill" in line.text or "oom-kill" in line.text:
            self._end(line, reason="memory", signal=9)

    def _mpirun(self, line: Origin) -> None:
        if match := _MPIRUN.search(line.text):
            signal = int(match[3][:3])
            self._end(line, ranks=(int(match[1]),), where=match[2], signal=signal, first=True)

    def _deepspeed(self, line: Origin) -> None:
        if match := _DEEPSPEED.search(line.text):
            status = int(match[1][:6])
            signal = -status if status < 0 else None
            self._end(line, code=None if signal else status, signal=signal)

    def _pod_name(self, line: Origin) -> None:
        if match := _POD.match(line.text):
            self._pod = match[1]

    def _pod_reason(self, line: Origin) -> None:
        if match := _REASON.match(line.text):
            self._reason = match[1]

    def _pod_code(self, line: Origin) -> None:
        if match := _EXIT_CODE.match(line.text):
            code = int(match[1][:4])
            if code:
                self._end(
                    line,
                    where=self._pod,
                    code=code,
                    signal=code - 128 if 128 < code < 192 else None,
                    reason="memory" if self._reason == "OOMKilled" else "",
                )
            self._launchers.setdefault("Kubernetes", line.quoted())

    def _restart(self, line: Origin) -> None:
        times = 0
        if match := _RESTART.search(line.text):
            times = int(match[3]) if match[3] else int(match[2]) - int(match[1]) + 1
        elif match := _POD_RESTARTS.match(line.text):
            times = int(match[1][:9])
        if times > self._restarts:
            self._restarts, self._restarted = times, line.quoted()

    # -- the whole ----------------------------------------------------------------------------

    def facts(self) -> LogFacts:
        """Return what all lines together say."""
        for rank, size in self._rank_of.values():
            if size == max(self._world, 1):
                self._ranks.add(rank)
        world = self._world if self._world > max(self._ranks, default=0) else None
        limits = self._timeouts()
        skews = self._clocks.skews()
        gave_up = {rank: line for rank, (_, line) in self._gave_up.items()}
        silent = set(range(world)) - self._ranks if world and self._ranks else set()
        return LogFacts(
            launchers=tuple(
                Said(name="launcher", value=name, line=line)
                for name, line in self._launchers.items()
            ),
            world_size=world,
            ranks=tuple(sorted(self._ranks)),
            silent=tuple(sorted(silent)),
            versions=self._values("versions"),
            variables=self._values("variables"),
            network=self._values("network"),
            timeouts=limits,
            work=working.during(gave_up, limits, self._last, world),
            quiet=working.quiet(gave_up, limits, self._last, skews),
            ends=self._own_ends(),
            restarts=self._restarts,
            restarted=self._restarted,
            skews=skews,
        )

    def _values(self, group: str) -> tuple[Said, ...]:
        found = []
        for (name, value), tally in self._said[group].items():
            known = {self._rank_of[one][0] for one in tally.processes if one in self._rank_of}
            found.append(
                Said(
                    name=name,
                    value=value,
                    ranks=tuple(sorted(tally.ranks | known)),
                    hosts=tuple(sorted({host for _, host, _ in tally.processes})),
                    line=tally.line,
                )
            )
        return tuple(found)

    def _timeouts(self) -> tuple[LogTimeout, ...]:
        of: dict[_Wait, list[int]] = defaultdict(list)
        for rank, (one, _) in self._gave_up.items():
            of[one].append(rank)
        found = [
            LogTimeout(
                op=op,
                sequence=sequence,
                limit_s=limit,
                waited_s=timeouts.waited(self._gave_up[ranks[0]][1].text),
                ranks=tuple(sorted(ranks)),
                line=self._gave_up[ranks[0]][1].quoted(),
            )
            for (op, sequence, limit), ranks in of.items()
        ]
        found += [
            LogTimeout(
                op=op,
                sequence=sequence,
                limit_s=limit,
                waited_s=timeouts.waited(line.text),
                ranks=(),
                line=line.quoted(),
            )
            for (op, sequence, limit), line in self._by_nobody.items()
        ]
        return tuple(sorted(found, key=lambda one: (-len(one.ranks), one.ranks)))

    def _own_ends(self) -> tuple[ProcessEnd, ...]:
        """The ends, each once; torchrun names the first failure twice. A task may be no rank."""
        found: dict[tuple[object, ...], ProcessEnd] = {}
        agents = "torchrun" in self._launchers
        for end in self._ends:
            one = end
            if agents and "srun" in end.line.text:
                one = replace(end, ranks=())
            key = one.ranks, one.where, one.code, one.signal, one.reason
            if key not in found or one.first:
                found[key] = one
        return tuple(found.values())


def _plain(name: str, value: str) -> str:
    """Return a value without what differs between channels and connections."""
    if name == "transport":
        return _NUMBERS.sub("", value)
    if name in ("socket interfaces", "InfiniBand"):
        return " ".join(_ADDRESS.sub(" ", value.removeprefix("Using ")).split())
    return value


def _tasks(text: str) -> tuple[int, ...]:
    """Return the numbers in ``0-2,5``; none if they are not believable."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return ()
        begin, end = int(first), int(last or first)
        if end >= _MOST_RANKS or len(found) + end - begin > _MOST_RANKS:
            return ()
        found += range(begin, end + 1)
    return tuple(found)


_Handler = tuple[str, Callable[[Reader, Origin], None]]
#: Fragments of lines, and what reads a line with each. Lines with none of them cost little.
_HANDLERS: tuple[_Handler, ...] = (
    ("NCCL", Reader._nccl),
    ("ersion", Reader._version),
    ("orch", Reader._version),
    ("/python3", Reader._python),
    ("=", Reader._assigned),
    ("ranks ", Reader._world_size),
    ("orld", Reader._world_size),
    ("ORLD_SIZE", Reader._world_size),
    ("Num processes", Reader._world_size),
    ("torch", Reader._launcher),
    ("srun", Reader._launcher),
    ("slurmstepd", Reader._launcher),
    ("mpirun", Reader._launcher),
    ("launch", Reader._launcher),
    ("horovod", Reader._launcher),
    ("atchdog", Reader._timeout),
    ("Timed out waiting", Reader._other_timeout),
    ("imed out after", Reader._other_timeout),
    ("ait timeout after", Reader._other_timeout),
    ("ass monitoredBarrier", Reader._other_timeout),
    ("local_rank: ", Reader._torchrun),
    ("exitcode", Reader._torchrun_code),
    ("Root Cause", Reader._root),
    ("srun: error", Reader._slurm),
    ("slurmstepd: error", Reader._slurm),
    ("exited on signal", Reader._mpirun),
    ("return code = ", Reader._deepspeed),
    ("Name:", Reader._pod_name),
    ("Reason:", Reader._pod_reason),
    ("Exit Code:", Reader._pod_code),
    ("estart", Reader._restart),
)
