"""Collects texts, sources, dumps and synthetic snapshots for the comparison of conclusions."""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ddt_notebook as ddt

from .common import ROOT

TESTS = ROOT / "tests"
ENDING = ".ddt.json"
#: Longer inputs test the speed, not the conclusions.
LONGEST_TEXT, LONGEST_SNAPSHOT = 100_000, 2_000_000
#: Functions that unit tests call, and whose arguments are kept.
HEARD = ("diagnose", "diagnose_text", "diagnose_dumps", "lint")
_ODD = re.compile(r"[^\w.-]+")


class Listener:
    """A plugin of pytest that keeps the arguments of the functions that conclude."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.texts: dict[str, str] = {}
        self.sources: dict[str, dict[str, Any]] = {}
        self._test = ""
        self._kept: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for module in {item.module for item in items}:
            for name in HEARD:
                if inspect.isfunction(heard := vars(module).get(name)):
                    setattr(module, name, self.listening(name, heard))

    def pytest_runtest_setup(self, item: Any) -> None:
        self._test = _ODD.sub("-", f"unit-{item.path.stem}-{item.originalname}").strip("-")

    def listening(self, name: str, heard: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(heard)
        def call(*given: Any, **options: Any) -> Any:
            if given:
                getattr(self, f"_{name}")(given[0], options)
            return heard(*given, **options)

        return call

    def _name(self, kind: str, content: str) -> str:
        """A new name, empty if the same content has been kept."""
        key = f"{kind} {hashlib.sha256(content.encode(errors='replace')).hexdigest()}"
        if key in self._kept:
            return ""
        self._numbers[kind + self._test] += 1
        self._kept[key] = f"{self._test}-{self._numbers[kind + self._test]}"
        return self._kept[key]

    def _diagnose(self, snapshot: Any, _: dict[str, Any]) -> None:
        if isinstance(snapshot, ddt.Snapshot):
            text = json.dumps(snapshot.to_json(), ensure_ascii=False)
            if len(text) <= LONGEST_SNAPSHOT and (name := self._name("snapshot", text)):
                (self.folder / f"{name}{ENDING}").write_text(text, encoding="utf-8")

    def _diagnose_text(self, text: Any, _: dict[str, Any]) -> None:
        if isinstance(text, str) and len(text) <= LONGEST_TEXT and (name := self._name("t", text)):
            self.texts[name] = text

    def _lint(self, source: Any, options: dict[str, Any]) -> None:
        public: dict[str, Any] = {
            key: options[key] for key in ("name", "first_line") if key in options
        }
        if isinstance(source, str) and (name := self._name("lint", f"{source} {public}")):
            self.sources[name] = {"source": source, **public}

    def _diagnose_dumps(self, path: Any, _: dict[str, Any]) -> None:
        if Path(path).is_dir():
            files = sorted(file for file in Path(path).iterdir() if file.is_file())
            content = repr([(file.name, file.read_bytes()) for file in files])
            if name := self._name("dumps", content):
                (self.folder / "dumps" / name).mkdir(parents=True)
                for file in files:
                    shutil.copy(file, self.folder / "dumps" / name)


def record_inputs(folder: Path) -> None:
    """Keep texts, sources and dumps, and the synthetic snapshots of unit tests.

    A unit test that inspects one of these functions may fail here.
    """
    import pytest

    listener = Listener(folder)
    shutil.rmtree(folder / "dumps", ignore_errors=True)
    word = re.compile(rf"\b(?:{'|'.join(HEARD)})\(")
    files = [
        str(path)
        for path in sorted((TESTS / "unit").rglob("test_*.py"))
        if word.search(path.read_text(encoding="utf-8"))
    ]
    public = {name: getattr(ddt, name) for name in HEARD}
    for name, function in public.items():
        setattr(ddt, name, listener.listening(name, function))
    try:
        options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", "-m", "not slow"]
        status = pytest.main([*options, "--rootdir", str(ROOT), *files], plugins=[listener])
    finally:
        for name, function in public.items():
            setattr(ddt, name, function)
    print(f"unit tests ended with {status!r}", flush=True)
    inputs = {"texts": listener.texts | _messages(), "sources": listener.sources | _sources()}
    text = json.dumps(inputs, ensure_ascii=False, indent=1, sort_keys=True)
    (folder / "inputs.json").write_text(text, encoding="utf-8", errors="replace")


def _messages() -> dict[str, str]:
    """The error messages on the cards."""
    return {
        f"card-{card.id}-{backend}-{number}": message
        for card in ddt.fault_cards()
        for backend in ("gloo", "nccl")
        for number, message in enumerate(getattr(card, backend), start=1)
    }


def _sources() -> dict[str, dict[str, Any]]:
    """Cells and scripts that lint reads without running them."""
    from tests.fixtures import cases
    from tests.fixtures.training import COMMON, FAULTS, PROGRAMS

    found = {}
    for card in ddt.fault_cards():
        for part in ("broken", "fixed", "proof", "setup"):
            found[f"card-{card.id}-{part}"] = {"source": getattr(card, part)}
    for path in sorted(cases.FOLDER.glob("*.toml")):
        for case in cases.load(path.stem):
            for part in ("earlier", "source", "then"):
                found[f"{path.stem}-{case.name}-{part}"] = {"source": getattr(case, part)}
    for fault in FAULTS:
        found[f"training-fault-{fault.name}"] = {"source": COMMON + fault.source}
    for name, source in PROGRAMS.items():
        found[f"training-healthy-{name}"] = {"source": COMMON + source}
    for folder in ("training_scripts", "look_alikes"):
        for path in sorted((TESTS / "fixtures" / folder).glob("*.py")):
            source = path.read_text(encoding="utf-8")
            found[f"{folder}-{path.stem}"] = {"source": source, "name": path.name}
    return {name: given for name, given in found.items() if given["source"]}
