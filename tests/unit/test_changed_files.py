"""Files with random changes are refused with a `FormatError`, or every view of them works.

``make fuzz`` tries many more changes of each kind, from another seed if one is given.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.cli import main
from ddt_notebook.model import FormatError, Snapshot
from ddt_notebook.views import exported_page
from ddt_notebook.views.registry import VIEWS

from .changed_data import bytes_changed, changed
from .test_collection import SEGFAULT, STACK, TRACEBACK, summary, torchrun_logs
from .test_dumps import entry

FIXTURES = sorted((Path(__file__).parents[1] / "fixtures").glob("*.ddt.json"))
CHANGES = int(os.environ.get("DDT_CHANGES", "100"))
FIRST = int(os.environ.get("DDT_SEED", "0"))
SEEDS = range(FIRST, FIRST + CHANGES)
pytestmark = pytest.mark.timeout(max(120, CHANGES))


def show(snapshot: Snapshot | None, path: Path) -> None:
    """Make every text and page of a snapshot."""
    assert snapshot is not None
    report = ddt.diagnose(snapshot)
    _shown(report)
    report.to_json()
    exported_page.page(snapshot).encode()
    for view in VIEWS.values():
        if view.is_in(snapshot):
            shown = view.of(snapshot)
            _shown(shown)
            shown.to_frame()
    snapshot.save(path)
    assert Snapshot.load(path) == snapshot


def _shown(shown: Any) -> None:
    """Make the text and the HTML, and encode both for a terminal and a page."""
    str(shown).encode()
    for text in shown._repr_mimebundle_().values():
        json.dumps(text, ensure_ascii=False).encode()


def test_changed_runs(tmp_path: Path) -> None:
    path, again = tmp_path / "run.ddt.json", tmp_path / "again.ddt.json"
    loaded = 0
    for seed in SEEDS:
        random_ = random.Random(seed)
        plain = json.loads(random_.choice(FIXTURES).read_text(encoding="utf-8"))
        path.write_text(json.dumps(changed(plain, random_, random_.choice((1, 1, 3)))))
        try:
            snapshot = Snapshot.load(path)
        except FormatError:
            continue
        loaded += 1
        try:
            show(snapshot, again)
        except Exception as error:
            raise AssertionError(f"seed {seed} loads and fails in a view") from error
    assert loaded > CHANGES / 10


def test_changed_dumps(tmp_path: Path) -> None:
    shown = 0
    for seed in SEEDS:
        random_ = random.Random(seed)
        for rank in range(3):
            entries = [entry(n, state="started" if n == 3 else "completed") for n in (1, 2, 3)]
            config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
            plain: Any = {
                "version": "2.10",
                "pg_config": config,
                "pg_status": {},
                "entries": entries[: 3 - (rank == 2)],
            }
            if rank == seed % 3:
                plain = changed(plain, random_)
            as_json = random_.random() < 0.3
            data = json.dumps(plain).encode() if as_json else pickle.dumps(plain, protocol=2)
            if rank == seed % 3 and random_.random() < 0.3:
                data = bytes_changed(data, random_)
            (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(data)
        try:
            report = ddt.diagnose_dumps(tmp_path)
        except FormatError:
            continue
        try:
            show(report.snapshot, tmp_path / "again.json")
        except Exception as error:
            raise AssertionError(f"seed {seed} is read and fails in a view") from error
        finally:
            (tmp_path / "again.json").unlink(missing_ok=True)
        shown += 1
    assert shown > CHANGES / 10


def test_changed_logs(tmp_path: Path) -> None:
    texts = (TRACEBACK.format(rank=1), summary((1, 1), (0, -15)), STACK, SEGFAULT)
    read = 0
    for seed in SEEDS:
        random_ = random.Random(seed)
        data = bytes_changed(random_.choice(texts).encode(), random_)
        folder = tmp_path / str(seed)
        torchrun_logs(folder, 0, "step 1\n")
        torchrun_logs(
            folder, 1, data.decode(errors="surrogateescape").encode("utf-8", "replace").decode()
        )
        (folder / "rank1.txt").write_bytes(data)
        try:
            report = ddt.diagnose_dumps(folder)
            _shown(report)
            if report.snapshot is not None:
                show(report.snapshot, tmp_path / "again.json")
            _shown(ddt.diagnose_text(data.decode(errors="replace")))
            assert main(["diagnose", str(folder / "rank1.txt"), "--json"]) in (0, 1)
            assert main(["diagnose", str(folder / "rank1.txt")]) in (0, 1)
        except FormatError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed} fails") from error
        read += 1
    assert read > CHANGES / 10


@pytest.mark.parametrize(
    "text",
    ['{"a":' * 100_000, "[" * 100_000, '{"duration_s": NaN}', '{"duration_s": 1e999}', "9" * 5000],
    ids=["objects", "lists", "nan", "infinity", "digits"],
)
def test_deep_nesting_and_impossible_numbers_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "run.ddt.json"
    path.write_text(text)
    with pytest.raises(FormatError, match="is not a ddt_notebook snapshot"):
        Snapshot.load(path)


def test_the_largest_factor_of_a_gradient_scaler_is_no_impossible_number(tmp_path: Path) -> None:
    path = tmp_path / "run.ddt.json"
    plain = json.loads(FIXTURES[0].read_text(encoding="utf-8"))
    path.write_text(json.dumps(plain | {"duration_s": 2.0**127}))
    assert Snapshot.load(path).duration_s == 2.0**127


def test_the_last_of_several_equal_keys_counts(tmp_path: Path) -> None:
    text = FIXTURES[0].read_text(encoding="utf-8")
    path = tmp_path / "run.ddt.json"
    path.write_text('{"outcome": "strange", ' + text.lstrip()[1:])
    assert Snapshot.load(path) == Snapshot.load(FIXTURES[0])
