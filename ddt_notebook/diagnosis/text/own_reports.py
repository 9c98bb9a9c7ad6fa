"""Reads the reports that ddt_notebook itself printed into a log: they rest on more than words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ddt_notebook.diagnosis import advice
from ddt_notebook.diagnosis.wording import worded
from ddt_notebook.model import Fact, Finding, Fix
from ddt_notebook.symptoms import loader as taxonomy

from .lines import Line

#: What `ddt-notebook run` prints before lines of its own.
MARK = "[ddt-notebook] "
_CODE = r"([A-D]\.\d(?:\.\d{1,2})?)"
_HEAD = re.compile(
    rf"\S.{{0,40}}? {_CODE}(?: or {_CODE})? · (\S.{{0,60}}) · (certain|likely|possible)"
)
_UNCLASSIFIED = re.compile(
    r"exception at .+ · no symptom of the study · (?:certain|likely|possible)|hint · may be .+"
)
#: A paragraph of a report: a place, or a label in four columns; other lines continue it.
_PARAGRAPH = re.compile(r"  (?:(-->|seen|fix |more|diff|note) | {5})(\S.*)")
#: The first row of the picture of the last collectives, which stands below the places.
_PICTURE = re.compile(r" {6,}#\d")
_FIX = re.compile(r"(.+) — (\S.+?)(?: \(a pattern that repaired (\d+) of .+\))?")
_PAGE = re.compile(r"%ddt_explain ([\w-]+)(?= ·|$)")
_RECORD = re.compile(r"%ddt_load (\S.*) opens the record")


@dataclass(frozen=True, slots=True)
class OwnReports:
    """What ddt_notebook found before, and the lines that others printed.

    Attributes
    ----------
    findings
        Each finding once, in the order in which they were printed.
    others
        The lines that are not of ddt_notebook.
    """

    findings: list[Finding]
    others: list[Line]


def separate(lines: Sequence[Line]) -> OwnReports:
    """Separate the reports of ddt_notebook in a log from what the job printed."""
    blocks: list[list[Line]] = []
    others: list[Line] = []
    folder = ""
    inside, last = False, 0
    for line in lines:
        if line.text.startswith(MARK):
            record = _RECORD.search(line.text)
            folder = record[1] if record else folder
        elif _is_head(line.text):
            blocks.append([line])
            inside = True
        elif inside and line.number == last + 1 and line.text.startswith("  "):
            blocks[-1].append(line)
        else:
            inside = False
            others.append(line)
        last = line.number
    known = {
        (made.symptom, made.title): made
        for block in blocks
        if (made := _finding(block, folder)) is not None
    }
    return OwnReports([*known.values()], others)


def _is_head(text: str) -> bool:
    head = _HEAD.fullmatch(text)
    return _UNCLASSIFIED.fullmatch(text) is not None if head is None else _is_symptom(head)


def _is_symptom(head: re.Match[str]) -> bool:
    stages = {one.code: one.stage_title for one in taxonomy.symptoms()}
    return head[1] in stages and stages[head[1]] in head[3] and (head[2] or head[1]) in stages


def _finding(block: Sequence[Line], folder: str) -> Finding | None:
    head = _HEAD.fullmatch(block[0].text)
    if head is None:
        return None
    says, paragraphs = "", list(_paragraphs(block[1:]))
    if paragraphs and not paragraphs[0][1]:
        says = paragraphs.pop(0)[2]
    symptom = taxonomy.symptom(head[1])
    quoted = [(n, text) for n, label, text in paragraphs if label in ("-->", "seen")]
    more = " ".join(text for _, label, text in paragraphs if label == "more")
    pages = [page for page in _PAGE.findall(more) if page in advice.causes()]
    facts = [
        *([Fact(kind="before-training", values={"symptom": head[2]})] if head[2] else []),
        Fact(kind="reported-before", values={"number": block[0].number, "folder": folder}),
        *(Fact(kind="line-of-text", values={"number": n, "text": text}) for n, text in quoted),
    ]
    return worded(
        Finding(
            symptom=symptom.code,
            stage=symptom.stage_title,
            kind="reported-before",
            cause=pages[0] if pages else None,
            values={"says": says or symptom.title},
            facts=facts,
            confidence=head[4],  # type: ignore[arg-type]  # the pattern has these words only
            fixes=[_fix(text, symptom) for _, label, text in paragraphs if label == "fix"],
        )
    )


def _paragraphs(lines: Sequence[Line]) -> Iterator[tuple[int, str, str]]:
    """Number, label and text of each paragraph; the first one, the title, has no label."""
    found: list[tuple[int, str, list[str]]] = []
    in_picture = False
    for line in lines:
        match = _PARAGRAPH.match(line.text)
        if match is not None and match[1]:
            found.append((line.number, match[1].strip(), [match[2]]))
            in_picture = False
        elif not found:
            found.append((line.number, "", [line.text]))
        elif found[-1][1] == "-->" and _PICTURE.match(line.text):
            in_picture = True
        elif not in_picture:
            found[-1][2].append(line.text)
    for number, label, texts in found:
        yield number, label, " ".join(" ".join(texts).split())


def _fix(text: str, symptom: taxonomy.Symptom) -> Fix:
    match = _FIX.fullmatch(text)
    if match is None or match[2] not in taxonomy.fix_patterns():
        return Fix(pattern="", advice=text, share=0.0)
    share = int(match[3]) / symptom.distributed_faults if match[3] else 0.0
    return Fix(pattern=match[2], advice=match[1], share=share)
