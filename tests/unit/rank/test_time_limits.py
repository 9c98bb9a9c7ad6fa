"""Which calls raise after a short time limit that the program expects."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from textwrap import dedent, indent

import pytest
import torch.distributed as dist

from ddt_notebook.rank.probes.call_sites import CallSite
from ddt_notebook.rank.probes.time_limits import TimeLimits
from ddt_notebook.wire.records import Group

SHORT, LONG = timedelta(seconds=30), timedelta(minutes=30)


class Formed(dist.ProcessGroup):
    """A group of two ranks without a backend."""

    def __init__(self, name: str) -> None:
        super().__init__(0, 2)
        self.name = name

    @property
    def group_name(self) -> str:
        return self.name


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> TimeLimits:
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    return TimeLimits()


def test_only_a_short_limit_of_the_program_counts(limits: TimeLimits) -> None:
    for name, limit in (("1", SHORT), ("2", LONG), ("3", None), ("4", 30.0)):
        limits.formed(Formed(name), limit)
    found = [limits.of("all_reduce", {}, Group(name, (0, 1))) for name in "1234"]
    assert found == [30.0, 0.0, 0.0, 0.0]
    assert [Formed(name) in limits for name in "12"] == [True, False]
    limits.formed(Formed("1"), None)
    assert limits.of("all_reduce", {}, Group("1", (0, 1))) == 0.0, "a later group with this name"


def test_the_limit_of_a_monitored_barrier_is_that_of_the_first_rank(limits: TimeLimits) -> None:
    limits.formed(Formed("1"), SHORT)
    given = {"timeout": timedelta(seconds=4)}
    first, other = Group("1", (0, 1)), Group("1", (1, 0))
    assert limits.of("monitored_barrier", given, first) == 4.0
    assert limits.of("monitored_barrier", given, other) == 30.0
    assert limits.of("monitored_barrier", {}, first) == 0.0, "torch takes its own, not the group's"


def test_a_limit_is_found_by_name_and_by_position(limits: TimeLimits) -> None:
    names = iter("123")
    new_group = limits.noted(dist.new_group, lambda *_, **__: Formed(next(names)), "new_group")
    groups = [new_group([0, 1], SHORT), new_group(timeout=SHORT), new_group([0, 1])]
    assert [group in limits for group in groups] == [True, True, False]


HANDLED = [
    "try:\n    CALL\nexcept RuntimeError:\n    done = True",
    "try:\n    if ready:\n        CALL\nexcept (OSError, Exception) as error:\n    print(error)",
    "for _ in range(2):\n    try:\n        CALL\n    except:\n        break",
    "try:\n    CALL\nexcept RuntimeError as e:\n    if is_late(e):\n        return True\n    raise",
    "with contextlib.suppress(RuntimeError):\n    CALL",
    "match way:\n case 1:\n  try:\n   CALL\n  except RuntimeError:\n   pass",
]
NOT_HANDLED = [
    "CALL",
    "try:\n    CALL\nfinally:\n    close()",
    "try:\n    begin()\nexcept RuntimeError:\n    CALL",
    "try:\n    begin()\nexcept RuntimeError:\n    pass\nelse:\n    CALL",
    "try:\n    CALL\nexcept ValueError:\n    pass",
    "try:\n    CALL\nexcept RuntimeError as error:\n    log(error)\n    raise",
    "try:\n    def join():\n        CALL\nexcept RuntimeError:\n    pass",
    "with open(name) as file:\n    CALL",
    "try:\n    CALL\n  except RuntimeError:",  # another source than ran
]


@pytest.mark.parametrize(
    ("body", "handled"),
    [*((one, True) for one in HANDLED), *((one, False) for one in NOT_HANDLED)],
)
def test_whether_a_handler_goes_on(
    limits: TimeLimits, tmp_path: Path, body: str, handled: bool
) -> None:
    file = tmp_path / "program.py"
    source = dedent("def step():\n") + indent(body, "    ") + "\n"
    file.write_text(source)
    line = 1 + next(at for at, text in enumerate(source.splitlines()) if "CALL" in text)
    found = [limits.is_handled(CallSite(str(file), line)) for _ in range(2)]
    assert found == [handled, handled]


def test_a_line_without_source_has_no_handler(limits: TimeLimits) -> None:
    assert not limits.is_handled(CallSite())
    assert not limits.is_handled(CallSite("/nowhere/program.py", 3))
