"""Checks whether the program still reaches the same conclusions after a large change.

``python -m benchmarks.conclusions record FOLDER``
    runs every fault, its repair and every program without a fault once on real ranks, and keeps
    their snapshots. It also keeps the texts, sources, dumps and snapshots that the unit tests pass
    in. It does not run again what is already in the folder.
``python -m benchmarks.conclusions freeze FOLDER OUT.json [--reports REPORTS.jsonl]``
    diagnoses all of it and the snapshots that the tests keep, and writes the conclusions.
    Each line of the optional file is a report with ``title`` and ``text``.
``python -m benchmarks.conclusions compare OLD.json NEW.json [--titles]``
    prints every difference; the exit status is 1 if there are any.

Both sides use the same folder, so that only the code that concludes differs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ddt_notebook as ddt

from .conclusions_inputs import ENDING, TESTS
from .conclusions_runs import record

CONCLUDED = ("symptom", "cause", "ranks", "waiting", "places", "line", "confidence")
_PLACE = re.compile(r"(.+?) line (\d+)(?::|$)")
_LINE = re.compile(r"\bline (\d+)")

Entry = dict[str, Any]


# -- freeze ------------------------------------------------------------------------------------


def freeze(folder: Path, reports: Path | None) -> dict[str, Entry]:
    """The conclusions from all inputs, by name."""
    entries: dict[str, Entry] = {}
    for path in sorted(folder.glob(f"*{ENDING}")):
        kind = "unit" if path.name.startswith("unit-") else "run"
        entries[f"{kind}/{path.name.removesuffix(ENDING)}"] = _of(_of_snapshot, path)
    for path in sorted((TESTS / "fixtures").glob(f"*{ENDING}")):
        entries[f"fixture/{path.name.removesuffix(ENDING)}"] = _of(_of_snapshot, path)
    inputs = json.loads((folder / "inputs.json").read_text(encoding="utf-8"))
    for name, text in inputs["texts"].items():
        entries[f"text/{name}"] = _of(_of_text, text)
    for number, line in enumerate(_lines(reports), start=1):
        report = json.loads(line)
        text = f"{report['title']}\n{report['text']}"
        entries[f"report/{number:03}"] = _of(_of_text, text)
    for path in sorted((folder / "dumps").iterdir()):
        entries[f"dumps/{path.name}"] = _of(_of_dumps, path)
    for name, given in inputs["sources"].items():
        entries[f"lint/{name}"] = _of(_of_source, given)
    return entries


def _lines(path: Path | None) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path is not None else []


def _of(conclude: Callable[[Any], Entry], given: Any) -> Entry:
    """The conclusion from one input; an exception is a conclusion, too."""
    try:
        return conclude(given)
    except Exception as error:  # noqa: BLE001  it is compared like other conclusions
        return {"raised": type(error).__name__}


def _of_snapshot(path: Path) -> Entry:
    return _of_report(ddt.diagnose(ddt.Snapshot.load(path)))


def _of_text(text: str) -> Entry:
    return _of_report(ddt.diagnose_text(text))


def _of_dumps(path: Path) -> Entry:
    return _of_report(ddt.diagnose_dumps(path))


def _of_report(report: Any) -> Entry:
    entry = {
        "ok": report.ok,
        "findings": [_concluded(finding) for finding in report.findings],
        "hints": [_concluded(hint) for hint in report.hints],
    }
    if (made := report.correction) is not None:
        digest = hashlib.sha256(made.source.encode()).hexdigest()
        entry["correction"] = {"sha256": digest, "source": made.source}
    return entry


def _concluded(finding: Any) -> dict[str, Any]:
    return {
        "symptom": finding.symptom,
        "cause": finding.cause,
        "ranks": list(finding.ranks),
        "waiting": list(finding.waiting),
        "places": {str(rank): _place(where) for rank, where in sorted(finding.where.items())},
        "confidence": finding.confidence,
        "title": finding.title,
    }


def _place(where: str) -> list[Any]:
    """File or cell, and line, of a text such as ``cell[3] line 6: dist.barrier()``."""
    found = _PLACE.match(where)
    return [found[1], int(found[2])] if found else [where, None]


def _of_source(given: dict[str, Any]) -> Entry:
    concluded: dict[str, list[dict[str, Any]]] = {"findings": [], "hints": []}
    for finding in ddt.lint(**given):
        line = _LINE.search(finding.evidence[0]) if finding.evidence else None
        kind = "hints" if finding.confidence == "possible" else "findings"
        concluded[kind].append({
            "symptom": finding.symptom,
            "cause": finding.cause,
            "line": int(line[1]) if line else None,
            "confidence": finding.confidence,
            "title": finding.title,
        })  # fmt: skip
    return concluded


# -- compare -----------------------------------------------------------------------------------


def compare(old: dict[str, Entry], new: dict[str, Entry], *, titles: bool) -> int:
    """Print the differences and return how many entries differ."""
    differing: Counter[str] = Counter()
    for name in sorted(old.keys() | new.keys()):
        if name not in new or name not in old:
            lines = ["only in the " + ("old" if name in old else "new") + " one"]
        else:
            lines = list(_differences(old[name], new[name], titles=titles))
        if lines:
            differing[name.partition("/")[0]] += 1
            print(name, *lines, sep="\n    ")
    total = Counter(name.partition("/")[0] for name in old.keys() | new.keys())
    for kind in sorted(total):
        print(f"{kind:8} {total[kind]:5} entries, {differing[kind]:4} differ")
    return differing.total()


def _differences(old: Entry, new: Entry, *, titles: bool) -> Iterator[str]:
    for key in ("raised", "ok"):
        if old.get(key) != new.get(key):
            yield f"{key}: {old.get(key)} -> {new.get(key)}"
    for key in ("findings", "hints"):
        before, after = ([_line(f, titles) for f in side.get(key, ())] for side in (old, new))
        lost, won = Counter(before) - Counter(after), Counter(after) - Counter(before)
        yield from (f"- {key[:-1]} {line}" for line in lost.elements())
        yield from (f"+ {key[:-1]} {line}" for line in won.elements())
        if before != after and not lost and not won:
            yield f"{key} in another order: {'; '.join(after)}"
    before, after = (side.get("correction", {}).get("source") for side in (old, new))
    if before != after:
        yield f"correction: {_shown(before)} -> {_shown(after)}"


def _line(finding: dict[str, Any], titles: bool) -> str:
    keys = (*CONCLUDED, "title") if titles else CONCLUDED
    return " ".join(
        f"{key}={json.dumps(finding[key], ensure_ascii=False)}" for key in keys if key in finding
    )


def _shown(source: str | None) -> str:
    return "none" if source is None else "".join(f"\n        | {s}" for s in source.splitlines())


# -- command -----------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.conclusions")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("record")
    command.add_argument("folder", type=Path)
    command = commands.add_parser("freeze")
    command.add_argument("folder", type=Path)
    command.add_argument("out", type=Path)
    command.add_argument("--reports", type=Path)
    command = commands.add_parser("compare")
    command.add_argument("old", type=Path)
    command.add_argument("new", type=Path)
    command.add_argument("--titles", action="store_true", help="compare the titles, too")
    given = parser.parse_args()
    if given.command == "record":
        return 1 if record(given.folder) else 0
    if given.command == "freeze":
        entries = freeze(given.folder, given.reports)
        text = json.dumps(entries, ensure_ascii=False, indent=1, sort_keys=True)
        given.out.write_text(text + "\n", encoding="utf-8")
        kinds = Counter(name.partition("/")[0] for name in entries)
        print(", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items())))
        return 0
    old, new = (json.loads(path.read_text(encoding="utf-8")) for path in (given.old, given.new))
    return 1 if compare(old, new, titles=given.titles) else 0


if __name__ == "__main__":
    sys.exit(main())
