"""Fixtures for all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ddt_notebook.host.session import active

if TYPE_CHECKING:
    from xdist.scheduler import LoadFileScheduling

# A shell that starts the tests in the background makes them ignore SIGINT; some tests need it.
signal.signal(signal.SIGINT, signal.default_int_handler)


_BROWSER = "tests/browser/"
#: Tests with a browser, a kernel or ranks: a machine that stalls for a second fails one of some
#: thousand, a fault fails it twice. The end of the run shows what failed at first: there, a wrong
#: accusation is a fault all the same (benchmarks/busy_machine.py looks for more of them).
_TWICE = (
    _BROWSER,
    "tests/magics/",
    "tests/multiprocess/",
    "tests/notebooks/",
)


#: What these find depends on the time that ranks take: they run when no browser computes any more.
_MEASURING = (
    "test_cards.py",
    "test_held_out.py",
    "test_memory.py",
    "test_showing.py",
    "test_slow_ranks.py",
    "test_timeline.py",
    "test_training_faults.py",
)


def pytest_configure(config: pytest.Config) -> None:
    """Have all notebooks use one kernel, where nbval tests them."""
    if config.getoption("nbval_lax", False):
        from .lesson_kernels import LessonKernels

        config.pluginmanager.register(LessonKernels())


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """Have one process run all tests in the browser, where each is asked to run whole files.

    They share a JupyterLab, a browser that has loaded it and a kernel, whose start takes as much
    processor time as four of these tests. Processes with ranks, which often wait, run beside it.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class BrowserTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return _BROWSER if file.startswith(_BROWSER) else file

    return BrowserTogether(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give some a second try, of which the end of the run names those that needed it.

    A browser computes and ranks wait: side by side, they keep the processors busy.
    """
    files: dict[str, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    computing = [name for name in files if name.startswith(_BROWSER)]
    waiting = [name for name in files if name.startswith("tests/multiprocess/")]
    waiting.sort(key=lambda name: name.endswith(_MEASURING))
    items[:] = [
        item for name in dict.fromkeys([*computing, *waiting, *files]) for item in files[name]
    ]
    for item in items:
        if item.nodeid.startswith(_TWICE):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=2))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def nothing_has_run() -> Iterator[None]:
    """What ran last in one test is nothing to the next."""
    yield
    active.keep(None)
