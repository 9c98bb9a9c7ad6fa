"""The rules on snapshots of real runs, without processes."""

from __future__ import annotations

import json
import re

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Snapshot

from ..fixtures.cases import FOLDER, Case, load_all

CASES = load_all()
KEPT = [pytest.param(case, id=case.name) for case in CASES if case.kept]


@pytest.mark.parametrize("case", KEPT)
def test_diagnosis_of_a_kept_run(case: Case) -> None:
    snapshot = Snapshot.load(case.snapshot_path)
    report = diagnose(snapshot)
    assert not case.complaints(snapshot.outcome, report), str(report)


@pytest.mark.parametrize("case", KEPT)
def test_kept_run_is_of_this_cell(case: Case) -> None:
    """After a change of a case: ``python -m tests.fixtures.regenerate NAME``."""
    snapshot = Snapshot.load(case.snapshot_path)
    assert snapshot.cell.source == case.source
    assert snapshot.world_size == len(snapshot.ranks) == case.n
    assert Snapshot.from_json(json.loads(json.dumps(snapshot.to_json()))) == snapshot


def test_names_are_unique_and_nothing_is_left_over() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    kept = {path.name.removesuffix(".ddt.json") for path in FOLDER.glob("*.ddt.json")}
    assert kept == {case.name for case in CASES if case.kept}


def test_no_machine_shows() -> None:
    paths = re.compile(r"/(?:home|root|tmp|work|usr|opt|Users)/|site-packages")
    for path in FOLDER.glob("*.ddt.json"):
        assert not paths.search(path.read_text(encoding="utf-8")), path.name
