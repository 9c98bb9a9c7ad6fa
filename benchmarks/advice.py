"""How often the diagnosis of a public report names the symptom, and advises on the true cause.

``python -m benchmarks.advice`` reads the reports in ``benchmarks/reports``: each has the text
that a user posted (shortened, messages verbatim), the symptoms that count as right, and a regular
expression, ``advice``, for words that right advice contains; both were written down before our
answer was looked at, from the cause that the thread confirms. ``seen.toml`` was read while the
catalogue was written; ``unseen.toml`` was collected and labelled afterwards, and no entry was
written for it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

from ddt_notebook.diagnosis.text import diagnose_text

from .common import HEADER, ROOT, Figure

FOLDER = ROOT / "benchmarks" / "reports"
#: The least share of unseen reports that has to be right, and the largest share that may be certain
#: and wrong, in percent.
HELD = {"first": 80.0, "stage": 92.0, "first advice": 65.0, "any advice": 80.0}
CONFIDENTLY_WRONG = 3.0


def judge(report: dict[str, Any]) -> dict[str, bool]:
    """What is right in the diagnosis of a report."""
    found = diagnose_text(report["text"])
    first = found.findings[0] if found.findings else None
    right = re.compile(report["advice"], re.IGNORECASE)

    def advised(finding: Any) -> bool:
        return any(right.search(fix.advice) for fix in finding.fixes)

    named = first is not None and first.symptom in report["symptoms"]
    return {
        "first": named,
        "first three": any(f.symptom in report["symptoms"] for f in found.findings[:3]),
        "stage": first is not None and first.symptom[0] in {s[0] for s in report["symptoms"]},
        "first fix": first is not None and bool(right.search(first.fixes[0].advice)),
        "first advice": first is not None and advised(first),
        "any advice": any(advised(f) for f in [*found.findings, *found.hints]),
        "certain": first is not None and first.confidence == "certain",
        "confidently wrong": first is not None and first.confidence == "certain" and not named,
        "no finding": first is None,
    }


def shares(path: Path) -> tuple[int, dict[str, float]]:
    """The number of reports in a file, and the share of each verdict in percent."""
    reports = tomllib.loads(path.read_text(encoding="utf-8"))["report"]
    number = Counter(name for report in reports for name, yes in judge(report).items() if yes)
    names = judge(reports[0])
    return len(reports), {name: 100 * number[name] / len(reports) for name in names}


def measure() -> list[Figure]:
    """The figures of the unseen reports; each counts what is wrong, so that less is better."""
    number, found = shares(FOLDER / "unseen.toml")
    missed = [
        Figure(f"{number} unseen reports: {name} wrong", 100 - found[name], 100 - least, "%")
        for name, least in HELD.items()
    ]
    wrong = Figure("called certain and wrong", found["confidently wrong"], CONFIDENTLY_WRONG, "%")
    return [*missed, wrong]


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or sorted(FOLDER.glob("*.toml"))
    for path in paths:
        number, found = shares(path)
        print(f"{path.stem}: {number} reports")
        for name, share in found.items():
            print(f"  {name:18} {share:4.0f} %")
    figures = measure() if (FOLDER / "unseen.toml").is_file() else []
    print(HEADER)
    for figure in figures:
        print(figure.row())
    return 0 if all(figure.held for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
