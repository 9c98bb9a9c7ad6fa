"""How often the diagnosis of a text names the right symptom, on reports with the study's labels.

``python -m benchmarks.text_diagnosis REPORTS.jsonl``: whatever is learnt is learnt from four fifths
of the reports and tried on the last fifth; the clues are the same for all. It also measures the
time that a text of 10 kB and a log of 200 MB take, and the memory.
"""

from __future__ import annotations

import itertools
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

from ddt_notebook.diagnosis.text import diagnose_text, ranking

from .common import HEADER, Figure, check, seconds
from .text_model import Report, calibration, held_out, load, temperature

#: Symptom first, among the first three, stage: what is to be held, in percent.
HELD = {"first": 60.0, "three": 82.0, "stage": 78.0}
BINS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.01)
LOG_BYTES = 200_000_000
#: In a process of its own, for the sake of the memory.
PROGRAM = """
import sys, time
from pathlib import Path
from ddt_notebook.diagnosis.text import diagnose_log
start = time.perf_counter()
report = diagnose_log(sys.argv[1])
took = time.perf_counter() - start
peak = Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
print(took, int(peak) / 1024, report.findings[0].symptom)
"""


def accuracy(path: str | Path) -> list[str]:
    """The lines of the report on accuracy."""
    reports = load(path)
    scores = held_out(reports)
    heat = temperature(reports, scores)
    fitted = calibration(reports, scores, heat)
    ranked = [ranking.calibrated(ranking.ranked(score, [], heat), fitted) for score in scores]
    rows = list(zip(reports, ranked, strict=True))
    lines = [
        f"{len(reports)} reports, five folds, temperature {heat}, {fitted}",
        "",
        _row("all", rows),
    ]
    for key in ("framework", "symptoms"):
        groups: dict[str, list[tuple[Report, list[ranking.Ranked]]]] = defaultdict(list)
        for row in rows:
            value = row[0][key]
            groups[value if isinstance(value, str) else value[0]].append(row)
        lines += ["", f"by {key}", *(_row(name, groups[name]) for name in sorted(groups))]
    lines += ["", "confusion (label -> first, where they differ)"]
    wrong = Counter(
        f"{report['symptoms'][0]} -> {found[0].symptom}"
        for report, found in rows
        if found[0].symptom not in report["symptoms"]
    )
    lines += [f"  {number:3}  {pair}" for pair, number in wrong.most_common()]
    lines += ["", "calibration (probability of the first: said, true, reports)"]
    for low, high in itertools.pairwise(BINS):
        inside = [row for row in rows if low <= row[1][0].probability < high]
        if inside:
            said = statistics.mean(found[0].probability for _, found in inside)
            lines.append(f"  {said:4.0%} {_hits(inside, 1):4.0%} {len(inside):4}")
    return lines


def _row(name: str, rows: list[tuple[Report, list[ranking.Ranked]]]) -> str:
    stage = statistics.mean(found[0].symptom[0] in report["stages"] for report, found in rows)
    first, three = _hits(rows, 1), _hits(rows, 3)
    return f"  {name:12} {len(rows):4}  first {first:4.0%}  three {three:4.0%}  stage {stage:4.0%}"


def _hits(rows: list[tuple[Report, list[ranking.Ranked]]], among: int) -> float:
    return statistics.mean(
        any(r.symptom in report["symptoms"] for r in found[:among]) for report, found in rows
    )


def measure() -> list[Figure]:
    """Time and memory, which need no reports."""
    text = "\n".join(f"[rank{n % 4}]: step {n} loss {1 / (n + 1):.4f}" for n in range(400))[:10_000]
    text += "\nRuntimeError: Expected to mark a variable ready only once"
    diagnose_text(text)
    short = 1e3 * statistics.median(seconds(lambda: diagnose_text(text)) for _ in range(11))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        _write_log(path)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, path], capture_output=True, text=True, check=True
        )
    long, memory, symptom = done.stdout.split()
    check(symptom == "D.1.5", f"the log was diagnosed as {symptom}")
    return [
        Figure("diagnosis of a text of 10 kB", short, 50, "ms"),
        Figure("diagnosis of a log of 200 MB", float(long), 20, "s"),
        Figure("memory for it, the whole process", float(memory), 300, "MB"),
    ]


def _write_log(path: Path) -> None:
    """Four ranks report their steps, some warn; in the middle one raises."""
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
    if len(sys.argv) > 1:
        print("\n".join(accuracy(sys.argv[1])))
        print()
    print(HEADER)
    figures = measure()
    for figure in figures:
        print(figure.row())
    return 0 if all(figure.held for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
