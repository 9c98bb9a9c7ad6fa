"""Measures what observing branches adds to a DDP step of a small MLP, and to a loop of Python.

The ranks take turns with and without it within one cell, in random order, as in `recording`; a
second turn without it is the control. The processor time of the main thread is compared, since the
clock shows hardly anything on a busy machine. Each turn begins with steps that are not timed, since
``sys.monitoring`` visits each function once. From Python 3.12 on the observation is always on, and
the limit is that of all recording. On Python 3.11 a trace function observes, on request only.

Turns of the same ranks differ by more than this cost. So the time inside the callbacks of
``sys.monitoring`` is measured, too, within the steps: there the caches are cold, and an event takes
several times as long as in a loop of Python. Calls during which another process got the processor
are left out.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from typing import Any

from ddt_notebook.host.session import Session

from .common import Figure, run_checked, session
from .recording import MLP

RANKS = 2
TURNS, STEPS = 30, 50
ALWAYS_ON = sys.version_info >= (3, 12)
#: What a trace function may cost, in percent of a step; it runs only on request.
TRACE_LIMIT = 25.0
#: A callback that took longer was interrupted by another process.
SWITCHED_NS = 100_000

PREPARE = """
import pathlib, random, tempfile, time
from ddt_notebook.rank.branch_events import BranchEvents
from ddt_notebook.rank.branch_recorder import BranchRecorder
from ddt_notebook.wire.branch_ring import BranchRingWriter

torch.set_num_threads(1)
model = DDP(network)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
folder = tempfile.TemporaryDirectory()
recorder = BranchRecorder(BranchRingWriter(pathlib.Path(folder.name) / "branches"))
events = BranchEvents(recorder)

class Trainer:
    clip, log_every, scheduler = None, 10, None

    def step(self, number):
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        if self.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
        optimizer.step()
        if self.scheduler is not None:
            self.scheduler.step()
        if number % self.log_every == 0:
            self.last = loss.detach()
        return loss

    def run(self, steps):
        for number in range(steps):
            self.step(number)

def python_only(rounds):
    total = 0
    for i in range(rounds):
        if i & 1:
            total += i
        else:
            total -= i
    return total

trainer = Trainer()

def timed(call, count):
    start = time.thread_time()
    call(count)
    return (time.thread_time() - start) / count

def turn(observed, call, count):
    dist.barrier()
    recorder.begin_run()
    if observed:
        events.start()
    try:
        call(max(3, count // 10))
        before = recorder.count
        took = timed(call, count)
        return took, (recorder.count - before) / count
    finally:
        events.stop()
"""
BY_TURNS = """
taken = {{"on": [], "off": [], "control": []}}
noted = []
shuffle = random.Random(len(taken)).shuffle
for _ in range({turns}):
    order = list(taken)
    shuffle(order)
    for kind in order:
        took, count = turn(kind == "on", {call}, {count})
        taken[kind].append(took)
        if kind == "on":
            noted.append(count)
result = taken, noted
"""
TIMED = f"""
import sys
real = sys.monitoring
calls = []

def timing(function):
    def call(*args):
        start = time.perf_counter_ns()
        result = function(*args)
        calls.append(time.perf_counter_ns() - start)
        return result
    return call

class Timed:
    def __getattr__(self, name):
        return getattr(real, name)

    def register_callback(self, tool, event, function):
        return real.register_callback(tool, event, timing(function))

result = []
for _ in range({TURNS}):
    took, _ = turn(False, trainer.run, {STEPS})
    sys.monitoring = Timed()
    try:
        events.start()
    finally:
        sys.monitoring = real
    trainer.run(10)
    calls.clear()
    trainer.run({STEPS})
    events.stop()
    spent = sum(one for one in calls if one < {SWITCHED_NS})
    result.append((1e-9 * spent / {STEPS}, took))
"""


def measure() -> list[Figure]:
    with session(RANKS, DDT_RECORDING="off") as active:
        run_checked(active, MLP + PREPARE)
        inside = _inside(active) if ALWAYS_ON else ()
        return [*_step(active), *inside, *_event(active)]


def _inside(active: Session) -> Iterator[Figure]:
    run_checked(active, TIMED)
    measured: Any = active.pull("result", rank=0)
    shares = [100 * spent / step for spent, step in measured]
    low, share, high = statistics.quantiles(shares, n=4)
    spent = 1e6 * statistics.median(spent for spent, _ in measured)
    note = f"{spent:.0f} µs a step, middle half {low:.1f} to {high:.1f} %"
    yield Figure("time in the callbacks, the same step", share, 2.0, "%", {}, note)


def _step(active: Session) -> Iterator[Figure]:
    taken, noted = _pull(active, "trainer.run", STEPS, TURNS)
    cost, (low, high), error = _compared(taken)
    how = "always on" if ALWAYS_ON else "on request"
    note = (
        f"step {1e3 * statistics.median(taken['off']):.2f} ms, "
        f"{statistics.median(noted):.1f} events in each, middle half {low:+.1f} to {high:+.1f} %, "
        f"control {error:+.1f} %"
    )
    limit = 2.0 if ALWAYS_ON else TRACE_LIMIT
    yield Figure(
        f"branches observed ({how}), a DDP step of a small MLP", cost, limit, "%", {}, note
    )


def _event(active: Session) -> Iterator[Figure]:
    taken, noted = _pull(active, "python_only", 20_000, 10)
    with_it, without = (statistics.median(taken[kind]) for kind in ("on", "off"))
    each = 1e6 * (with_it - without) / statistics.median(noted)
    note = f"{statistics.median(noted):.1f} events in a round of {1e6 * without:.2f} µs"
    yield Figure("a branch event", each, 2.0 if ALWAYS_ON else 5.0, "µs", {}, note)


def _compared(taken: dict[str, list[float]]) -> tuple[float, tuple[float, float], float]:
    """The median cost in percent, its middle half, and the apparent cost of the control."""
    pairs = [statistics.fmean(pair) for pair in zip(taken["off"], taken["control"], strict=True)]
    costs = [100 * (on / off - 1) for on, off in zip(taken["on"], pairs, strict=True)]
    errors = [100 * (c / o - 1) for c, o in zip(taken["control"], taken["off"], strict=True)]
    low, cost, high = statistics.quantiles(costs, n=4)
    return cost, (low, high), statistics.median(errors)


def _pull(active: Session, call: str, count: int, turns: int) -> Any:
    run_checked(active, BY_TURNS.format(call=call, count=count, turns=turns))
    return active.pull("result", rank=0)


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
