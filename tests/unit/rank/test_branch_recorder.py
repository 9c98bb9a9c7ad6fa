"""Which way a rank goes is recorded, whatever the interpreter reports it by."""

from __future__ import annotations

import dis
import itertools
import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from ddt_notebook.model.branches import BranchOutcome
from ddt_notebook.rank import condition_values
from ddt_notebook.rank.branch_events import BranchEvents, MonitoringHandlers, lines_of
from ddt_notebook.rank.branch_recorder import HASH_FACTOR, BranchRecorder
from ddt_notebook.wire.branch_ring import EVENTS, BranchRingReader, BranchRingWriter

needs_trace = pytest.mark.skipif(sys.gettrace() is not None, reason="a trace function is set")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.branches"


@pytest.fixture
def recorder(path: Path) -> BranchRecorder:
    recorder = BranchRecorder(BranchRingWriter(path))
    recorder.begin_run()
    return recorder


def _code(source: str, name: str = "cell[1]") -> CodeType:
    lines = source.splitlines(keepends=True)
    linecache.cache[name] = (len(source), None, lines, name)
    condition_values.forget_sources()
    return compile(source, name, "exec")


def _observed(
    source: str, recorder: BranchRecorder, path: Path, **names: object
) -> list[BranchOutcome]:
    """The outcomes of a cell in the order of its events, without returns."""
    code, events = _code(source), BranchEvents(recorder)
    events.start()
    try:
        exec(code, dict(names))
    finally:
        events.stop()
    assert recorder.unobserved == ""
    values = recorder.values(None)
    log = BranchRingReader(path).read()
    for index, outcome in enumerate(log.outcomes):
        outcome.values.update(values.get(index, {}))
    return [log.outcomes[i] for i in log.events if log.outcomes[i].kind != "return"]


def _ways(outcomes: list[BranchOutcome]) -> list[tuple[int, int]]:
    return [(outcome.line, outcome.to_line) for outcome in outcomes if outcome.kind == "branch"]


CONDITION = """
if loss < best:
    best = loss
else:
    waited = 1
done = True
"""


@needs_trace
@pytest.mark.parametrize(("loss", "to_line"), [(0.25, 3), (0.5, 5)])
def test_the_branch_that_a_condition_takes_is_recorded(
    recorder: BranchRecorder, path: Path, loss: float, to_line: int
) -> None:
    seen = _observed(CONDITION, recorder, path, loss=loss, best=0.375)
    assert _ways(seen) == [(2, to_line)]
    assert seen[0].values["loss"] == f"{loss:g}"


LOOP = """
def run(items):
    for item in items:
        if item == 2:
            continue
        if item == 4:
            break
    return 0

run(items)
"""


@needs_trace
def test_loops_and_their_ends_are_recorded(recorder: BranchRecorder, path: Path) -> None:
    left, ended = (_ways(_observed(LOOP, recorder, path, items=i)) for i in ([4], [2]))
    assert left == [(3, 4), (4, 6), (6, 7)]
    assert ended[len(left) : -1] == [(3, 4), (4, 5)]
    assert ended[-1] in [(3, 8), (3, 0)], "by line events, by sys.monitoring"


ON_ONE_LINE = """
def run(items):
    seen = []
    for item in items: seen.append(item)
    return [item for item in seen]

run(items)
"""


@needs_trace
@pytest.mark.skipif(sys.version_info < (3, 12), reason="a comprehension has a frame of its own")
def test_a_loop_on_one_line_goes_on_there(recorder: BranchRecorder, path: Path) -> None:
    seen = _ways(_observed(ON_ONE_LINE, recorder, path, items=[1, 2]))
    for first, second, end in (seen[:3], seen[3:]):
        assert first == second != end


LAST = """
def run(items):
    for item in items:
        if item == 2:
            found = item

def check(item):
    if item == 3:
        found = item

run([1, 2])
check(1)
check(3)
"""


@needs_trace
def test_conditions_that_are_last_in_a_loop_or_a_function(
    recorder: BranchRecorder, path: Path
) -> None:
    seen = _ways(_observed(LAST, recorder, path))
    assert [way for way in seen if way[0] != 3] == [(4, 3), (4, 5), (8, 0), (8, 9)]


HANDLED = """
def load(i):
    if i:
        raise OSError("truncated")

def run():
    try:
        load(1)
    except OSError:
        pass

run()
"""


