"""What each rank's memory holds, how it changed during the cell, and its limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..formatting import naming_hosts
from ..model import Snapshot
from ..model.memory import KINDS, MemoryKind, RankMemory
from ..model.torch_features import ACTIVATIONS, DDP_BUCKETS
from . import dataframe, figures, flags, html, memory_areas, safe, sparklines, terminal, words
from .figures import Figure, Figured
from .flags import Flag
from .html import Markup
from .memory_areas import Areas
from .run_view import RunView
from .source_positions import group

#: Columns for groups of equal ranks, and rows for single ranks in a terminal.
GROUPS, ROWS = 5, 8
#: From this share of a limit on, memory is called nearly full.
_NEARLY_FULL = 0.9
#: What sharding divides among the ranks.
_OF_THE_MODEL: tuple[MemoryKind, ...] = ("parameters", "gradients", "optimizer state")
#: Ranks differ if one holds this much more than another, both as a share and in bytes.
_DIFFERS, _DIFFERS_BYTES = 1.2, 10_000_000
#: A limit further away than this is stated in words only; the curves would be flat below it.
_DRAWN_UP_TO = 4

_HEAD = ("rank", "resident", "peak", "own share", "while it ran")
_LIMITS = {
    "rank": "the cap of the rank (--memory)",
    "cgroup": "the limit of the container, for all processes",
    "machine": "the memory of the machine, for all processes",
    "GPU": "the memory of the GPU",
}
#: Okabe-Ito without yellow.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
_DASHES = ("solid", "dash", "dot", "dashdot")


class MemoryView(RunView, Figured):
    """Memory of each rank: its parts, its curve over time, its limit.

    Parameters
    ----------
    snapshot
        With its ``memory``; only a run with ``trace=True`` has the curve and the activations.
    names
        Variables that the ranks were asked to count; the snapshot holds no others.
    asked_now
        Whether the ranks were asked at their prompt, and not at the end of the cell.
    """

    __slots__ = ()

    name = "memory"
    columns = ("rank", "device", *KINDS, "rest", "rss", "peak", "pss", "gpu_peak")

    def __init__(
        self, snapshot: Snapshot, names: Sequence[str] = (), *, asked_now: bool = False
    ) -> None:
        super().__init__(snapshot, asked_now=asked_now)
        # what else ranks hold changes while they run, and they answer one after the other
        lasting = ("parameters", "buffers", "optimizer state") if snapshot.running else KINDS
        if snapshot.outcome != "ok":  # what a failed pass has left depends on who failed first
            lasting = tuple(kind for kind in lasting if kind != "activations")
        self.flags = _flags(snapshot.memory, lasting)

    def _text(self) -> list[str]:
        lines = []
        if self.snapshot.memory:
            head, rows = self._parts()
            lines += terminal.columns(rows, head, range(1, len(head)))
            if drawn := self._areas():
                lines += memory_areas.as_text(drawn)
                for line in (drawn.legend, drawn.peak):
                    lines += terminal.wrap("", line)
            ranks = self._rank_rows(24)
            lines += terminal.columns(ranks[:ROWS], _HEAD, (1, 2, 3))
            if len(ranks) > ROWS:
                lines.append(f"  and {words.count(len(ranks) - ROWS, 'more rank')}")
        return lines + [line for note in self._notes() for line in terminal.wrap("", note)]

    def _html(self) -> list[Markup]:
        parts = []
        if self.snapshot.memory:
            head, rows = self._parts()
            parts.append(html.table(rows, head))
            if drawn := self._areas():
                parts.append(memory_areas.as_html(drawn))
                legend = memory_areas.legend_as_html(drawn)
                parts += [html.line(legend), html.line(drawn.peak)]
            parts.append(html.details("each rank", html.table(self._rank_rows(40), _HEAD)))
        return [*parts, *map(html.line, self._notes())]

    def to_frame(self) -> Any:
        """One row for each rank, as a pandas DataFrame; all sizes in bytes.

        - ``rank``: global rank
        - ``device``: where the counted tensors are, such as ``"cpu"`` or ``"cuda:0"``
        - ``parameters``, ``gradients``, ``optimizer state``, ``buffers``, ``DDP buckets``,
          ``tensors``: what models, optimizers and other variables hold; memory that several share
          counts once
        - ``activations``: what backward keeps after a forward pass; 0 if the run was not traced
        - ``rest``: what is in none of these parts, of the process, or of what PyTorch's allocator
          has handed out on the GPU; None if that was not asked
        - ``rss``: resident set of the process
        - ``peak``: largest resident set while the cell ran; None if it was not traced
        - ``pss``: resident set in which pages of several processes are divided among them; None if
          the system does not count it
        - ``gpu_peak``: most that PyTorch's allocator held on the GPU; None without a GPU
        """
        return super().to_frame()

    def _records(self) -> list[dict[str, Any]]:
        return [
            {
                "rank": m.rank,
                "device": m.device,
                **{str(kind): m.parts.get(kind, 0) for kind in KINDS},
                "rest": _rest(m),
                "rss": m.rss_bytes,
                "peak": m.peak_bytes,
                "pss": m.pss_bytes,
                "gpu_peak": m.gpu_peak,
            }
            for m in self.snapshot.memory
        ]

    def samples_frame(self) -> Any:
        """One row for each sample of a traced run, as a pandas DataFrame.

        - ``rank``: global rank
        - ``at_ms``: milliseconds since the rank began the cell
        - ``rss``: resident set of the process in bytes
        - ``data``: private mapped memory in bytes, which ``--memory`` limits; None if not counted
        - ``gpu``: memory of PyTorch's allocator in bytes; None without a GPU
        """
        columns = ("rank", "at_ms", "rss", "data", "gpu")
        rows = [
            {
                "rank": m.rank,
                "at_ms": at,
                "rss": m.rss_kb[i] * 1024,
                "data": m.data_kb[i] * 1024 if m.data_kb else None,
                "gpu": m.gpu_kb[i] * 1024 if m.gpu_kb else None,
            }
            for m in self.snapshot.memory
            for i, at in enumerate(m.at_ms)
        ]
        return dataframe.frame(rows, columns)

    def to_plotly(self) -> Figure:
        """Memory over time, one line for each rank, and the limits that are near."""
        start = min((m.started_s for m in self.snapshot.memory if m.at_ms), default=0.0)
        data, highest = [], 0.0
        with naming_hosts(self.snapshot.hosts):
            names = {memory.rank: words.ranks((memory.rank,)) for memory in self.snapshot.memory}
        for at, memory in enumerate(m for m in self.snapshot.memory if m.at_ms):
            megabytes = [round(kb * 1024 / 1e6, 2) for kb in _course(memory)]
            highest = max(highest, *megabytes)
            shift = 1e3 * (memory.started_s - start)
            line = {
                "color": _COLOURS[at % len(_COLOURS)],
                "dash": _DASHES[at // len(_COLOURS) % len(_DASHES)],
            }
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": names[memory.rank],
                    "x": [round(ms + shift, 1) for ms in memory.at_ms],
                    "y": megabytes,
                    "line": line,
                }
            )
        shapes, notes = [], []
        for name, limit in self._limits().items():
            height = limit / 1e6
            if height <= _DRAWN_UP_TO * highest:
                shapes.append(
                    {
                        "type": "line",
                        "xref": "paper",
                        "x0": 0,
                        "x1": 1,
                        "y0": height,
                        "y1": height,
                        "line": {"color": "#D55E00", "width": 2, "dash": "dash"},
                    }
                )
                notes.append(
                    {
                        "text": f"{_LIMITS[name]}: {words.size(limit)}",
                        "xref": "paper",
                        "x": 0,
                        "y": height,
                        "yanchor": "bottom",
                        "showarrow": False,
                    }
                )
        axis = {"title": {"text": "MB", "standoff": 4}, "rangemode": "tozero"}
        plain = figures.figure(data, height=360, yaxis=axis, shapes=shapes, annotations=notes)
        above = [self._title(), *flags.as_lines(self.flags, self._healthy())]
        return figures.framed(plain, above, *self._parts())

    # -- words ---------------------------------------------------------------------------------

    def _ranks(self) -> int:
        return len(self.snapshot.memory)

    def _healthy(self) -> str:
        if not self.snapshot.memory:
            return "no rank was inspected"
        largest = max(self.snapshot.memory, key=_highest)
        what = "on the GPU" if _on_gpu(largest) and largest.gpu_peak else "resident"
        room = [self._room(name, limit) for name, limit in self._limits().items()]
        needed = (
            f"{words.ranks([largest.rank])} needed most: {words.size(_highest(largest))} {what}"
        )
        return f"{needed}; {', '.join(room) or 'no limit is known'}"

    def _room(self, name: str, limit: int) -> str:
        counted = max(map(_data_peak, self.snapshot.memory)) if name == "rank" else 0
        used = f", of which up to {words.size(counted)} were used" if counted else ""
        return f"{words.size(limit)} is {_LIMITS[name]}{used}"

    def _limits(self) -> dict[str, int]:
        """The lowest of each kind; the machine only where nothing else limits."""
        found: dict[str, int] = {}
        for memory in self.snapshot.memory:
            for name, limit in memory.limits.items():
                if name in _LIMITS:
                    found[name] = min(limit, found.get(name, limit))
        if len(found) > 1:
            found.pop("machine", None)
        return found

    def _parts(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Kinds in rows; ranks that hold the same in one column."""
        groups = group(self.snapshot.memory, lambda m: (m.device, tuple(sorted(m.parts.items()))))
        shown = [members for _, members in groups[:GROUPS]]
        kinds = [kind for kind in KINDS if any(kind in members[0].parts for members in shown)]
        rows = [
            (kind, *(words.size(members[0].parts.get(kind, 0)) for members in shown))
            for kind in kinds
        ]
        if any(_rest(m) is not None for members in shown for m in members):
            rests = ([rest for m in members if (rest := _rest(m)) is not None] for members in shown)
            rows.append(("the rest", *(_spread(rest) if rest else "" for rest in rests)))
        head = ("", *(words.ranks(m.rank for m in members) for members in shown))
        if len(groups) > GROUPS:
            head = (*head, f"and {len(groups) - GROUPS} more")
            rows = [(*row, "…") for row in rows]
        return head, rows

    def _areas(self) -> Areas | None:
        """The picture of the rank that needed most."""
        if not any(m.at_ms for m in self.snapshot.memory):
            return None
        memory = max(self.snapshot.memory, key=_highest)
        if _on_gpu(memory) and not memory.gpu_kb:
            return None  # the samples are of the process, the parts are on the GPU
        cap = memory.limits.get("GPU" if _on_gpu(memory) else "rank")
        return memory_areas.areas(memory, _course(memory), cap, _sampled(memory))

    def _rank_rows(self, width: int) -> list[tuple[str, ...]]:
        return [
            (
                words.ranks_cell((memory.rank,)),
                words.size(memory.rss_bytes),
                words.size(memory.peak_bytes) if memory.peak_bytes else "",
                words.size(memory.pss_bytes) if memory.pss_bytes else "",
                _drawn(memory, width),
            )
            for memory in self.snapshot.memory
        ]

    def _notes(self) -> list[str]:
        if not self.snapshot.memory:
            return []
        first = min(m.measured for m in self.snapshot.memory)
        whole = "cell" if self.snapshot.origin == "session" else "script"
        seen = f"at the end of the {whole}" if first == "end" else f"after {first}"
        seen = "now" if self.asked_now else "while the ranks ran" if first == "running" else seen
        notes = self._not_observed(ACTIVATIONS, DDP_BUCKETS)
        notes += [f"parts were counted {seen}{self._about_rest()}"]
        if not any(m.at_ms for m in self.snapshot.memory):
            if self.snapshot.origin == "session":
                notes.append("%%ddt_debug also shows activations and memory over time")
        elif self.asked_now:
            cell = safe.one_line(self.snapshot.cell.title, 120)
            notes.append(f"activations, peak and curve were measured while {cell} ran")
        return notes

    def _about_rest(self) -> str:
        on_gpu = {_on_gpu(memory) for memory in self.snapshot.memory}
        if on_gpu == {False}:
            rest = "Python, torch's libraries, temporary tensors and pages that ranks share"
            return f"; the rest is {rest}"
        if all(memory.gpu_allocated is None for memory in self.snapshot.memory):
            return (
                "; what else is on the GPU was not asked, since the answer may have to wait for it"
            )
        return (
            "; of a GPU, the rest is what else PyTorch's allocator has handed out, such as "
            "activations; the CUDA context, NCCL's buffers and what the allocator keeps in reserve "
            "come on top"
        )


