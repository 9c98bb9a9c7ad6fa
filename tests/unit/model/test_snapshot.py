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
    assert ["members" in kind for kind in plain["call_kinds"]] == [True, False]
    other = replace(SNAPSHOT, groups={"0": (0, 1, 2)})
    assert other.to_json()["call_kinds"][1]["members"] == [0, 1]
    assert Snapshot.from_json(other.to_json()) == other


def test_lines_and_kinds_of_calls_are_written_once() -> None:
    calls = SNAPSHOT.ranks[0].calls
    many = tuple(
        RankReport(
            rank=rank,
            position=WHERE,
            stack=(WHERE, WHERE),
            calls=tuple(replace(calls[1], index=index) for index in range(3)),
            joined=replace(calls[0], index=7, left_s=1.5),
        )
        for rank in range(100)
    )
    one, all_of_them = (replace(SNAPSHOT, ranks=ranks) for ranks in (many[:1], many))
    plain = all_of_them.to_json()
    for table in ("positions", "call_kinds"):
        assert plain[table] == one.to_json()[table]
    assert Snapshot.from_json(json.loads(json.dumps(plain))) == all_of_them


OLDER_CALLS = [
    {"index": 4, "op": "send", "kind": "p2p", "peer": 1, "tag": 3, "sequence": 1},
    {
        "index": 5,
        "op": "all_reduce",
        "sequence": 1,
        "status": "pending",
        "shapes": [[2, 3], []],
        "dtypes": ["float32", "int64"],
        "where": {"file": "cell[14]", "line": 3, "code": "dist.all_reduce(größe)"},
    },
]


@pytest.mark.parametrize("version", [1, 2])
def test_files_of_earlier_formats(version: int) -> None:
    """Format 1 wrote the members of each call, format 2 only those that are not the group's."""
    first, second = (dict(call) for call in OLDER_CALLS)
    if version == 1:
        second["members"] = [0, 1]
    else:
        first["members"] = [-1]
    older = SNAPSHOT.to_json() | {"version": version}
    del older["positions"], older["call_kinds"]
    where = OLDER_CALLS[1]["where"]
    error = {"type": "ValueError", "message": "", "where": where, "frames": [where, where]}
    older["ranks"] = [
        {
            "rank": 0,
            "state": "blocked",
            "blocked_in": 5,
            "blocked_s": 2.5,
            "calls": [first, second],
        },
        {"rank": 1, "state": "raised", "error": error},
    ]
    assert Snapshot.from_json(older) == SNAPSHOT


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("position", 99),
        ("position", -1),
        ("position", True),
        ("stack", "x"),
        ("error", [1]),
        ("calls", {"kind": [2]}),
        ("calls", {"kind": ["0"]}),
        ("calls", {"kind": [0, 0], "sequence": [1]}),
        ("calls", {"kind": [0], "status": ["lost"]}),
        ("calls", []),
        ("joined", {"kind": []}),
    ],
)
def test_a_table_with_a_wrong_index_is_refused(entry: str, value: object) -> None:
    plain = SNAPSHOT.to_json()
    plain["ranks"][0][entry] = value
    with pytest.raises(FormatError):
        Snapshot.from_json(plain)


def test_a_field_of_a_later_version_is_ignored() -> None:
    plain = SNAPSHOT.to_json() | {"weather": "fair"}
    plain["call_kinds"][0]["colour"] = "red"
    plain["ranks"][0]["calls"]["colour"] = ["red", "blue"]
    assert Snapshot.from_json(plain) == SNAPSHOT


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 4}, "has format 4, but this ddt_notebook reads up to 3: upgrade"),
        ({"version": "1"}, "has format 1"),
        ({"version": None}, "has format None"),
        ({"format": "something"}, "this is not a ddt_notebook snapshot"),
        ({"outcome": "fine"}, "Snapshot.outcome is 'fine', not one of ok, failed"),
        ({"cell": {"number": 1}}, "Snapshot.cell: .*'source'"),
        ({"ranks": [{"rank": "0"}]}, "Snapshot.ranks.rank is '0', not int"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_with_a_reason(
    change: dict[str, Any], text: str
) -> None:
    with pytest.raises(FormatError, match=text):
        Snapshot.from_json(SNAPSHOT.to_json() | change)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b"3"])
def test_files_that_are_not_snapshots_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=r"other\.json.*not a ddt_notebook snapshot"):
        Snapshot.load(path)
    with pytest.raises(FileNotFoundError):
        Snapshot.load(tmp_path / "none.json")


def test_lines_have_the_numbers_that_the_notebook_shows() -> None:
    lines = [SNAPSHOT.source_line(14, line) for line in (1, 2, 3, 4)]
    assert lines == ["", "a", "b", ""]
    assert SNAPSHOT.source_line(9, 2) == "    return 1"
    assert SNAPSHOT.source_line(10, 1) == ""


def test_the_place_of_a_position_is_named() -> None:
    assert WHERE.label == "cell[14] line 3: dist.all_reduce(größe)"
    in_file = Position(file="/project/train.py", line=8)
    assert (in_file.cell, in_file.label) == (None, "train.py line 8")


def test_snapshots_are_plain_json() -> None:
    plain = SNAPSHOT.to_json()
    assert json.loads(json.dumps(plain)) == plain
    assert (plain["format"], plain["version"]) == ("ddt-snapshot", 3)


def test_what_a_framework_noted_in_older_files() -> None:
    """It stood where a reduce operation stands."""
    noted = Call(index=1, op="deepspeed.initialize", kind="setup", detail='{"stage": 2}')
    summed = Call(index=2, op="all_reduce", reduce_op="SUM")
    run = replace(SNAPSHOT, ranks=(RankReport(rank=0, calls=(noted, summed)),))
    plain = run.to_json()
    for kind in plain["call_kinds"]:
        if "detail" in kind:
            kind["reduce_op"] = kind.pop("detail")
    assert Snapshot.from_json(plain) == run


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
