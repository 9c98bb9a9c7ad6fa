"""An IPython shell in this process, with the magics loaded; errors are raised, not swallowed."""

from collections.abc import Generator, Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from traitlets.config import Config

from ddt_notebook.host import launcher
from ddt_notebook.host.session import active
from ddt_notebook.magics import extension

from .kernels import FAILED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failure, after which the kernel of the test is not used again."""
    if call.excinfo is not None:
        item.stash[FAILED] = True
    return (yield)


class Notebook:
    """Runs cells, as a person would."""

    def __init__(self) -> None:
        settings = Config({"HistoryManager": {"enabled": False}})
        self.shell = InteractiveShell(config=settings)
        self.shell.colors = "nocolor"

    def run(self, source: str) -> Any:
        """Return the value of a cell, and raise what the cell raises."""
        result = self.shell.run_cell(source, store_history=True)
        result.raise_error()
        return result.result

    def shown(self, source: str) -> str:
        """Everything that a person at a terminal would see."""
        with capture_output() as captured:
            self.shell.run_cell(source, store_history=True)
        return str(captured.stdout) + str(captured.stderr)

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    """A shell with the magics; no fork server is warmed."""
    monkeypatch.setattr(launcher, "warm", lambda: None)
    made = Notebook()
    extension.load_ipython_extension(made.shell)
    yield made
    extension.unload_ipython_extension(made.shell)
    assert active.get() is None