def _flags(memories: Sequence[RankMemory], compared: Sequence[MemoryKind]) -> list[Flag]:
    found = []
    for name, peak in (("rank", _data_peak), ("GPU", lambda memory: memory.gpu_peak)):
        full: list[tuple[float, str, int]] = []
        for memory in memories:
            limit, used = memory.limits.get(name), peak(memory)
            if limit and used and used >= _NEARLY_FULL * limit:
                share = f"{words.size(used)} of {words.size(limit)}"
                full.append((used / limit, share, memory.rank))
        if full:
            most = "up to " * (len(full) > 1) + max(full)[1]
            reached = "reached" if min(full)[0] >= 1 else "nearly reached"
            found.append(
                Flag(
                    "warning",
                    f"{words.ranks([rank for *_, rank in full])} {reached} {_LIMITS[name]}: "
                    f"{most}; {_makes_room(memories, [rank for *_, rank in full])}",
                )
            )
    shared = next((m.limits["cgroup"] for m in memories if "cgroup" in m.limits), None)
    needed = sum(m.pss_bytes or m.rss_bytes for m in memories)
    if shared and needed >= _NEARLY_FULL * shared:
        share = f"{words.size(needed)} of {words.size(shared)}"
        found.append(Flag("warning", f"the ranks together fill the container: {share}"))
    return found + _uneven(memories, compared)


