"""Extensions that PyTorch builds when they are loaded."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Position
from ddt_notebook.model.rank import Activity

from .builders import at, rank, snapshot

_LOADS = Position(file="/x/site-packages/torch/utils/cpp_extension.py", line=9, function="load")
_BATON = "/x/site-packages/torch/utils/file_baton.py"
_WAITS = Position(file=_BATON, line=50, function="wait")
_BUILDS = Position(file=_LOADS.file, line=99, function="_run_ninja_build")


@pytest.mark.parametrize(
    ("stacks", "ranks"),
    [
        ([(_LOADS, _WAITS)] * 2, [0, 1]),
        ([(_LOADS, _WAITS), (_LOADS, _BUILDS)], None),
        ([(_LOADS,)] * 2, None),
    ],
    ids=["both wait", "one builds", "none waits"],
)
def test_a_lock_that_no_rank_holds_is_named(
    stacks: list[tuple[Position, ...]], ranks: list[int] | None
) -> None:
    scene = snapshot(
        *(
            rank(number, state="running", position=at(3), stack=(at(3), *stack))
            for number, stack in enumerate(stacks)
        ),
        outcome="interrupted",
    )
    found = [(one.cause, one.ranks) for one in diagnose(scene).findings]
    assert found == ([("build-lock-left-over", ranks)] if ranks else [])


@pytest.mark.parametrize(
    ("holder", "cause"), [(None, "build-lock-left-over"), (4711, "build-of-another-process")]
)
def test_the_lock_and_the_process_that_has_it_open_are_named(
    holder: int | None, cause: str
) -> None:
    lock = "/cache/torch_extensions/py311_cpu/cpu_adam/lock"
    waits = Activity(cpu_share=0.0, waits_for="build lock", file=lock, held_by=holder)
    scene = snapshot(
        *(
            rank(number, state="running", stack=(at(3), _LOADS, _WAITS), activity=waits)
            for number in (0, 1)
        ),
        outcome="interrupted",
    )
    (finding,) = diagnose(scene).findings
    assert finding.cause == cause
    known = next(one.values for one in finding.facts if one.kind.startswith("build-lock"))
    assert known == ({"file": lock} if holder is None else {"file": lock, "holder": holder})
    assert (f"delete the file {lock}" in finding.fixes[0].advice) == (holder is None)
