"""What the logs of a job say about it as a whole: with what it ran, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """A line on which something rests.

    Attributes
    ----------
    number
        Its number in its file, counted from 1.
    text
        The line, shortened.
    rank
        The rank that printed it, None if the log does not show it.
    file
        Name of the file, empty for a pasted text or a single log.
    """

    number: int
    text: str
    rank: int | None = None
    file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A value that the log gives, and who printed it.

    Attributes
    ----------
    name, value
        Such as ``"NCCL"`` and ``"2.21.5+cuda12.4"``, or ``"network"`` and ``"Socket"``.
    ranks, hosts
        Who printed it, as far as the log shows it.
    line
        The first line with it.
    """

    name: str
    value: str
    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTimeout:
    """A collective that ranks gave up when its time limit had passed.

    Attributes
    ----------
    op, sequence
        Its type and its number in the group; empty and None if the line does not name them.
    limit_s
        The time limit.
    waited_s
        How long the first of them had waited, None if it does not say so.
    ranks
        Who gave it up.
    line
        The first line that says so.
    """

    op: str
    sequence: int | None
    limit_s: float
    waited_s: float | None
    ranks: tuple[int, ...]
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessEnd:
    """How processes ended, as their launcher, scheduler or container reports it.

    Attributes
    ----------
    ranks
        Whose processes they are, empty if the log does not show it.
    where
        The host or the container, empty if it is not named.
    code, signal
        Exit code or number of the signal, None if it is not named.
    reason
        ``"memory"`` or ``"time"`` if a limit ended them, ``"launcher"`` if the launcher did after
        another failure, else empty.
    first
        Whether the launcher says that this was the first failure.
    line
        The line that says so.
    """

    ranks: tuple[int, ...] = ()
    where: str = ""
    code: int | None = None
    signal: int | None = None
    reason: str = ""
    first: bool = False
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSkew:
    """Time stamps of ranks that are ahead of those of the first rank, for the same events.

    Attributes
    ----------
    ranks
        Whose stamps differ; those of a file that no rank names are given by ``files``.
    files
        The files with these stamps.
    ahead_s
        By how much, in the median; negative if they are behind.
    spread_s
        The largest difference between the events.
    events
        How many events were compared.
    lines
        One event as both printed it: the first rank's line, then that of ``ranks``.
    """

    ranks: tuple[int, ...]
    files: tuple[str, ...]
    ahead_s: float
    spread_s: float
    events: int
    lines: tuple[LogLine, LogLine]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a rank was seen doing while others waited for it, or after they had given up.

    Attributes
    ----------
    rank
        None if the log does not show who printed the line.
    worked_s
        For how long it had been at it when the line was printed, None if that is not known.
    after
        Whether the line came after the others had given up.
    line
        The line that shows it.
    """

    rank: int | None
    worked_s: float | None
    after: bool
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """A rank that gave nothing up, and that had printed nothing for a while when others did.

    Attributes
    ----------
    rank
        The rank.
    since_s
        The time from its last line to the moment when the first of the others gave up.
    line
        Its last line.
    """

    rank: int
    since_s: float
    line: LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """What logs say about the job.

    Attributes
    ----------
    launchers
        Who started the processes, by the lines that launchers and schedulers print.
    world_size
        Number of ranks, None if no line gives it.
    ranks, silent
        The ranks that lines name, and those of ``world_size`` that none names.
    versions, variables, network
        Versions of libraries, environment variables, and what NCCL uses to exchange data.
    timeouts, work, quiet
        Collectives that were given up, what shows that a rank was at work meanwhile, and the ranks
        that printed nothing meanwhile.
    ends
        How processes ended.
    restarts, restarted
        How often the job was started again, and the line that says so.
    skews
        Clocks that differ.
    """

    launchers: tuple[Said, ...] = ()
    world_size: int | None = None
    ranks: tuple[int, ...] = ()
    silent: tuple[int, ...] = ()
    versions: tuple[Said, ...] = ()
    variables: tuple[Said, ...] = ()
    network: tuple[Said, ...] = ()
    timeouts: tuple[LogTimeout, ...] = ()
    work: tuple[Work, ...] = ()
    quiet: tuple[Quiet, ...] = ()
    ends: tuple[ProcessEnd, ...] = ()
    restarts: int = 0
    restarted: LogLine | None = None
    skews: tuple[ClockSkew, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything beyond the ranks is known."""
        return bool(
            self.launchers
            or self.versions
            or self.variables
            or self.network
            or self.timeouts
            or self.ends
            or self.restarts
            or self.skews
        )