def _makes_room(memories: Sequence[RankMemory], full: Sequence[int]) -> str:
    """What makes the largest part smaller: sharding divides the model, but no activations."""
    model = activations = 0
    for memory in memories:
        if memory.rank in full:
            for parts in (memory.parts, *(count.parts for count in memory.counts)):
                model = max(model, sum(parts.get(kind, 0) for kind in _OF_THE_MODEL))
                activations = max(activations, parts.get("activations", 0))
    if activations > model:
        return (
            "activations are the largest part: activation checkpointing, or accumulation over "
            "smaller batches, makes room"
        )
    if not model:  # it failed before anything was counted
        return "a smaller batch makes room; sharding (FSDP) divides the model, but no activations"
    return "a smaller batch or sharding (FSDP) makes room: ddt.estimate(run) compares them"


def _uneven(memories: Sequence[RankMemory], compared: Sequence[MemoryKind]) -> list[Flag]:
    """A flag for a rank that holds clearly more than another of the compared kinds."""
    if len(memories) < 2:
        return []

    def held(memory: RankMemory) -> int:
        return sum(memory.parts.get(kind, 0) for kind in compared)

    most, least = max(memories, key=held), min(memories, key=held)
    more = held(most) - held(least)
    if more < _DIFFERS_BYTES or held(most) < _DIFFERS * held(least):
        return []
    kind = max(compared, key=lambda k: most.parts.get(k, 0) - least.parts.get(k, 0))
    sizes = f"{words.size(most.parts.get(kind, 0))} against {words.size(least.parts.get(kind, 0))}"
    return [
        Flag(
            "warning",
            f"{words.ranks([most.rank])} holds {words.size(more)} more than "
            f"{words.ranks([least.rank])}, "
            f"most of it {kind}: {sizes}",
        )
    ]


