"""The cards as a whole: complete, one for every symptom, and consistent with one another."""

from __future__ import annotations

import ast
import dataclasses
import io
import re
import tokenize
from pathlib import Path
from typing import Any

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.advice import causes, fixes
from ddt_notebook.faults import (
    Advice,
    FaultCard,
    HostCard,
    InvalidCard,
    UnknownCard,
    card,
    card_ids,
    cards,
    host_cards,
    page_ids,
)
from ddt_notebook.program.parse import Document, parse
from ddt_notebook.symptoms import loader as study

CARDS = cards()
NAMED = [symptom for symptom in study.symptoms() if symptom.title != "others"]
MOST_FREQUENT = sorted(NAMED, key=lambda symptom: -symptom.faults)[:8]
#: (symptom, fix pattern) pairs that are frequent in the study.
PAIRS = [
    (symptom.code, fix.pattern)
    for symptom in NAMED
    if symptom.faults >= 10
    for fix in study.fixes(symptom.code)
    if fix.pattern != "other" and fix.share >= 0.1
]
#: Causes that no cell brings about by itself, or that stand for what has no cause of its own.
WITHOUT_CARD = {
    "all-ranks-exit",  # the ranks are not at odds
    "arguments-not-accepted",  # of a script
    "build-lock-left-over",  # of a process that was killed before
    "build-of-another-process",
    "cell-ran-on-some-ranks",  # a choice of the magic's -r
    "connection-lost",
    "device-error",
    "exception",
    "garbled-connection",  # a cell that writes to its rank's own connection
    "import-error",
    "install-failed",
    "name-not-defined",  # most often of a cell that has not run
    "ranks-diverged-earlier",  # in an earlier cell
    "rank-not-at-collective",  # of a job's dumps, which do not say where the rank stood
    "rank-not-recorded",
    "rank-without-dump",
    "ranks-spawned-again",  # of a script that a launcher and mp.spawn start
    "syntax",
    "transfer-stalled",
}
#: Comments that would give a fault away.
TELLTALE = re.compile(
    r"\b(bugs?|buggy|broken|faults?|faulty|wrong(ly)?|missing|forg[oe]t\w*|oops|should|mistakes?|"
    r"incorrect|deadlocks?|hangs?|never|bad)\b",
    re.IGNORECASE,
)


def changed(complete: FaultCard, **changes: Any) -> FaultCard:
    return dataclasses.replace(complete, **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"sees": ""}, "'sees' explains nothing"),
        ({"why": "it fails"}, "'why' explains nothing"),
        ({"cluster": " "}, "'cluster' explains nothing"),
        ({"broken": "  \n"}, "the broken cell is missing"),
        ({"fixed": ""}, "the fixed cell is missing"),
        ({"proof": ""}, "the proof cell is missing"),
        ({"references": ()}, "it needs a reference"),
        ({"fixes": ()}, "does not say what to change"),
        ({"fixes": (Advice("pray", "hope for the best"),)}, "no fix pattern 'pray'"),
        ({"symptoms": ()}, "it has no symptom"),
        ({"title": "A sentence."}, "one line without full stop"),
        ({"id": "Not An Id"}, "lower-case words"),
        ({"n": 9}, "1 to 4 ranks"),
    ],
)
def test_an_incomplete_card_is_rejected(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidCard, match=says):
        changed(CARDS[0], **changes)


def test_a_card_whose_cells_are_the_same_is_rejected() -> None:
    with pytest.raises(InvalidCard, match="are the same"):
        changed(CARDS[0], fixed=CARDS[0].broken)


def test_an_expectation_that_cannot_be_is_rejected() -> None:
    one = CARDS[0]
    with pytest.raises(InvalidCard, match="there is no rank 7"):
        changed(one, expected=dataclasses.replace(one.expected, ranks=(7,)))
    with pytest.raises(InvalidCard, match="there is no line 900"):
        changed(one, expected=dataclasses.replace(one.expected, lines={0: 900}))


