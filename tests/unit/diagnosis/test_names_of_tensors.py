"""Ranks that meet by the names of tensors: which of them went past a call."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, RankError, RankReport, Report
from ddt_notebook.model.frameworks.horovod import OPTIMIZER

from .builders import at, only, snapshot

EIGENVALUE = """for epoch in range(epochs):
    for part in order.split(size):
        model(part).backward()
    top = eigenvalue(model)
def eigenvalue(model, most=20):
    for i in range(most):
        handles = [hvd.allreduce_async_(v, name=f"v{n}") for n, v in enumerate(vectors)]
        estimate = product(vectors)
        if abs(estimate - before) < 0.05:
            break
"""


def _calls(*made: tuple[str, int]) -> tuple[Call, ...]:
    """Calls of the names and lines; those of line 7 come from line 4."""
    counts: dict[str, int] = {}
    found = []
    for index, (name, line) in enumerate(made):
        counts[name] = counts.get(name, 0) + 1
        call = Call(
            index=index,
            op="allreduce",
            group=f"allreduce.{name}",
            members=(0, 1),
            sequence=counts[name],
            where=at(line, function="eigenvalue" if line == 7 else "<module>"),
            callers=(at(4),) if line == 7 else (),
            asynchronous=True,
        )
        found.append(call)
    return tuple(found)


def _waits(number: int, calls: tuple[Call, ...]) -> RankReport:
    last = calls[-1]
    assert last.where is not None
    calls = (*(replace(one, status="done") for one in calls[:-1]), replace(last, status="pending"))
    return RankReport(
        rank=number,
        state="blocked",
        blocked_in=last.index,
        blocked_s=2.0,
        position=last.where,
        stack=(*reversed(last.callers), last.where),
        calls=calls,
    )


def _diagnosed(source: str, *ranks: RankReport) -> Report:
    return diagnose(
        replace(snapshot(*ranks, source=source, outcome="hung"), framework="horovod", world_size=2)
    )


STEP = [("weight", 3), ("bias", 3)]
ROUND = [("v0", 7), ("v1", 7)]


def test_a_rank_that_left_a_loop_early_is_named_and_not_one_that_has_not_come_again() -> None:
    leaves = _waits(0, _calls(*STEP * 3, *ROUND * 2, *STEP[:1]))
    stays = _waits(1, _calls(*STEP * 3, *ROUND * 2, *ROUND[:1]))
    finding = only(_diagnosed(EIGENVALUE, leaves, stays))
    assert (finding.ranks, finding.cause) == ([0], "collective-under-local-condition")
    assert [fact.place.line for fact in finding.facts if fact.kind != "waits-for-handle"][:1] == [9]


def test_a_rank_that_ended_its_part_of_a_loop_earlier_is_still_named() -> None:
    ends = _waits(0, _calls(*STEP * 2, *ROUND[:1]))
    goes_on = _waits(1, _calls(*STEP * 3))
    finding = only(_diagnosed(EIGENVALUE, ends, goes_on))
    assert finding.ranks == [0]
    assert finding.cause == "horovod-steps-differ"


EMPTY = """for name, p in model.named_parameters():
    if p.requires_grad:
        if p.grad is None:
            continue
        hvd.allreduce(p.grad, name=name)
"""


def test_a_gradient_that_is_not_there_comes_before_what_a_parameter_is() -> None:
    one, two = (_waits(rank, _calls(("a", 5), (f"b{rank}", 5))) for rank in (0, 1))
    finding = only(_diagnosed(EMPTY, one, replace(two, rank=1)))
    lines = [f.place.line for f in finding.facts if f.place is not None]
    assert 3 in lines
    assert 2 not in lines


GONE = "Allreduce: Process set provided does not exist, or has not been registered."


@pytest.mark.parametrize("before", [True, False])
def test_a_process_set_that_is_gone_with_another_rank(before: bool) -> None:
    """A set that this rank never used may be missing here alone."""
    calls = _calls(("loss", 3), ("loss", 3))
    error = RankError(type="ValueError", message=GONE, where=at(3))
    shut = RankError(type="HorovodInternalError", message="Horovod has been shut down.")
    status = "done" if before else "failed"
    first = RankReport(
        rank=0,
        state="raised",
        error=error,
        calls=(replace(calls[0], status=status), replace(calls[1], status="failed")),
    )
    other = replace(first, rank=1, error=shut, calls=())
    found = diagnose(
        replace(snapshot(first, other, source=EMPTY, outcome="failed"), framework="horovod")
    )
    kinds = [finding.kind for finding in found.findings]
    assert ("raised" in kinds) is not before


def test_a_gradient_that_is_sent_by_another_line_on_each_rank_is_no_swap() -> None:
    """A rank that did not use a parameter sends zeros for it in the step."""
    lines = ((3, 4), (4, 3))
    ranks = [
        RankReport(rank=rank, calls=_calls(*(("weight", line) for line in made)))
        for rank, made in enumerate(lines)
    ]
    report = diagnose(replace(snapshot(*ranks, source=EIGENVALUE), framework="horovod"))
    assert not report.hints
    unnamed = [
        replace(one, calls=tuple(replace(c, group="allreduce.noname") for c in one.calls))
        for one in ranks
    ]
    assert diagnose(replace(snapshot(*unnamed, source=EIGENVALUE), framework="horovod")).hints


SHUTS_DOWN = """for epoch in range(epochs):
    model(x).backward()
    if CONDITION:
        hvd.shutdown()
        break
