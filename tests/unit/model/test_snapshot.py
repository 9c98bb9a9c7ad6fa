"""A snapshot is the same after a trip through a file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.model import Call, Cell, Position, RankError, RankReport, Snapshot
from ddt_notebook.model.codec import FormatError
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition

WHERE = Position(file="cell[14]", line=3, code="dist.all_reduce(größe)")
SNAPSHOT = Snapshot(
    cell=Cell(number=14, source="a\nb", first_line=2),
    earlier_cells=(Cell(number=9, source="def f():\n    return 1"),),
    outcome="hung",
    ranks=(
        RankReport(
            rank=0,
            state="blocked",
            blocked_in=5,
            blocked_s=2.5,
            calls=(
                Call(index=4, op="send", kind="p2p", peer=1, tag=3, sequence=1),
                Call(
                    index=5,
                    op="all_reduce",
                    members=(0, 1),
                    sequence=1,
                    status="pending",
                    shapes=((2, 3), ()),
                    dtypes=("float32", "int64"),
                    where=WHERE,
                ),
            ),
        ),
        RankReport(
            rank=1,
            state="raised",
            error=RankError(type="ValueError", message="", where=WHERE, frames=(WHERE, WHERE)),
        ),
    ),
    groups={"0": (0, 1), "3": (1,)},
    world_size=2,
    notes=("a note",),
)


def test_round_trip_through_a_file(tmp_path: Path) -> None:
    path = SNAPSHOT.save(tmp_path / "run.ddt.json")
    loaded = Snapshot.load(str(path))
    assert loaded == SNAPSHOT
    assert loaded.rank(0).blocked_call == SNAPSHOT.ranks[0].calls[1]
    assert "größe" in path.read_text(encoding="utf-8"), "a person may read it"


def test_members_are_written_once_for_each_group() -> None:
    plain = SNAPSHOT.to_json()
    assert plain["groups"]["0"] == [0, 1]
    assert "members" not in plain["ranks"][0]["calls"][1]
    other = replace(SNAPSHOT, groups={"0": (0, 1, 2)})
    assert other.to_json()["ranks"][0]["calls"][1]["members"] == [0, 1]
    assert Snapshot.from_json(other.to_json()) == other
    older = other.to_json() | {"version": 1}
    del older["ranks"][0]["calls"][1]["members"]
    assert Snapshot.from_json(older).ranks[0].calls[1].members == ()


def test_a_field_of_a_later_version_is_ignored() -> None:
    plain = SNAPSHOT.to_json() | {"weather": "fair"}
    plain["ranks"][0]["calls"][0]["colour"] = "red"
    assert Snapshot.from_json(plain) == SNAPSHOT


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 3}, "has format 3, but this ddt_notebook reads up to 2: upgrade"),
        ({"version": "1"}, "has format 1"),
        ({"version": None}, "has format None"),
        ({"format": "something"}, "this is not a ddt_notebook snapshot"),
        ({"outcome": "fine"}, "Snapshot.outcome is 'fine', not one of ok, failed"),
        ({"cell": {"number": 1}}, "Snapshot.cell: .*'source'"),
        ({"ranks": [{"rank": "0"}]}, "Snapshot.ranks.rank is '0', not int"),
    ],
)
def test_what_cannot_be_read_says_why(change: dict[str, Any], text: str) -> None:
    with pytest.raises(FormatError, match=text):
        Snapshot.from_json(SNAPSHOT.to_json() | change)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"3"])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="not a ddt_notebook snapshot"):
        Snapshot.load(path)
    with pytest.raises(FileNotFoundError):
        Snapshot.load(tmp_path / "none.json")


def test_lines_have_the_numbers_that_the_notebook_shows() -> None:
    lines = [SNAPSHOT.source_line(14, line) for line in (1, 2, 3, 4)]
    assert lines == ["", "a", "b", ""]
    assert SNAPSHOT.source_line(9, 2) == "    return 1"
    assert SNAPSHOT.source_line(10, 1) == ""


def test_places() -> None:
    assert WHERE.label == "cell[14] line 3: dist.all_reduce(größe)"
    in_file = Position(file="/project/train.py", line=8)
    assert (in_file.cell, in_file.label) == (None, "train.py line 8")


def test_json_is_plain() -> None:
    plain = SNAPSHOT.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["format"], plain["version"]) == ("ddt-snapshot", 2)


def test_lines_of_loops_in_older_files() -> None:
    epoch = Epoch(number=1, batches=2, samples=8, where=Position(file="cell[3]", line=5))
    loader = LoaderPartition(name="loader", dataset="Set", epochs=(epoch,))
    seen = Snapshot(
        cell=Cell(number=3, source=""), partition=(RankPartition(rank=0, run=1, loaders=(loader,)),)
    )
    plain = seen.to_json()
    old = plain["partition"][0]["loaders"][0]["epochs"][0]
    assert old.pop("where")["line"] == 5
    old["place"] = "cell[3] line 5"
    assert Snapshot.from_json(plain) == seen
    old["place"] = ""
    assert Snapshot.from_json(plain).partition[0].loaders[0].epochs[0].where is None
    plain["partition"] = 7
    with pytest.raises(FormatError):
        Snapshot.from_json(plain)
