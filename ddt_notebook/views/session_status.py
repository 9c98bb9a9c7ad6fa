"""The state of a session as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..formatting import naming_hosts
from ..model import Position
from ..model.frameworks import described
from ..model.torch_features import MissingFeature
from . import html, safe, source_positions, terminal, words
from .displayable import Displayable

#: Up to this many ranks each one has a row; beyond, ranks in the same state share one.
ROWS = 8
#: So many hosts are named in a note.
_NAMED = 3

_HEAD = ("rank", "pid", "state", "memory (RSS)", "at")


class RankStatusLike(Protocol):
    """What a view needs to know of a rank."""

    @property
    def rank(self) -> int: ...
    @property
    def pid(self) -> int: ...
    @property
    def alive(self) -> bool: ...
    @property
    def state(self) -> str: ...
    @property
    def position(self) -> Position | None: ...
    @property
    def memory_bytes(self) -> int | None: ...
    @property
    def share_bytes(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def device(self) -> str: ...


class HostVersionsLike(Protocol):
    """The versions on a host."""

    @property
    def host(self) -> str: ...
    @property
    def python(self) -> str: ...
    @property
    def torch(self) -> str: ...


class SessionStatusLike(Protocol):
    """What a view needs to know of a session."""

    @property
    def ranks(self) -> Sequence[RankStatusLike]: ...
    @property
    def world_size(self) -> int: ...
    @property
    def backend(self) -> str: ...
    @property
    def uptime_s(self) -> float: ...
    @property
    def has_group(self) -> bool: ...
    @property
    def framework(self) -> str: ...
    @property
    def frozen(self) -> bool: ...
    @property
    def simulated_gpus(self) -> int: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def missing_features(self) -> Sequence[MissingFeature]: ...
    @property
    def versions(self) -> Sequence[HostVersionsLike]: ...


class StatusView(Displayable):
    """A session's ranks: process, state, memory, line.

    Parameters
    ----------
    status
        What is shown.
    note
        A line below the table.
    """

    __slots__ = ("_note", "_status")

    def __init__(self, status: SessionStatusLike, note: str = "") -> None:
        self._status = status
        self._note = note

    def to_text(self) -> str:
        """The table in columns."""
        lines = [self._summary(), *terminal.aligned([self._head, *self._rows()])]
        return "\n".join(
            lines + [line for note in self._notes() for line in terminal.wrap("note", note)]
        )

    def to_html(self) -> str:
        """The table as HTML."""
        notes = [html.line(html.tag("b", "note "), note) for note in self._notes()]
        return html.view(html.line(self._summary()), html.table(self._rows(), self._head), *notes)

    def _notes(self) -> list[str]:
        """Notes for the reader, and what cannot be observed with this version of PyTorch."""
        off = map(str, self._status.missing_features)
        return [*filter(None, [self._note, _differing(self._status.versions)]), *off]

    def _summary(self) -> str:
        status = self._status
        if status.framework:
            group = f"for {described(status.framework).title}"
        else:
            group = status.backend if status.has_group else "no process group"
        parts = [words.count(status.world_size, "rank"), group]
        if status.simulated_gpus:
            gpus = words.count(status.simulated_gpus, "simulated GPU")
            parts.append(f"{gpus} (computed on the CPU)")
        if status.seed is not None:
            parts.append(f"seed {status.seed} + rank")
        if together := sum(rank.share_bytes for rank in status.ranks):
            parts.append(f"{words.size(together)} of memory together")
        parts.append(f"up {words.duration(status.uptime_s)}")
        if status.frozen:
            parts.append("a hang is held: %ddt_release ends it")
        return " · ".join(parts)

    @property
    def _has_devices(self) -> bool:
        ranks = self._status.ranks
        if self._status.simulated_gpus and len({rank.host for rank in ranks}) < 2:
            return False  # the summary counts them
        return any(rank.device not in ("", "cpu") for rank in ranks)

    @property
    def _head(self) -> tuple[str, ...]:
        return (_HEAD[0], "device", *_HEAD[1:]) if self._has_devices else _HEAD

    def _rows(self) -> list[tuple[str, ...]]:
        ranks = self._status.ranks
        alike = source_positions.group(
            ranks, lambda r: (r.host, _state(r)) if len(ranks) > ROWS else r.rank
        )
        with naming_hosts({rank.rank: rank.host for rank in ranks}):
            rows = [(members, _row(members)) for _, members in alike]
        if not self._has_devices:
            return [row for _, row in rows]
        return [
            (row[0], safe.listing((m.device for m in members if m.device), ROWS), *row[1:])
            for members, row in rows
        ]


def _differing(versions: Sequence[HostVersionsLike]) -> str:
    """Which hosts have other versions of Python or PyTorch than others, in one line."""
    parts = []
    for name in ("python", "torch"):
        hosts: dict[str, list[str]] = {}
        for one in versions:
            if version := safe.one_line(getattr(one, name), 40):
                hosts.setdefault(version, []).append(safe.one_line(one.host, 40))
        if len(hosts) > 1:
            title = {"python": "Python", "torch": "torch"}[name]
            where = (f"{version} on {_few(names)}" for version, names in hosts.items())
            parts.append(f"{title} {', '.join(where)}")
    return (
        f"the hosts have other versions: {'; '.join(parts)}; %ddt_doctor says more" if parts else ""
    )


def _few(hosts: Sequence[str]) -> str:
    """The first hosts by name, and how many there are besides."""
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    return f"{', '.join(hosts[:_NAMED])}{more}"


def _state(rank: RankStatusLike) -> tuple[str, str]:
    where = safe.one_line(rank.position.label, 60) if rank.position else ""
    return (rank.state if rank.alive else "died", where)


def _row(members: Sequence[RankStatusLike]) -> tuple[str, ...]:
    state, where = _state(members[0])
    memory = [m.memory_bytes for m in members if m.memory_bytes is not None]
    largest = words.size(max(memory)) if memory else ""
    return (
        words.ranks_cell(m.rank for m in members),
        str(members[0].pid) if len(members) == 1 else "",
        state,
        f"≤ {largest}" if len(memory) > 1 else largest,
        where,
    )