"""


@pytest.mark.parametrize(
    ("condition", "cause"),
    [
        ("loss < 0.5", "collective-under-local-condition"),
        ("hvd.rank() == 1", "early-exit-on-rank-condition"),
    ],
)
@pytest.mark.parametrize("both", [False, True])
def test_a_rank_that_alone_ended_horovod_is_told_at_that_line(
    condition: str, cause: str, both: bool
) -> None:
    ended = Call(index=2, op="hvd.shutdown", kind="setup", sequence=1, where=at(4))
    waits = _waits(0, _calls(("w", 2), ("w", 2), ("w", 2)))
    if both:
        waits = replace(waits, calls=(*waits.calls, replace(ended, index=9)))
    left = RankReport(rank=1, state="finished", calls=(*_calls(("w", 2), ("w", 2)), ended))
    source = SHUTS_DOWN.replace("CONDITION", condition)
    found = only(
        diagnose(snapshot(waits, left, source=source, outcome="hung", framework="horovod"))
    )
    assert found.ranks == [1]
    told = [one for one in found.facts if one.kind == "ends-framework"]
    assert [one.place.line for one in told if one.place] == ([] if both else [4])
    if not both:
        assert found.cause == cause
        assert told[0].values == {"framework": "Horovod", "decided": 3}


def test_the_end_of_the_program_is_no_reason_why_a_rank_made_fewer_calls() -> None:
    source = "for part in order.split(size):\n    model(part).backward()\nhvd.shutdown()\n"
    ended = Call(index=2, op="hvd.shutdown", kind="setup", sequence=1, where=at(3))
    waits = _waits(0, _calls(("w", 2), ("w", 2), ("w", 2)))
    left = RankReport(rank=1, state="finished", calls=(*_calls(("w", 2), ("w", 2)), ended))
    found = only(
        diagnose(snapshot(waits, left, source=source, outcome="hung", framework="horovod"))
    )
    assert (found.cause, found.ranks) == ("horovod-steps-differ", [1])
    assert "ends-framework" not in {one.kind for one in found.facts}


@pytest.mark.parametrize("removes", [False, True])
def test_a_process_set_that_ended_with_a_rank_is_no_fault_of_the_others(removes: bool) -> None:
    """All sets of Horovod end with the first rank that ends; only one of its own set waited."""
    message = "Allreduce: Process set provided does not exist, or has not been registered."
    error = RankError(type="ValueError", message=message, where=at(3))

    def calls(members: tuple[int, ...], times: int, *later: Call) -> tuple[Call, ...]:
        name = f"allreduce.w of process set {members}"
        found = (replace(one, group=name, members=members) for one in _calls(*[("w", 2)] * times))
        return (*found, *(replace(one, members=members) for one in later))

    loss = Call(index=2, op="allreduce", group="allreduce.loss", sequence=1, where=at(3))
    odd = calls((1, 3), 2)
    reports = [
        RankReport(
            rank=r, state="raised", error=replace(error, where=at(2)), calls=calls((0, 2), 3)
        )
        for r in (0, 2)
    ]
    loss = replace(loss, members=(1, 3), status="pending", asynchronous=True)
    reports.insert(1, RankReport(rank=1, state="raised", error=error, calls=(*odd, loss)))
    reports.append(RankReport(rank=3, state="finished", calls=odd))
    source = "for epoch in range(9):\n    step()\n    loss = hvd.allreduce(loss)\n"
    source += "hvd.remove_process_set(odds)\n" * removes
    report = diagnose(snapshot(*reports, source=source, outcome="failed", framework="horovod"))
    if removes:
        assert {one.symptom for one in report.findings} == {"D.1.11"}
    else:
        found = only(report)
        assert (found.symptom, found.ranks, found.waiting) == ("D.2.1", [3], [1])


SETTINGS = "opt = hvd.DistributedOptimizer(sgd, backward_passes_per_step=n)\nopt.step()\nend()\n"


def _optimizer(passes: int, line: int = 1) -> Call:
    settings = {"backward_passes_per_step": str(passes), "op": "AVERAGE"}
    return Call(
        index=0, op=OPTIMIZER, kind="setup", sequence=1, where=at(line), detail=json.dumps(settings)
    )


def _accumulates(number: int, passes: int, calls: tuple[Call, ...], line: int = 1) -> RankReport:
    later = tuple(replace(one, index=one.index + 1) for one in calls)
    report = _waits(number, later)
    return replace(report, calls=(replace(_optimizer(passes, line), status="done"), *report.calls))


def test_optimizers_that_accumulate_apart_are_named_before_the_tensors_that_wait() -> None:
    ranks = (
        _accumulates(0, 1, _calls(("weight", 2), ("weight", 2))),
        _accumulates(1, 2, _calls(("weight", 2), ("loss", 3))),
    )
    finding = only(_diagnosed(SETTINGS, *ranks))
    assert (finding.cause, finding.ranks) == ("horovod-optimizers-differ", [0, 1])
    assert {place.line for place in finding.places.values()} == {1}


@pytest.mark.parametrize(("passes", "line"), [(1, 1), (2, 2)])
def test_equal_settings_and_those_of_other_optimizers_explain_no_wait(
    passes: int, line: int
) -> None:
    ranks = (
        _accumulates(0, 1, _calls(("weight", 2), ("weight", 2))),
        _accumulates(1, passes, _calls(("weight", 2), ("loss", 3)), line),
    )
    assert only(_diagnosed(SETTINGS, *ranks)).cause != "horovod-optimizers-differ"
