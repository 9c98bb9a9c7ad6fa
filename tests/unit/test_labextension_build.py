"""The committed bundle equals a build of its sources, where Node and the packages are installed.

The packages are those in ``extension/node_modules``, which ``make extension`` fetches before it
runs this test. Everything is done in a copy. Without them, `test_labextension` compares the sources
with those of which the bundle has a stamp.
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
_BUILD_LIMIT_S = 90

pytestmark = pytest.mark.timeout(_BUILD_LIMIT_S + 60)


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
    installed = root / "extension" / "node_modules"
    if not installed.is_dir():
        pytest.skip("there is no extension/node_modules: make extension")
    # a link to their folder would change the order of modules
    shutil.copytree(installed, copy / "node_modules", symlinks=True, copy_function=link)
    build(npm, copy)
    built, committed = (
        contents(folder, [folder / name for name in _BUILT]) for folder in (copy.parent, root)
    )
    assert built.keys() == committed.keys()
    assert [name for name in built if built[name] != committed[name]] == []


def link(source: str, target: str) -> None:
    """A hard link; a copy where the target is on another disk."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def build(npm: str, folder: Path) -> None:
    """Build the bundle there; skip the test where that is too slow."""
    process = subprocess.Popen(
        [npm, "run", "build"],
        cwd=folder,
        env=os.environ | {"NPM_CONFIG_UPDATE_NOTIFIER": "false"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=_BUILD_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # npm's own children, too
        process.communicate()
        pytest.skip(f"npm did not end within {_BUILD_LIMIT_S} s")
    assert process.returncode == 0, output[-2000:]


def contents(folder: Path, built: list[Path]) -> dict[str, bytes]:
    """Every file of the bundles."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for one in built
        for path in (one, *one.rglob("*"))
        if path.is_file()
    }
