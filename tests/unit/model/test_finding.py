"""The published JSON form of a report: other people's programs read it."""

from __future__ import annotations

import json

import pytest

from ddt_notebook.model import Fact, Finding, Fix, Place, Report
from ddt_notebook.model.codec import FormatError

KEYS = (
    "symptom stage kind title cause ranks waiting values places where facts evidence confidence "
    "fixes"
).split()
PLACE = Place(file="cell[3]", line=6, code="dist.all_reduce(loss)", role="waits")
HANG = Finding(
    symptom="D.2.1",
    stage="training & evaluation",
    title="rank 1 never entered all_reduce #17",
    cause="collective-under-rank-condition",
    ranks=[1],
    waiting=[0, 2],
    kind="never-entered",
    values={"op": "all_reduce", "shapes": ((2, 3), ())},
    places={0: PLACE},
    facts=[Fact(kind="blocked-in", place=PLACE, ranks=(0, 2), values={"dtypes": ("int8",)})],
    where={0: "cell[3] line 6: dist.all_reduce(loss)"},
    evidence=["waited 2.1 s"],
    confidence="likely",
    fixes=[Fix(pattern="fix behavior logic", advice="call it on every rank", share=0.114)],
)


def test_keys_are_those_of_the_published_form() -> None:
    plain = Report(ok=False, findings=[HANG]).to_json()
    assert {"ok", "findings"} <= plain.keys()
    (finding,) = plain["findings"]
    assert list(finding) == KEYS
    assert finding["where"] == {"0": "cell[3] line 6: dist.all_reduce(loss)"}
    assert finding["fixes"] == [
        {"pattern": "fix behavior logic", "advice": "call it on every rank", "share": 0.114}
    ]
    assert finding["confidence"] == "likely"
    place = {
        "file": "cell[3]",
        "line": 6,
        "function": "<module>",
        "code": "dist.all_reduce(loss)",
        "role": "waits",
    }
    assert finding["kind"] == "never-entered"
    assert finding["places"] == {"0": place}
    assert finding["facts"] == [
        {"kind": "blocked-in", "place": place, "ranks": [0, 2], "values": {"dtypes": ["int8"]}}
    ]


def test_every_key_is_there_also_when_nothing_is_known() -> None:
    bare = Finding(symptom="D.1", stage="training & evaluation", title="an error")
    (finding,) = Report(ok=False, findings=[bare]).to_json()["findings"]
    assert list(finding) == KEYS
    assert finding["cause"] is None
    assert (finding["ranks"], finding["where"], finding["fixes"]) == ([], {}, [])
    assert Report(ok=True).to_json()["findings"] == []


def test_round_trip() -> None:
    report = Report(ok=False, findings=[HANG], hints=[HANG], checked="2 ranks, 3 collectives")
    assert Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_report_with_text_only_is_read() -> None:
    plain = Report(ok=False, findings=[HANG]).to_json()
    for key in ("kind", "values", "places", "facts"):
        del plain["findings"][0][key]
    (loaded,) = Report.from_json(plain).findings
    assert (loaded.title, loaded.where, loaded.evidence) == (HANG.title, HANG.where, HANG.evidence)
    assert (loaded.kind, loaded.places, loaded.facts) == ("", {}, [])


def test_an_unknown_confidence_is_refused() -> None:
    plain = Report(ok=False, findings=[HANG]).to_json()
    plain["findings"][0]["confidence"] = "sure"
    with pytest.raises(FormatError, match="confidence is 'sure', not one of certain"):
        Report.from_json(plain)
