"""The words of findings and facts: the lists are closed, and templates name what there is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook
from ddt_notebook.diagnosis import wording
from ddt_notebook.diagnosis.wording import FACTS, REASONS, SHOWN, TITLES, worded
from ddt_notebook.model import Fact, Finding

ROOT = Path(ddt_notebook.__file__).parent
TABLES = {ROOT / "diagnosis" / "wording.py", ROOT / "diagnosis" / "training_wording.py"}


def _nodes() -> Iterator[ast.AST]:
    for path in ROOT.rglob("*.py"):
        if path not in TABLES:
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


NODES = list(_nodes())
WORDS = {n.value for n in NODES if isinstance(n, ast.Constant) and isinstance(n.value, str)}


#: What follows a variable in kinds such as ``f"{what}-finite"``.
ENDINGS = tuple(
    str(end.value)
    for node in NODES
    if isinstance(node, ast.JoinedStr) and len(node.values) == 2
    for end in node.values[1:]
    if isinstance(end, ast.Constant) and str(end.value).startswith("-")
)


@pytest.mark.parametrize("kind", [*FACTS, *REASONS, *SHOWN, *TITLES])
def test_every_kind_that_has_words_is_used(kind: str) -> None:
    assert kind in WORDS or kind.endswith(ENDINGS)


def test_every_fact_of_a_constant_kind_has_words() -> None:
    for node in NODES:
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Fact":
            kinds = [one.value for one in node.keywords if one.arg == "kind"]
            for kind in (one.value for one in kinds if isinstance(one, ast.Constant)):
                assert kind in {*FACTS, *REASONS, *SHOWN}, kind


@pytest.mark.parametrize("table", ["TITLES", "FACTS"])
def test_no_kind_has_words_twice(table: str) -> None:
    kinds: Counter[str] = Counter()
    for path in TABLES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == table:
                assert isinstance(node.value, ast.Dict)
                kinds.update(key.value for key in node.value.keys if isinstance(key, ast.Constant))
    assert kinds.keys() == {*getattr(wording, table)}
    assert kinds.most_common(1)[0][1] == 1


def test_a_template_is_filled_from_values_and_ranks() -> None:
    finding = Finding(
        symptom="D.2.2",
        stage="training & evaluation",
        kind="same-samples",
        ranks=[0, 1],
        values={"loader": "loader", "samples": 24},
        facts=[Fact(kind="samples-handed-out", ranks=(0, 1), values={"samples": (24, 1200)})],
    )
    text = worded(finding)
    assert text.title == "ranks 0, 1 each trained on the same 24 samples of loader"
    assert text.evidence == ["samples handed out: 24 to rank 0 and 1,200 to rank 1"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("w",), "w is a plain attribute of net and no parameter, "),
        (
            ("a", "b", "c", "d"),
            "a, b, c and others are plain attributes of net and no parameters, ",
        ),
    ],
)
def test_of_many_names_the_first_are_shown(names: tuple[str, ...], text: str) -> None:
    values = {"names": names, "model": "net"}
    finding = Finding(symptom="D.2.2", stage="", kind="trained-attribute", values=values)
    assert worded(finding).title.startswith(text)