def _on_gpu(memory: RankMemory) -> bool:
    return memory.device.startswith("cuda")


def _rest(memory: RankMemory) -> int | None:
    """The bytes in none of the parts, of the GPU or of the process; None if that is not known."""
    whole = memory.gpu_allocated if _on_gpu(memory) else memory.rss_bytes
    if whole is None:
        return None
    return max(0, whole - memory.known_bytes + memory.parts.get("activations", 0))


def _highest(memory: RankMemory) -> int:
    if _on_gpu(memory) and memory.gpu_peak:
        return memory.gpu_peak
    # the peak is sampled, and the parts are counted after the last sample
    return max(memory.peak_bytes or 0, memory.rss_bytes)


def _data_peak(memory: RankMemory) -> int:
    sampled = max(memory.data_kb, default=0) * 1024
    return max(sampled, memory.data_bytes or 0)


def _course(memory: RankMemory) -> tuple[int, ...]:
    """The quantity to which the limit of this rank applies."""
    if _on_gpu(memory) and memory.gpu_kb:
        return memory.gpu_kb
    return memory.data_kb if "rank" in memory.limits and memory.data_kb else memory.rss_kb


def _sampled(memory: RankMemory) -> str:
    """The name of that quantity."""
    course = _course(memory)
    if course is memory.gpu_kb:
        return "memory on the GPU"
    return (
        "private memory, to which the cap applies,"
        if course is memory.data_kb
        else ("resident memory")
    )


def _drawn(memory: RankMemory, width: int) -> str:
    course = _course(memory)
    if not course:
        return ""
    low, high = words.size(course[0] * 1024), words.size(course[-1] * 1024)
    return f"{low} {sparklines.curve(course, width)} {high}"


def _spread(sizes: Sequence[int]) -> str:
    low, high = words.size(min(sizes)), words.size(max(sizes))
    return low if low == high else f"{low} to {high}"
