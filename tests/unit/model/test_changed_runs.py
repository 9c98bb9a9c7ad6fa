"""A saved run that somebody changed is refused when it is loaded, or every view shows it."""

from __future__ import annotations

import copy
import json
import random
import zlib
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.communication import elements
from ddt_notebook.model import FormatError, Snapshot, codec
from ddt_notebook.model.partition import unpack_indices
from ddt_notebook.model.timeline import RankTimeline
from ddt_notebook.views import exported_page, words
from ddt_notebook.views.registry import VIEWS
from ddt_notebook.views.report import show

from ...strangers import runs

RUNS = dict(runs())
#: Changes of each run: each one is another test, so that a failure names its seed.
SEEDS = 25
VALUES = [
    *(None, True, -1, 0, 1, 2**31, 2**63, 10**30, -(2**63), 10**400, 1e308, -1.5),
    *(float("nan"), float("inf"), float("-inf"), "", "x", "\ud800", [], {}, [[]], {"a": 1}, [1, 2]),
]


def paths(plain: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each value within plain data."""
    yield at
    items = plain.items() if isinstance(plain, dict) else ()
    for key, item in enumerate(plain) if isinstance(plain, list) else items:
        yield from paths(item, (*at, key))


def changed(plain: Any, chosen: random.Random) -> Any:
    """A copy with one to four values replaced, taken away or doubled."""
    ways = list(paths(plain))[1:]
    result = copy.deepcopy(plain)
    for way in chosen.choices(ways, k=chosen.choice([1, 1, 2, 4])):
        holder = result
        try:
            for key in way[:-1]:
                holder = holder[key]
            old, at = holder[way[-1]], way[-1]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change has taken it away
        fitting = [value for value in VALUES if type(value) is type(old)] or VALUES
        match chosen.randrange(8):
            case 0:
                del holder[at]
            case 1 if isinstance(holder, list):
                holder.append(copy.deepcopy(old))
            case 2:
                holder[at] = copy.deepcopy(chosen.choice(VALUES))
            case _:
                holder[at] = copy.deepcopy(chosen.choice(fitting))
    return result


def show_all(snapshot: Snapshot) -> None:
    """Render everything."""
    report = show(diagnose(snapshot), snapshot)
    for view in (report, *(one.of(snapshot) for one in VIEWS.values())):
        assert view._repr_mimebundle_()
    assert exported_page.page(snapshot)


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_changed_run_is_refused_or_shown(name: str, seed: int) -> None:
    chosen = random.Random(f"{name} {seed}")
    for _ in range(10):
        text = json.dumps(changed(RUNS[name], chosen))
        try:
            snapshot = Snapshot.from_json(codec.parse(text))
        except FormatError:
            continue
        show_all(snapshot)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"format": "ddt-snapshot", "version": 1, "created": ' + "9" * 5000 + "}",
        "\ufeff{}",
        "",
        "{}",
        '{"format": "ddt-snapshot", "format": "x"}',
    ],
    ids=["lists", "objects", "number", "mark", "empty", "nothing", "twice"],
)
def test_a_file_that_breaks_readers_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "run.ddt.json").write_text(text, encoding="utf-8")
    with pytest.raises(FormatError):
        Snapshot.load(tmp_path / "run.ddt.json")


def test_a_number_that_is_no_time_is_refused() -> None:
    plain = copy.deepcopy(RUNS["one-rank-skips-all-reduce"])
    plain["duration_s"] = 10**400
    with pytest.raises(FormatError, match="duration_s is too large"):
        Snapshot.from_json(plain)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_time_that_is_no_number_is_shown_as_unknown(value: float) -> None:
    assert words.short(value) == "?"
    assert words.rate(value) == "?/s"


def test_a_span_without_a_name_is_refused() -> None:
    for strange in ({"name": (1,)}, {"name": (-1,)}, {"duration_us": ()}):
        given = {"names": ("a",), "name": (0,), "start_us": (1,), "duration_us": (1,)} | strange
        with pytest.raises(ValueError, match="name"):
            RankTimeline(rank=0, **given)


@pytest.mark.parametrize("shape", ["", "x", "8<b>", "8×", "-1", "9" * 5000])
def test_a_text_that_is_no_shape_has_no_elements(shape: str) -> None:
    assert elements(shape) == 0


def test_indices_that_cannot_be_unpacked_are_none() -> None:
    assert unpack_indices("x") == unpack_indices("é") == unpack_indices("YWJj") == 0


def test_a_small_text_does_not_unpack_to_gigabytes() -> None:
    bomb = b64encode(zlib.compress(b"\xff" * (1 << 28))).decode()
    assert unpack_indices(bomb).bit_length() == 1 << 30  # of 1 << 31
