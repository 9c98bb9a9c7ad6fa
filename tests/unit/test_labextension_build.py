"""The committed bundle equals a build of its sources, where Node and the packages are installed.

The packages are those in ``extension/node_modules``. In continuous integration (``CI`` is set) they
are fetched where they are missing. Everything is done in a copy.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

_SOURCES = (
    *("package.json", "package-lock.json", "tsconfig.json", "webpack.config.js"),
    *("stamp.mjs", "viewer.mjs"),
)
#: What a build writes.
_BUILT = ("ddt_notebook/labextension", "ddt_notebook/views/assets/viewer.js")
_FETCH_LIMIT_S, _BUILD_LIMIT_S = 40, 90
_FETCH = ("ci", "--no-audit", "--no-fund", "--fetch-retries=0")

pytestmark = pytest.mark.timeout(_FETCH_LIMIT_S + _BUILD_LIMIT_S + 60)


@pytest.fixture
def copy(root: Path, tmp_path: Path) -> Iterator[Path]:
    """The sources in another folder."""
    folder = tmp_path / "extension"
    folder.mkdir()
    for name in _SOURCES:
        shutil.copy(root / "extension" / name, folder)
    for name in ("schema", "src", "style"):
        shutil.copytree(root / "extension" / name, folder / name)
    yield folder
    shutil.rmtree(folder)


def test_the_bundle_equals_a_build_of_its_sources(root: Path, copy: Path) -> None:
    """After a change in extension/: make extension."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Node is not installed")
    have_packages(root / "extension" / "node_modules", npm, copy)
    run(npm, copy, _BUILD_LIMIT_S, "run", "build", may_fail=False)
    built, committed = (
        contents(folder, [folder / name for name in _BUILT]) for folder in (copy.parent, root)
    )
    assert built.keys() == committed.keys()
    assert [name for name in built if built[name] != committed[name]] == []


def have_packages(installed: Path, npm: str, copy: Path) -> None:
    """Have the packages in the copy: a link to their folder would change the order of modules."""
    if installed.is_dir():
        shutil.copytree(installed, copy / "node_modules", symlinks=True, copy_function=link)
    elif os.environ.get("CI"):
        run(npm, copy, _FETCH_LIMIT_S, *_FETCH, may_fail=True)
    else:
        pytest.skip("there is no extension/node_modules: make extension")


def link(source: str, target: str) -> None:
    """A hard link; a copy where the target is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def run(npm: str, folder: Path, limit_s: float, *words: str, may_fail: bool) -> None:
    """Run npm; skip the test where it is too slow, or where it may fail and does."""
    process = subprocess.Popen(
        [npm, *words],
        cwd=folder,
        env=os.environ | {"NPM_CONFIG_UPDATE_NOTIFIER": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # npm's own children, too
        process.communicate()
        pytest.skip(f"npm {words[0]} did not end within {limit_s} s")
    if process.returncode and may_fail:
        pytest.skip(f"the packages cannot be had: {output[-2000:]}")
    assert process.returncode == 0, output[-2000:]


def contents(folder: Path, built: list[Path]) -> dict[str, bytes]:
    """Every file of the bundles."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for one in built
        for path in (one, *one.rglob("*"))
        if path.is_file()
    }
