"""The built JupyterLab extension that is committed, so that nobody needs Node to install it."""

from __future__ import annotations

import hashlib
import importlib
import json
import re
from pathlib import Path

from ddt_notebook.views.registry import below_diagnosis

LIMIT_BYTES = 300_000


def bundle(root: Path) -> Path:
    return root / "ddt_notebook" / "labextension"


def test_the_bundle_was_built_from_the_sources(root: Path) -> None:
    """After a change in extension/: make extension."""
    folder = root / "extension"
    files = [
        folder / name
        for name in ("package.json", "package-lock.json", "tsconfig.json", "viewer.mjs")
    ]
    files.append(folder / "webpack.config.js")
    files += [
        path
        for name in ("schema", "src", "style")
        for path in (folder / name).rglob("*")
        if path.is_file()
    ]
    total = hashlib.sha256()
    for name, path in sorted((path.relative_to(folder).as_posix(), path) for path in files):
        total.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    assert (bundle(root) / "sources.sha256").read_text().strip() == total.hexdigest()


def test_the_bundle_is_complete_and_small(root: Path) -> None:
    about = json.loads((bundle(root) / "package.json").read_text())
    assert (bundle(root) / about["jupyterlab"]["_build"]["load"]).is_file()
    assert (bundle(root) / "schemas" / "ddt-notebook" / "plugin.json").is_file()
    files = [path for path in bundle(root).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < LIMIT_BYTES


def test_menus_and_keys_name_commands_that_exist(root: Path) -> None:
    known = set(re.findall(r"'(ddt-notebook:[\w-]+)'", (root / "extension/src/ids.ts").read_text()))
    schema = json.loads((root / "extension" / "schema" / "plugin.json").read_text())
    items = schema["jupyter.lab.menus"]["main"][0]["items"]
    items += [below for item in items for below in item.get("submenu", {}).get("items", ())]
    used = {item["command"] for item in items if "command" in item}
    used |= {shortcut["command"] for shortcut in schema["jupyter.lab.shortcuts"]}
    assert used
    assert used <= known


def test_the_menu_of_views_is_that_of_the_registry(root: Path) -> None:
    """After a change of the registry: make extension."""
    schema = json.loads((root / "extension" / "schema" / "plugin.json").read_text())
    items = schema["jupyter.lab.menus"]["main"][0]["items"]
    (views,) = [item["submenu"]["items"] for item in items if "submenu" in item]
    expected = [{"view": view.name, "label": view.label} for view in below_diagnosis()]
    assert [item["args"] for item in views] == expected


def test_the_front_end_requests_nothing_from_the_network(root: Path) -> None:
    """The sources contain no address; only JupyterLab itself gets requests."""
    sources = [*(root / "extension" / "src").rglob("*"), *(root / "extension" / "style").iterdir()]
    text = "".join(path.read_text() for path in sources if path.is_file())
    addresses = set(re.findall(r"https?://[^\s'\"]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}


def test_modules_that_the_front_end_imports_in_the_kernel_exist(root: Path) -> None:
    sources = (root / "extension" / "src").rglob("*.ts*")
    imported = [
        found
        for source in sources
        for found in re.findall(r"from (ddt_notebook[\w.]*) import (\w+)", source.read_text())
    ]
    assert imported
    for module, name in imported:
        assert hasattr(importlib.import_module(module), name), f"{module} has no {name}"
