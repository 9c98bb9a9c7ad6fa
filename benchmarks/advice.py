"""How often the diagnosis of a public report names the symptom, and advises on the true cause.

``python -m benchmarks.advice`` reads the reports in ``benchmarks/reports``: each has the text
that a user posted (restated, messages verbatim), the symptoms that count as right, and a regular
expression, ``advice``, for words that right advice contains; both were written down before our
answer was looked at, from the cause that the thread confirms. ``seen.toml`` and the halves A, C, E,
G, I, K, M and O were read while the catalogue was written; no entry was written from
``unseen.toml`` and the halves B, D, F, H, J, L, N and P.
``-v`` lists the reports that are missed. ``--left-out`` diagnoses the described problems of those
that were read, each without the entries that match it: what is found in words that the catalogue
does not know.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ddt_notebook.diagnosis.text import diagnose_text, matches
from ddt_notebook.messages import messages

from .common import HEADER, ROOT, Figure

FOLDER = ROOT / "benchmarks" / "reports"
#: The files for which no entry of the catalogue was written.
UNSEEN = ("unseen", "half_b", "half_d", "half_f", "half_h", "half_j", "half_l", "half_n", "half_p")
#: The files from which entries were written, and what a printed error contains.
READ = ("seen", "half_a", "half_c", "half_e", "half_g", "half_i", "half_k", "half_m", "half_o")
_ERROR = re.compile(r"Error|error:|Exception")
#: The least share of unseen reports that has to be right, and the largest share that may be certain
#: and wrong, in percent.
HELD = {"first": 80.0, "stage": 92.0, "first advice": 65.0, "any advice": 80.0}
CONFIDENTLY_WRONG = 3.0
#: How many of the answers with a confidence have to be right, in percent.
CALIBRATED = {"certain": 95.0, "likely": 75.0}

Report = dict[str, Any]
Verdict = dict[str, bool]
Rows = list[tuple[Report, Verdict]]


def judge(report: Report) -> Verdict:
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
        "likely": first is not None and first.confidence == "likely",
        "confidently wrong": first is not None and first.confidence == "certain" and not named,
        "no finding": first is None,
    }


def judged(path: Path) -> Rows:
    """The reports in a file with their verdicts."""
    reports = tomllib.loads(path.read_text(encoding="utf-8"))["report"]
    return [(report, judge(report)) for report in reports]


@contextmanager
def without_own_entries(name: str, report: Report) -> Iterator[None]:
    """Leave out what was written from a report: its thread's entries, and descriptions that fit."""
    if name not in READ:
        yield
        return
    lower = report["text"].lower()
    others = tuple(
        entry
        for entry in messages()
        if entry.thread != report["link"] and not (entry.kind == "complaint" and entry.find(lower))
    )
    with mock.patch.object(matches, "messages", return_value=others):
        yield


def left_out() -> Rows:
    """The described problems of `READ`, each judged without the descriptions that match it."""
    rows = []
    for name in READ:
        text = (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
        for report in tomllib.loads(text)["report"]:
            if not _ERROR.search(report["text"]):
                with without_own_entries(name, report):
                    rows.append((report, judge(report)))
    return rows


def shares(rows: Rows) -> dict[str, float]:
    """The share of each verdict in percent."""
    return {
        name: 100 * sum(verdict[name] for _, verdict in rows) / len(rows) for name in rows[0][1]
    }


def calibration(rows: Rows) -> dict[str, tuple[int, float]]:
    """For each confidence, how many answers have it, and the percentage of right ones."""
    found = {}
    for confidence in CALIBRATED:
        named = [verdict["first"] for _, verdict in rows if verdict[confidence]]
        found[confidence] = (len(named), 100 * sum(named) / len(named) if named else 100.0)
    return found


def by_kind(rows: Rows) -> dict[str, Rows]:
    """The rows of each kind of problem, the most frequent first."""
    kinds: dict[str, Rows] = defaultdict(list)
    for row in rows:
        kinds[row[0].get("kind", "unknown")].append(row)
    return dict(sorted(kinds.items(), key=lambda item: -len(item[1])))


def measure() -> list[Figure]:
    """The figures of the unseen reports; each counts what is wrong, so that less is better."""
    figures = []
    for name in UNSEEN:
        rows = judged(FOLDER / f"{name}.toml")
        found = shares(rows)
        figures += [
            Figure(
                f"{name}, {len(rows)} reports: {what} wrong", 100 - found[what], 100 - least, "%"
            )
            for what, least in HELD.items()
        ]
        wrong = found["confidently wrong"]
        figures.append(Figure(f"{name}: called certain and wrong", wrong, CONFIDENTLY_WRONG, "%"))
        figures += [
            Figure(f"{name}: wrong of {number} called {what}", 100 - right, 100 - least, "%")
            for (what, least), (number, right) in zip(
                CALIBRATED.items(), calibration(rows).values(), strict=True
            )
        ]
    return figures


def _print(title: str, rows: Rows, verbose: bool) -> None:
    print(f"{title}: {len(rows)} reports")
    for name, share in shares(rows).items():
        print(f"  {name:18} {share:4.0f} %")
    for name, (number, right) in calibration(rows).items():
        print(f"  of {number} called {name}, right: {right:.0f} %")
    kinds = by_kind(rows)
    if len(kinds) > 1:
        columns = (*HELD, "first three", "confidently wrong")
        print(f"  {'kind':12} {'n':>4}  " + "  ".join(columns))
        for kind, own in kinds.items():
            found = shares(own)
            cells = "  ".join(f"{found[name]:{len(name) - 2}.0f} %" for name in columns)
            print(f"  {kind:12} {len(own):4}  {cells}")
    for report, verdict in rows if verbose else []:
        missed = [
            name for name in (*HELD, "confidently wrong") if verdict[name] == (name not in HELD)
        ]
        if missed:
            print(f"  {report.get('id', report['link'])}: {', '.join(missed)}")


def main() -> int:
    verbose = "-v" in sys.argv[1:]
    if "--left-out" in sys.argv[1:]:
        _print("described problems without their entries", left_out(), verbose)
        return 0
    names = [name for name in sys.argv[1:] if name != "-v"]
    for path in [Path(name) for name in names] or sorted(FOLDER.glob("*.toml")):
        _print(path.stem, judged(path), verbose)
    if names:
        return 0
    figures = measure()
    print(HEADER)
    for figure in figures:
        print(figure.row())
    return 0 if all(figure.held for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
