"""How often the diagnosis of a text names the right symptom, on reports with the study's labels.

``python -m benchmarks.text_diagnosis REPORTS.jsonl``: each line of the file is a report with
``title``, ``text``, ``symptoms`` and ``stages``. The accuracy is compared with `HELD`, and the
constants of `ranking` are fitted to the reports and printed beside those in use. The benchmark also
measures the processor time for a text of 10 kB and a log of 200 MB, and the memory; the same for
hostile logs, and for a folder with the logs of 4,096 ranks, of which one failed first.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ddt_notebook.diagnosis.text import diagnose_text, matches, ranking
from ddt_notebook.diagnosis.text.lines import separate

from .common import HEADER, Figure, check

#: The largest share of reports whose symptom is not the first, not among the first three, or of
#: another stage than the first, in percent: three reports more than were measured on 120.
HELD = {"first": 29.0, "first three": 12.0, "stage of the first": 18.5}
TEMPERATURES = np.arange(0.3, 4.01, 0.1)
LOG_BYTES = 200_000_000
#: Runs in a separate process, so that its memory can be measured.
PROGRAM = """
import sys, time
from pathlib import Path
from ddt_notebook.diagnosis.text import diagnose_log
start = time.process_time()
report = diagnose_log(sys.argv[1])
took = time.process_time() - start
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
first = report.findings[0].symptom if report.findings else "none"
print(took, int(peak) / 1024, first)
"""
#: The same for the logs of a job: the ranks of the first finding that is about one rank.
FOLDER_PROGRAM = """
import sys, time
from pathlib import Path
from ddt_notebook.api import diagnose_dumps
start = time.process_time()
report = diagnose_dumps(sys.argv[1])
took = time.process_time() - start
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(took, int(peak) / 1024, *report.findings[0].ranks)
"""
RANKS, FAILS_FIRST = 4096, 1234
TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/train.py", line 88, in <module>
    {line}
"""
#: Words of descriptions, each of which begins a pattern.
WORDS = b"early stopping patience if rank metric evaluation grad norm clip scaler lr schedule ddp "

Report = dict[str, Any]
Rows = list[tuple[Report, list[ranking.Ranked]]]


def accuracy(path: str | Path) -> tuple[list[str], list[Figure]]:
    """The lines of the report on accuracy, and the figures with limits."""
    reports = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    found = [_found(f"{report['title']}\n{report['text']}") for report in reports]
    rows = list(zip(reports, map(ranking.rank, found), strict=True))
    lines = [f"{len(reports)} reports", *_fitted(reports, found), "", _row("all", rows)]
    for key in ("framework", "symptoms"):
        groups: dict[str, Rows] = defaultdict(list)
        for row in rows:
            value = row[0][key]
            groups[value if isinstance(value, str) else value[0]].append(row)
        lines += ["", f"by {key}", *(_row(name, groups[name]) for name in sorted(groups))]
    lines += ["", "confusion (label -> first, where they differ)"]
    wrong = Counter(
        f"{report['symptoms'][0]} -> {first.symptom}"
        for report, (first, *_) in rows
        if first.symptom not in report["symptoms"]
    )
    lines += [f"  {number:3}  {pair}" for pair, number in wrong.most_common()]
    right = {
        "first": _hits(rows, 1),
        "first three": _hits(rows, 3),
        "stage of the first": _stage(rows),
    }
    return lines, [
        Figure(f"reports that the {name} misses", 100 * (1 - right[name]), most, "%")
        for name, most in HELD.items()
    ]


def _found(text: str) -> list[matches.Match]:
    return matches.find(matches.Text.of(separate(enumerate(text.splitlines(), start=1))))


def _fitted(reports: list[Report], found: list[list[matches.Match]]) -> list[str]:
    """The constants of `ranking` fitted to these reports, beside the constants in use."""
    heat = _temperature(reports, [ranking.scored(own) for own in found])
    return [f"temperature {heat} (in use {ranking.TEMPERATURE})"]


def _temperature(reports: list[Report], scores: list[dict[str, float]]) -> float:
    """The temperature with the least cross-entropy between probabilities and labels."""

    def surprise(value: float) -> float:
        total = 0.0
        for report, score in zip(reports, scores, strict=True):
            found = ranking.ranked(score, [], value)
            chance = sum(one.probability for one in found if one.symptom in report["symptoms"])
            total -= math.log(max(chance, 1e-9))
        return total

    best = min(map(float, TEMPERATURES), key=surprise)
    check(TEMPERATURES[0] < best < TEMPERATURES[-1], f"the best temperature is at an edge: {best}")
    return round(best, 2)


def _row(name: str, rows: Rows) -> str:
    first, three = _hits(rows, 1), _hits(rows, 3)
    return (
        f"  {name:12} {len(rows):4}  first {first:4.0%}  three {three:4.0%}"
        f"  stage {_stage(rows):4.0%}"
    )


