"""The words of findings and facts: every kind has words, and templates use existing values only."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ddt_notebook
from ddt_notebook.diagnosis import (
    diagnose,
    of_frameworks,
    training_facts,
    training_wording,
    wording,
)
from ddt_notebook.diagnosis.wording import FACTS, REASONS, SHOWN, TITLES, worded
from ddt_notebook.model import Fact, Finding, Place

from .builders import GLOO_TIMEOUT, all_reduce, call, only, peer_error, raised, rank, snapshot

LINE = Place(file="cell[3]", line=6, code="dist.barrier()")
CALL = {"op": "all_reduce", "sequence": 17, "shapes": ((10,),), "dtypes": ("float32",)}
ROOT = Path(ddt_notebook.__file__).parent
TABLES = {
    ROOT / "diagnosis" / f"{name}.py"
    for name in ("wording", "parting_wording", "training_wording", "training_facts")
}


@dataclass(frozen=True)
class Used:
    """Strings that the package's code contains outside of the tables of wording.

    Attributes
    ----------
    words
        Constant strings.
    endings
        What follows a variable in kinds such as ``f"{what}-finite"``.
    fact_kinds
        The constant kinds of facts.
    """

    words: frozenset[str]
    endings: tuple[str, ...]
    fact_kinds: frozenset[str]


def _nodes() -> Iterator[ast.AST]:
    for path in ROOT.rglob("*.py"):
        if path not in TABLES:
            yield from ast.walk(ast.parse(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def used() -> Used:
    """A fixture, since every worker collects this file and only one runs it."""
    words, endings, fact_kinds = set(), [], set()
    for node in _nodes():
        match node:
            case ast.Constant(value=str(word)):
                words.add(word)
            case ast.JoinedStr(values=[_, ast.Constant(value=end)]) if str(end).startswith("-"):
                endings.append(str(end))
            case ast.Call(func=ast.Name(id="Fact"), keywords=keywords):
                kinds = [one.value for one in keywords if one.arg == "kind"]
                fact_kinds |= {str(one.value) for one in kinds if isinstance(one, ast.Constant)}
    return Used(frozenset(words), tuple(endings), frozenset(fact_kinds))


@pytest.mark.parametrize("kind", [*FACTS, *REASONS, *SHOWN, *TITLES])
def test_every_kind_that_has_words_is_used(used: Used, kind: str) -> None:
    assert kind in used.words or kind.endswith(used.endings)


def test_every_fact_of_a_constant_kind_has_words(used: Used) -> None:
    assert used.fact_kinds
    assert used.fact_kinds <= {*FACTS, *REASONS, *SHOWN, *of_frameworks.table("FACTS")}


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


@pytest.mark.parametrize("table", [training_wording.TITLES, training_facts.FACTS])
def test_sentences_on_training_fit_a_script_and_a_job(table: dict[str, object]) -> None:
    assert [text for text in table.values() if isinstance(text, str) and " cell" in text] == []


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
    assert text.title == "ranks 0 and 1 each trained on the same 24 samples of loader"
    assert text.evidence == ["samples handed out: 24 to rank 0 and 1,200 to rank 1"]


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (("w",), "w is a plain attribute of net, not a parameter, "),
        (
            ("a", "b", "c", "d"),
            "a, b, c and others are plain attributes of net, not parameters, ",
        ),
    ],
)
def test_only_the_first_of_many_names_are_shown(names: tuple[str, ...], text: str) -> None:
    values = {"names": names, "model": "net"}
    finding = Finding(symptom="D.2.2", stage="", kind="trained-attribute", values=values)
    assert worded(finding).title.startswith(text)


# -- the sentences of a run ----------------------------------------------------------------------


def found(kind: str, **content: object) -> Finding:
    fields = {"symptom": "D.2.1", "stage": "", "ranks": [1], "waiting": [0, 2, 3], **content}
    return Finding(kind=kind, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("finding", "title"),
    [
        (
            found("never-entered", values={**CALL, "waited_s": 2.1}),
            (
                "rank 1 never entered all_reduce #17 (10 × float32); ranks 0, 2 and 3 have been "
                "waiting for it for 2.1 s"
            ),
        ),
        (
            found("never-entered", values={**CALL, "freed": True}, ranks=[1, 2], waiting=[0]),
            "ranks 1 and 2 never entered all_reduce #17 (10 × float32); rank 0 waited for them",
        ),
        (
            found("not-asked", values={"op": "barrier", "group": "2"}, waiting=[]),
            "rank 1 was not asked to run the cell, but barrier on group 2 needs it",
        ),
        (
            found("late", values={"op": "barrier", "limit_s": 0.5}, places={1: LINE}, waiting=[0]),
            (
                "rank 1 did not enter barrier within 500 ms; rank 1 is still at cell[3] line 6: "
                "dist.barrier(); rank 0 waits for it"
            ),
        ),
        (
            found("died", values={"signal": 9, "exit_code": None}, places={1: LINE}, waiting=[]),
            "rank 1 died (signal 9, SIGKILL) at cell[3] line 6: dist.barrier()",
        ),
        (
            found("raised", values={"error": "ValueError", "message": "bad {x}"}, waiting=[]),
            "rank 1 raised ValueError: bad {x}",
        ),
    ],
)
def test_the_title_of_a_finding(finding: Finding, title: str) -> None:
    assert wording.worded(finding).title == title


@pytest.mark.parametrize(
    ("fact", "sentence"),
    [
        (
            Fact(kind="blocked-in", place=LINE, ranks=(0, 2), values={**CALL, "issued_by": "FSDP"}),
            (
                "ranks 0 and 2 are blocked in all_reduce #17 (10 × float32), issued by FSDP, at "
                "cell[3] line 6: dist.barrier()"
            ),
        ),
        (
            Fact(kind="keeps-from-line", place=LINE, ranks=(1,), values={"call_line": 7}),
            "likely why: cell[3] line 6: `dist.barrier()` keeps rank 1 from line 7",
        ),
        (
            Fact(kind="finished", ranks=(1, 2), place=LINE, values=CALL),
            (
                "ranks 1 and 2 finished the cell; their last collective was all_reduce #17 "
                "(10 × float32) at cell[3] line 6: dist.barrier()"
            ),
        ),
        (Fact(kind="still-running", ranks=(1,)), "rank 1 is still running"),
        (Fact(kind="repeated", values={"times": 3}), "it happened 3 times on a rank"),
        (
            Fact(kind="written-later", ranks=(0,), values={"later_s": 0.25}),
            "rank 0 finished writing it 250 ms later, at an unknown line",
        ),
    ],
)
def test_the_sentence_of_a_fact(fact: Fact, sentence: str) -> None:
    assert wording.sentence(fact) == sentence


def test_a_message_that_was_never_sent() -> None:
    scene = snapshot(rank(0, call("recv", peer=1), blocked=True), rank(1), outcome="hung")
    assert only(diagnose(scene)).title == (
        "rank 1 never sent what rank 0 receives in recv #1 (4 × float32); rank 0 has been waiting "
        "for it for 2.1 s"
    )


def test_sides_of_a_mismatch() -> None:
    shapes = snapshot(rank(0, all_reduce()), rank(1, all_reduce(shapes=((2, 3),))))
    assert only(diagnose(shapes)).title == (
        "shapes differ in all_reduce #1: 4 on rank 0; 2×3 on rank 1"
    )
    one, other = call("broadcast", 2, root=0), call("broadcast", 2, root=1, reduce_op="AVG")
    met = snapshot(rank(0, one, blocked=True), rank(1, other, blocked=True), outcome="hung")
    assert only(diagnose(met)).title == (
        "roots differ in broadcast #1: rank 0 on rank 0; rank 1 on rank 1; ranks 0 and 1 have been "
        "blocked for 2.1 s"
    )


def test_ranks_that_wait_for_each_other() -> None:
    one, other = (call(op, peer=1 - number) for number, op in enumerate(("recv", "recv")))
    scene = snapshot(rank(0, one, blocked=True), rank(1, other, blocked=True), outcome="hung")
    assert only(diagnose(scene)).title == (
        "rank 0 waits in recv #1 (4 × float32) for rank 1; rank 1 waits in recv #1 (4 × float32) "
        "for rank 0; they have been blocked for 2.1 s"
    )


def test_ranks_that_waited_until_gloos_timeout() -> None:
    failed = raised(0, all_reduce(status="failed"), error=peer_error(0, GLOO_TIMEOUT))
    scene = snapshot(failed, rank(1), outcome="failed")
    assert only(diagnose(scene)).title.endswith("; rank 0 waited for it")
