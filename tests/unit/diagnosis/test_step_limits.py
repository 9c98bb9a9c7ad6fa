"""A limit on steps that differs between ranks, whose loops took other rounds before."""

from __future__ import annotations

from .test_partings import Rank, _found, _line

SOURCE = """while True:
    for number, batch in enumerate(loader):
        train(batch)
        if number % 2 == 1:
            dist.all_reduce(gradients)
            step += 1
        if {test}:
            break
    if {test}:
        break
def shuffled(data):
    return [one for one in data]
"""
#: What making the order of an epoch leaves behind.
ORDER = [(12, 12)] * 12


def _run(epochs: list[int], leaves: bool, outer: object) -> list[object]:
    """A rank that exchanges gradients every second batch; ``outer``: its way at the second test."""
    steps: list[object] = []
    for number, batches in enumerate(epochs):
        last = number == len(epochs) - 1
        steps += ORDER
        for batch in range(batches):
            exchanges = batch % 2 == 1
            steps += [(2, 3), (4, 5 if exchanges else 7), *([5] if exchanges else [])]
            steps.append((7, 8 if last and leaves and batch == batches - 1 else 2))
        if not last:
            steps += [(2, 9), (9, 1)]
    if leaves:
        steps.append(outer)
    return steps


NAMES = {12: "shuffled"}
LEFT = Rank(1, _run([7, 4], True, (9, 10)), functions=NAMES)
WAITING = Rank(0, [*_run([8, 3], False, None), (2, 3), (4, 5), 5], "blocked", NAMES)


def test_the_limit_is_named_and_not_a_loop_that_took_other_rounds_before() -> None:
    """Both counted five steps; one had four of them in its first epoch."""
    found = _found(SOURCE.format(test="step >= limit"), WAITING, LEFT)
    assert (found.ranks, _line(found)) == ([1], 7)


def test_steps_that_the_ranks_counted_differently_are_left_to_other_rules() -> None:
    """One rank began with an epoch without an exchange, and counts batches."""
    source = SOURCE.replace("step += 1", "pass").replace("train(batch)", "step += 1")
    found = _found(source.format(test="step >= limit"), WAITING, LEFT)
    assert _line(found) == 2
