"""The cost of the timeline and the memory by kind (``trace=True``) in a DDP step, in turns."""

from __future__ import annotations

import statistics

from ddt_notebook.host.session import Session

from .common import Figure, check, session
from .recording import MLP, PREPARE, TRANSFORMER

RANKS = 2
ROUNDS = 30
#: The first steps of a traced cell inspect memory, which is not part of the cost of a step.
WARM = """
for _ in range(3):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


def measure() -> list[Figure]:
    return [
        _figure("cost of a trace on a DDP step, small MLP", MLP),
        _figure("cost of a trace on a DDP step, small transformer", TRANSFORMER),
    ]


def _figure(what: str, network: str) -> Figure:
    with session(RANKS) as active:
        check(
            active.run(network + PREPARE + "steps = min(steps, 150)").ok, "the model was not made"
        )
        _step_s(active, trace=True)
        ratios, plain = [], []
        for turn in range(ROUNDS):
            order = (True, False) if turn % 2 else (False, True)
            times = {trace: _step_s(active, trace=trace) for trace in order}
            ratios.append(times[True] / times[False])
            plain.append(times[False])
    quarter, _, three_quarters = statistics.quantiles(ratios, n=4)
    note = (
        f"step {1e3 * statistics.median(plain):.2f} ms, {ROUNDS} pairs, "
        f"middle half {100 * (quarter - 1):+.1f} to {100 * (three_quarters - 1):+.1f} %"
    )
    return Figure(what, 100 * (statistics.median(ratios) - 1), 10.0, "%", note=note)


def _step_s(active: Session, *, trace: bool) -> float:
    result = active.run(WARM + "taken_s = step_s(steps)\n", trace=trace)
    check(result.ok, f"the steps failed: {result.errors}")
    return float(active.pull("taken_s", rank=0))  # type: ignore[arg-type]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