def _hits(rows: Rows, among: int) -> float:
    return statistics.mean(
        any(one.symptom in report["symptoms"] for one in found[:among]) for report, found in rows
    )


def _stage(rows: Rows) -> float:
    return statistics.mean(found[0].symptom[0] in report["stages"] for report, found in rows)


def measure() -> list[Figure]:
    """Measure time and memory, which need no reports."""
    text = "\n".join(f"[rank{n % 4}]: step {n} loss {1 / (n + 1):.4f}" for n in range(400))[:10_000]
    text += "\nRuntimeError: Expected to mark a variable ready only once"
    diagnose_text(text)
    short = 1e3 * statistics.median(_processor_time(text) for _ in range(11))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        _write_log(path)
        long, memory, symptom = _run(PROGRAM, path)
        check(symptom == "D.1.5", f"the log was diagnosed as {symptom}")
        hostile = []
        for name, parts in _hostile():
            with path.open("wb") as file:
                file.writelines(parts)
            hostile.append((name, *_run(PROGRAM, path)[:2]))
        path.unlink()
        _write_folder(Path(folder))
        together, used, *ranks = _run(FOLDER_PROGRAM, Path(folder))
        check(ranks == [str(FAILS_FIRST)], f"the first finding is about ranks {ranks[:5]}")
    return [
        Figure("diagnosis of a text of 10 kB", short, 50, "ms"),
        Figure("diagnosis of a log of 200 MB", float(long), 10, "s"),
        Figure("memory for it, the whole process", float(memory), 100, "MB"),
        *(Figure(f"hostile log: {name}", float(took), 20, "s") for name, took, _ in hostile),
        Figure("memory, the most of them", max(float(peak) for *_, peak in hostile), 100, "MB"),
        Figure(f"a folder with the logs of {RANKS:,} ranks", float(together), 60, "s"),
        Figure("memory for it", float(used), 300, "MB"),
    ]


def _processor_time(text: str) -> float:
    start = time.process_time()
    diagnose_text(text)
    return time.process_time() - start


def _run(program: str, path: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def _hostile() -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield logs that are hard to read, each with its name, in parts."""
    numbers = random.Random(0)
    line = (b"Error " + WORDS) * 10_000
    yield "one line of 200 MB", (line for _ in range(LOG_BYTES // len(line)))
    yield "binary, 200 MB", (numbers.randbytes(1 << 20) for _ in range(LOG_BYTES >> 20))
    letters = bytes.maketrans(b"0123456789", b"ghijklmnop")
    word = (numbers.randbytes(12).hex().encode().translate(letters) for _ in range(1_000_000))
    yield "a million different lines", (b"Error %s failed\n" % one for one in word)
    yield "patterns made to backtrack", (b"Error " + WORDS * 12 + b"\n" for _ in range(150_000))


def _write_folder(folder: Path) -> None:
    """Write the log of each rank: one raises by itself, the others lose it half a minute later."""
    for rank in range(RANKS):
        steps = "".join(f"2026-01-01 10:00:{n:02d},000 INFO step {n}\n" for n in range(60))
        if rank == FAILS_FIRST:
            own = "ValueError: Expected input batch_size (3) to match target batch_size (4)."
            end, line = f"2026-01-01 10:01:00,000 ERROR\n{TRACEBACK}{own}", "loss = criterion(y)"
        else:
            own = (
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, "
                "remote process exited or there was a network error, NCCL version 2.27.5"
            )
            end, line = f"2026-01-01 10:01:30,000 ERROR\n{TRACEBACK}{own}", "loss.backward()"
        (folder / f"rank{rank}.log").write_text(f"{steps}{end.format(line=line)}\n")


def _write_log(path: Path) -> None:
    """Write a log in which four ranks report steps and warnings, and one raises in the middle."""
    numbers = random.Random(0)
    written = step = 0
    with path.open("w") as file:
        while written < LOG_BYTES:
            line = f"[rank{step % 4}]: INFO step {step} loss {numbers.random():.4f} 812 tokens\n"
            if step % 50 == 0:
                line = f"[rank{step % 4}]: WARNING: loss scale failed at {step}, error skipped\n"
            if step == 1_000_000:
                line = "[rank2]: ValueError: Expected input batch_size (3) to match target\n"
            written += file.write(line)
            step += 1


def main() -> int:
    figures: list[Figure] = []
    if len(sys.argv) > 1:
        lines, figures = accuracy(sys.argv[1])
        print("\n".join(lines), end="\n\n")
    print(HEADER)
    figures += measure()
    for figure in figures:
        print(figure.row())
    return 0 if all(figure.held for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
