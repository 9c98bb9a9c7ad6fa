"""The wheel on a machine without Node: built from the tree, installed, and known to Jupyter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

LIMIT_S = 100
DATA = "ddt_notebook-{}.data/data/"
EXTENSION = "share/jupyter/labextensions/ddt-notebook/"
SERVER = "etc/jupyter/jupyter_server_config.d/ddt_notebook.json"


def run(*command: object, env: dict[str, str] | None = None) -> str:
    """Run a command and return its output."""
    done = subprocess.run(
        [*map(str, command)],
        check=False,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT_S,
    )
    assert done.returncode == 0, done.stdout
    return re.sub(r"\x1b\[\d+m", "", done.stdout)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as pip builds it, with the hatchling that is here."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    run(sys.executable, "-m", "pip", "wheel", *options, root)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_the_bundle_and_the_files_that_jupyter_reads(wheel: Path, root: Path) -> None:
    version = wheel.name.split("-")[1]
    names = set(ZipFile(wheel).namelist())
    bundle = root / "ddt_notebook" / "labextension"
    files = [path.relative_to(bundle) for path in bundle.rglob("*") if path.is_file()]
    wanted = {f"{EXTENSION}{path.as_posix()}" for path in files}
    assert f"{EXTENSION}schemas/ddt-notebook/plugin.json" in wanted
    wanted |= {f"{EXTENSION}install.json", SERVER}
    assert {DATA.format(version) + name for name in wanted} <= names
    assert "ddt_notebook/_notebooks/00-quickstart.ipynb" in names


def test_jupyter_lists_the_extension_without_node(wheel: Path, tmp_path: Path) -> None:
    fresh = tmp_path / "fresh"
    venv.create(fresh, symlinks=True)
    python = fresh / "bin" / "python"
    run(
        sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel
    )
    (packages,) = fresh.glob("lib/python*/site-packages")
    beside = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "beside.pth").write_text("\n".join(beside))  # JupyterLab, but not our own copy
    env = {
        name: text for name, text in os.environ.items() if not name.startswith(("JUP", "PYTHON"))
    }
    env |= {"HOME": str(tmp_path), "PATH": str(fresh / "bin")}
    assert str(fresh) in run(
        python, "-P", "-c", "import ddt_notebook as d; print(d.__file__)", env=env
    )
    shown = run(python, "-P", "-m", "jupyterlab.labextensions", "list", env=env)
    assert re.search(r"ddt-notebook v\S+ enabled OK \(python, ddt_notebook\)", shown), shown
    module = "jupyter_server.extension.serverextension"
    shown = run(python, "-P", "-m", module, "list", env=env)
    assert re.search(r"ddt_notebook\.server enabled", shown), shown
    assert re.search(r"ddt_notebook\.server .*OK", shown), shown