@needs_trace
def test_exceptions_that_are_raised_and_handled_are_recorded(
    recorder: BranchRecorder, path: Path
) -> None:
    seen = _observed(HANDLED, recorder, path)
    kinds = [(outcome.kind, outcome.function, outcome.error) for outcome in seen]
    assert ("raised", "load", "OSError") in kinds
    assert ("handled", "run", "OSError") in kinds
    assert next(o.line for o in seen if o.kind == "handled") == 9


@needs_trace
def test_a_loop_that_ends_raises_nothing(recorder: BranchRecorder, path: Path) -> None:
    source = """
class Loader:
    def __iter__(self):
        return iter([1])
    def __next__(self):
        raise StopIteration

class Batches:
    def __iter__(self):
        return Loader()

def generator():
    yield 1
    yield 2

for batch in generator():
    total = batch
for batch in Batches():
    total = batch
"""
    assert {outcome.kind for outcome in _observed(source, recorder, path)} == {"branch"}


@needs_trace
def test_the_users_own_trace_function_is_kept(recorder: BranchRecorder) -> None:
    def mine(*_: object) -> None:
        return None

    sys.settrace(mine)
    try:
        events = BranchEvents(recorder)
        events.start()
        kept = sys.gettrace()
        events.stop()
    finally:
        sys.settrace(None)
    if sys.version_info < (3, 12):
        assert kept is mine
        assert recorder.unobserved


def test_ranks_that_took_the_same_branches_have_the_same_hashes(tmp_path: Path) -> None:
    hashes = []
    for rank, before in enumerate((0, 3)):
        recorder = BranchRecorder(BranchRingWriter(tmp_path / f"rank{rank}"))
        code = _code("pass")
        first, second = (recorder.index_of(code, line, "branch", 9) for line in (1, 2))
        for _ in range(before):
            recorder.note(second)
        start = recorder.hash
        for index in (first, second, first):
            recorder.note(index)
        hashes.append((recorder.hash - start * HASH_FACTOR**3) % (1 << 64))
    assert hashes[0] == hashes[1]


def test_the_hash_includes_events_that_the_ring_has_dropped(recorder: BranchRecorder) -> None:
    code = _code("pass")
    handlers = MonitoringHandlers(recorder, disable=None)
    handlers.returned(code, 0, None)
    expected = key = recorder.hash
    for _ in range(2 * EVENTS):
        handlers.returned(code, 0, None)
        expected = (expected * HASH_FACTOR + key) % (1 << 64)
    seen_elsewhere = []
    thread = threading.Thread(target=lambda: seen_elsewhere.append(recorder.hash))
    thread.start()
    thread.join()
    assert seen_elsewhere == [recorder.hash] == [expected]


def test_the_oldest_events_are_dropped_and_counted(path: Path) -> None:
    writer = BranchRingWriter(path)
    writer.begin_run()
    one, two = (writer.add_outcome(BranchOutcome(file="a.py", line=i)) for i in (1, 2))
    writer.write(one)
    for _ in range(EVENTS + 5):
        writer.write(two)
    log = BranchRingReader(path).read()
    assert log.events_dropped == 6
    assert set(log.events) == {two}
    assert [outcome.times for outcome in log.outcomes] == [0, 1, EVENTS + 5]
    writer.begin_run()
    assert BranchRingReader(path).read().events == ()


class _Config:
    __slots__ = ("limit",)

    def __init__(self) -> None:
        self.limit = 3


class _Trainer:
    kind = "fast"

    def __init__(self) -> None:
        self.best = 0.5
        self.config = _Config()
        self.data = [1, 2]
        self.table = {"rank": 1}

    @property
    def loud(self) -> bool:
        raise AssertionError("a property of the user was called")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError("the user's __getattr__ was called")


def test_values_are_read_without_running_code_of_the_user() -> None:
    source = (
        "if trainer.best < trainer.config.limit or trainer.loud or trainer.kind or trainer.no\\\n"
    )
    source += (
        " or trainer.table['rank'] or trainer.data or len(trainer.data) > 3 or trainer: pass\n"
    )
    _code(source, "cell[2]")
    trainer = _Trainer()
    values = condition_values.values_at("cell[2]", 1, sys._getframe())
    assert values == {
        "trainer.best": "0.5",
        "trainer.config.limit": "3",
        "trainer.kind": "'fast'",
        "trainer.table['rank']": "1",
        "trainer.data": "2 items",
    }
    assert trainer is not None


def _branches(code: CodeType) -> Iterator[tuple[int, int, int]]:
    """Offset, next offset and target of each conditional jump, as dis shows them."""
    instructions = list(dis.get_instructions(code))
    for one, following in itertools.pairwise(instructions):
        if "POP_JUMP" in one.opname or one.opname == "FOR_ITER":
            yield one.offset, following.offset, one.argval


