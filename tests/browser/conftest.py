"""A real JupyterLab with real kernels, and a browser that reaches nothing but this machine.

The browser is the chromium of the system. ``DDT_CHROMIUM`` names another one; without any, these
tests are skipped. With ``DDT_SCREENSHOTS=FOLDER`` pictures of the main states are kept.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

pytest.importorskip("jupyterlab", reason="JupyterLab is not installed")
playwright_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("axe_playwright_python", reason="axe is not installed")

from .lab import Lab, Page  # noqa: E402
from .server import BROWSER_ARGUMENTS, find_chromium, running_lab  # noqa: E402

_HAS_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note for the fixtures whether the test has failed; the session counts it after them."""
    report = yield
    if call.when == "call":
        item.stash[_HAS_FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def lab(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A server with the committed bundle."""
    bundle = root / "ddt_notebook" / "labextension"
    with running_lab(tmp_path_factory.mktemp("lab"), bundle) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[object]:
    """One browser for all tests."""
    chromium = find_chromium()
    if chromium is None:
        pytest.skip("no chromium: apt-get install chromium, or name one in DDT_CHROMIUM")
    with playwright_api.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=chromium, args=BROWSER_ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="session")
def left() -> list[Page]:
    """The page in which JupyterLab is empty after a test, if there is one."""
    return []


@pytest.fixture
def page(
    browser: playwright_api.Browser, lab: Lab, left: list[Page], request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page in which every request beyond this machine fails, and fails the test.

    It is that of the test before where possible: loading JupyterLab takes longer than most tests.
    """
    opened = left.pop() if left else Page(browser, lab)
    opened.begin()
    yield opened
    failed = request.node.stash.get(_HAS_FAILED, False)
    if failed:
        opened.picture(f"failed-{request.node.name}")
    errors = [*opened.errors]
    if not failed and opened.leave():
        left.append(opened)
    else:
        opened.close(keep_kernel=not failed)
    assert opened.strays == []
    # JupyterLab has errors of its own where a notebook is closed while its kernel starts again
    assert errors + opened.ours == []