def test_an_unknown_symptom_is_rejected() -> None:
    with pytest.raises(study.UnknownSymptom):
        changed(CARDS[0], symptoms=("D.9.9",))


def test_an_unknown_card_is_refused_with_what_is_near() -> None:
    with pytest.raises(UnknownCard, match="did you mean collective-under-rank-condition"):
        card("collective-under-rank-conditions")
    with pytest.raises(UnknownCard, match="lists them"):
        card("zzz")


def test_there_are_at_least_fifty() -> None:
    assert len(CARDS) >= 50
    assert ddt.fault_cards() == CARDS


def causes_in_rules(root: Path) -> set[str]:
    """Every cause that is written out where findings are made."""
    written = set()
    for path in (root / "ddt_notebook" / "diagnosis").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.keyword) and node.arg == "cause" else None
            for part in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    written.add(part.value)
    return written


def test_the_causes_that_findings_name_are_known(root: Path) -> None:
    written = causes_in_rules(root)
    assert len(written) > 20, "the rules are read from another folder"
    assert written <= causes()
    assert causes() - set(page_ids()) <= WITHOUT_CARD


@pytest.mark.parametrize("symptom", NAMED, ids=lambda symptom: symptom.code)
def test_every_named_symptom_has_cards(symptom: study.Symptom) -> None:
    found = [one.id for one in CARDS if symptom.code in one.symptoms]
    assert len(found) >= (3 if symptom in MOST_FREQUENT else 1), found


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_every_frequent_fix_belongs_to_a_card(pair: tuple[str, str]) -> None:
    code, pattern = pair
    assert any(code in one.symptoms and pattern in one.fix_patterns for one in CARDS)


@pytest.mark.parametrize("one", CARDS, ids=card_ids())
class TestEachCard:
    def test_its_neighbours_exist(self, one: FaultCard) -> None:
        assert set(one.apart) <= set(card_ids()) - {one.id}

    def test_its_cells_are_python(self, one: FaultCard) -> None:
        for source in (one.setup, one.fixed, one.proof):
            assert parse(Document("cell[1]", source)) is not None

    def test_no_comment_gives_it_away(self, one: FaultCard) -> None:
        try:
            tokens = list(tokenize.generate_tokens(io.StringIO(one.broken).readline))
        except (tokenize.TokenError, IndentationError):
            tokens = []  # a broken cell may not be valid Python
        comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
        assert not [comment for comment in comments if TELLTALE.search(comment)]

    def test_its_advice_can_be_filled_in(self, one: FaultCard) -> None:
        for symptom in one.symptoms:
            for fix in fixes(symptom, one.id, "all_reduce", 1):
                assert fix.advice
                assert not fix.advice.endswith(".")

    def test_its_messages_are_one_line_each(self, one: FaultCard) -> None:
        assert all(text and "\n" not in text for text in (*one.gloo, *one.nccl))

    def test_its_paragraphs_are_sentences(self, one: FaultCard) -> None:
        for paragraph in (one.sees, one.why, one.cluster):
            assert paragraph.endswith((".", "!", "?", "`", ")")), paragraph


@pytest.mark.parametrize("one", host_cards().values(), ids=lambda one: one.id)
def test_a_card_of_several_hosts_has_a_page(one: HostCard) -> None:
    assert set(one.apart) <= set(page_ids()) - {one.id}
    assert not set(host_cards()) & set(card_ids())
    assert one.cause in {"", *causes()}
    assert parse(Document("cell[1]", one.cell)) is not None
    for paragraph in (one.sees, one.why, one.cluster):
        assert paragraph.endswith((".", "`", ")"))
    page = ddt.explain(one.id)
    for shown in (page.to_text(), page.to_html()):
        assert one.references[0].url in shown
        assert not re.search(r"\{\{|\{node|\{names", shown)


def test_a_card_of_hosts_that_nothing_produces_is_rejected() -> None:
    with pytest.raises(InvalidCard, match="nothing produces it"):
        dataclasses.replace(host_cards()["host-lost"], commands=())