def test_events_of_sys_monitoring_are_decoded(recorder: BranchRecorder, path: Path) -> None:
    code = _code(LOOP).co_consts[0]
    assert isinstance(code, CodeType)
    handlers = MonitoringHandlers(recorder, disable="disable")
    watched: list[CodeType] = []
    handlers.watch = watched.append
    assert handlers.started(code, 0) == "disable"
    assert handlers.started(compile("pass", dis.__file__, "exec"), 0) == "disable"
    assert watched == [code]
    lines = lines_of(code)
    for offset, following, target in _branches(code):
        handlers.branched(code, offset, following)
        handlers.branched(code, offset, target)
    handlers.raised(code, 0, OSError())
    handlers.raised(code, 0, StopIteration())
    handlers.handled(code, 0, OSError())
    handlers.raised(compile("pass", "other.py", "exec"), 0, OSError())
    log = BranchRingReader(path).read()
    outcomes = log.outcomes[1:]
    assert {o.line for o in outcomes if o.kind == "branch"} == {3, 4, 6}
    assert {o.kind for o in outcomes} == {"branch", "raised", "handled"}
    assert sum(o.kind == "raised" for o in outcomes) == 1
    assert all(o.to_line in {0, *lines.values()} for o in outcomes)


def test_instructions_of_one_condition_share_its_last_way(recorder: BranchRecorder) -> None:
    code, changes = _code("if a and b:\n    c()\n"), list[int]()

    def learn(code: CodeType, offset: int, destination: int) -> int:
        return recorder.index_of(code, 1, "branch", destination)

    note = recorder.noting(learn, changes.append)
    for offset, destination in [(2, 20), (2, 20), (6, 20), (6, 8), (6, 8), (2, 20), (6, 8)]:
        note(code, offset, destination)
    no, yes = (learn(code, 0, destination) for destination in (20, 8))
    assert changes == [no, yes, no, yes]
    assert recorder.count == 7


def test_other_threads_are_not_recorded(recorder: BranchRecorder) -> None:
    handlers = MonitoringHandlers(recorder, disable=None)
    code = _code("if x: pass\n")
    call: Callable[[], object] = lambda: handlers.returned(code, 0, None)  # noqa: E731
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert recorder.count == 0
    call()
    assert recorder.count == 1


CONTEXT = """
import contextlib
with contextlib.suppress(KeyError):
    x = items[2]
done = True
"""


@needs_trace
def test_a_context_manager_decides_only_about_an_exception(
    recorder: BranchRecorder, path: Path
) -> None:
    seen = _observed(CONTEXT, recorder, path, items={2: 0})
    assert [one.kind for one in seen] == []


@needs_trace
def test_a_context_manager_that_swallows_an_exception(recorder: BranchRecorder, path: Path) -> None:
    seen = _observed(CONTEXT, recorder, path, items={})
    assert [(one.kind, one.line) for one in seen][:2] == [("raised", 4), ("handled", 3)]


EXPRESSIONS = """
def call(value):
    return value

def run(x, items):
    x and call(1)
    a = call(2) if not x else 0
    b = x or call(3)
    c = [call(i) for i in items if i is not None]
    d = any(call(i) for i in items if i)
    if x and call(4):
        pass
    plain = x and 5
    e = (x > 0 and
         call(6))
    return x == 2 and x > 1 and call(7)

run(x, items)
"""


@needs_trace
@pytest.mark.parametrize(("x", "held"), [(0, "nyn"), (1, "yny"), (2, "yny")])
def test_conditions_inside_expressions_that_decide_about_a_call(
    recorder: BranchRecorder, path: Path, x: int, held: str
) -> None:
    seen = _observed(EXPRESSIONS, recorder, path, x=x, items=[None, 0, 3])
    taken = {
        line: "".join("ny"[o.to_line == line] for o in seen if (o.kind, o.line) == ("guard", line))
        for line in (6, 7, 8, 9, 10, 14, 16)
    }
    assert [taken[line] for line in (6, 7, 8)] == list(held)
    assert (taken[9], taken[10]) == ("nyy", "nny")
    assert (taken[14], taken[16]) == ("y" if x else "n", "y" if x == 2 else "n")
    assert {o.line for o in seen if o.kind == "guard"} == {6, 7, 8, 9, 10, 14, 16}
    assert {o.values["x"] for o in seen if o.line == 6} == {str(x)}
