"""The guide builds without a warning, can be read without a network, and is complete."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import cards
from ddt_notebook.messages import messages
from ddt_notebook.symptoms import lessons, symptoms

pytestmark = pytest.mark.timeout(600)  # the first test waits until the guide is built

FETCHED = re.compile(
    r"""<(?:script|img|iframe)\b[^>]*\bsrc="(?:https?:)?//[^"]*"""
    r"""|<link\b[^>]*\bhref="(?:https?:)?//[^"]*|@import[^;]*//|url\((?:https?:)?//[^)]*"""
)
#: The path of a link to another file of the guide.
LINKED = re.compile(r'<a\b[^>]*\bhref="(?!\w+:)([^"#?]+)')
#: The most that a notebook and its server may need together.
LIMIT_MB = 1000
SLOWEST_S = 40


@pytest.fixture(scope="module")
def guide(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built guide; from a copy, because building writes the pages that are derived."""
    if importlib.util.find_spec("sphinx") is None:
        pytest.skip("Sphinx is not installed")
    source = tmp_path_factory.mktemp("project")
    skipped = shutil.ignore_patterns("_build", "notebooks")
    shutil.copytree(root / "docs", source / "docs", ignore=skipped)
    shutil.copyfile(root / "CONTRIBUTING.md", source / "CONTRIBUTING.md")
    goal = source / "html"
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", source / "docs", goal],
        capture_output=True,
        text=True,
        timeout=590,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return goal


def test_every_link_within_the_guide_leads_to_a_file(guide: Path) -> None:
    found = {
        (page, link)
        for page in guide.rglob("*.html")
        for link in LINKED.findall(page.read_text("utf-8"))
    }
    assert any("notebooks" in page.parts for page, _ in found)
    dead = [
        f"{page.relative_to(guide)}: {link}"
        for page, link in sorted(found)
        if not (page.parent / unquote(link)).exists()
    ]
    assert not dead


def test_the_guide_has_every_notebook_and_fetches_nothing(guide: Path) -> None:
    shown = {path.relative_to(guide).as_posix() for path in guide.rglob("*.html")}
    for name in lessons.notebooks():
        assert f"notebooks/{name.removesuffix('.ipynb')}.html" in shown
    pages = [*guide.rglob("*.html"), *guide.rglob("*.css")]
    found = {match.group() for page in pages for match in FETCHED.finditer(page.read_text("utf-8"))}
    assert not found


def test_every_symptom_has_a_page_and_every_fault_an_anchor(guide: Path) -> None:
    for known in symptoms():
        page = (guide / "symptoms" / f"{known.code}.html").read_text("utf-8")
        for card in cards():
            if card.symptoms[0] == known.code:
                assert f'id="{card.id}"' in page


def test_every_message_has_an_anchor_and_its_advice_is_code_that_can_be_copied(guide: Path) -> None:
    for entry in messages():
        page = guide / "messages" / f"{entry.raiser}.html"
        assert f'id="{entry.id}"' in page.read_text("utf-8")
    accelerate = (guide / "messages" / "accelerate.html").read_text("utf-8")
    assert "device_map={&quot;&quot;: local_rank}" in accelerate


def test_the_guide_describes_every_public_name_and_every_magic(guide: Path) -> None:
    api = (guide / "api.html").read_text("utf-8")
    left_out = {"__version__", "load_ipython_extension", "unload_ipython_extension"}
    missing = [
        name
        for name in sorted(set(ddt.__all__) - left_out)
        if f'id="ddt_notebook.{name}"' not in api and f'id="{_home(name)}"' not in api
    ]
    assert not missing
    magics = (guide / "magics.html").read_text("utf-8")
    assert all(f"%{name}" in magics for name in ("ddt_start", "ddt_debug", "ddt_lint", "ddt_stop"))


def _home(name: str) -> str:
    return f"{getattr(ddt, name).__module__}.{name}"


def test_no_notebook_needs_more_than_a_small_machine_has(root: Path) -> None:
    figures = json.loads((root / "docs" / "figures.json").read_text())
    names = {Path(name).stem for name in lessons.notebooks() if not name.startswith("exercises/")}
    assert set(figures["notebooks"]) == names
    server = figures["server_megabytes"]
    assert 20 < server < LIMIT_MB / 4
    for name, one in figures["notebooks"].items():
        assert one["megabytes"] + server <= LIMIT_MB, name
        assert one["seconds"] <= SLOWEST_S, name
