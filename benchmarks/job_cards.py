"""Runs the broken cells of fault cards as jobs of torchrun, recorded by ``ddt-notebook run``.

``python -m benchmarks.job_cards [ID …]`` prints for each card whether the finding is that of the
cell: cause, ranks, waiting ranks and lines. Cards that need a session, such as those in which the
cell forms the groups or the memory is limited, are left out.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ddt_notebook as ddt
from ddt_notebook.faults import FaultCard, card, card_ids
from ddt_notebook.model import DdtError, Report

LIMIT_S = 120
#: Jobs at the same time; each has several processes.
_AT_ONCE = 1
_MAIN = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
#: The ranks of a session have imported what a first step of DDP imports; in a script this would
#: take longer than the whole cell of a card about time.
_HEAD = """import torch
import torch._dynamo, torch.distributed._composable_state
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
local_rank, device = rank, torch.device("cpu")
"""


def fits(one: FaultCard) -> bool:
    """Whether the card's cells can stand in a script."""
    return not one.options and "get_ipython" not in one.broken + one.setup


def run(one: FaultCard) -> tuple[Report | None, int]:
    """The first report on the card's job, and the number of lines before the broken cell."""
    head = f"{_HEAD}{one.setup}\n" if one.setup else _HEAD
    with tempfile.TemporaryDirectory(prefix="ddt-card-") as folder:
        script = Path(folder, "job.py")
        script.write_text(head + one.broken)
        command = [sys.executable, "-c", _MAIN, "run", "--to", f"{folder}/job"]
        command += ["--on-hang", "stop", "--hang-after", "1", "--branches", "--"]
        command += [sys.executable, "-m", "torch.distributed.run"]
        command += ["--standalone", "--nproc-per-node", str(one.n), str(script)]
        try:
            subprocess.run(command, cwd=folder, capture_output=True, timeout=LIMIT_S, check=False)
            snapshot = ddt.Snapshot.load(Path(folder, "job", "report-1.ddt.json"))
        except (OSError, DdtError, subprocess.TimeoutExpired):
            return None, 0
        return ddt.diagnose(snapshot), head.count("\n")


def complaints(one: FaultCard) -> list[str]:
    """In what the job's finding differs from the card's."""
    report, before = run(one)
    if report is None:
        return ["no report"]
    wanted = report.hints if one.is_hint else report.findings
    if not wanted:
        return ["nothing was found"]
    finding, expected = wanted[0], one.expected
    pairs = {
        "cause": (finding.cause, one.id),
        "ranks": (finding.ranks, list(expected.ranks)),
        "waiting": (finding.waiting, list(expected.waiting)),
    }
    found = [
        f"{name} {seen!r}, not {right!r}" for name, (seen, right) in pairs.items() if seen != right
    ]
    for rank, line in expected.lines.items():
        place = finding.places.get(rank)
        if place is None or place.line != line + before:
            seen = place.line - before if place is not None else None
            found.append(f"rank {rank} at line {seen}, not {line}")
    return found


def main(names: list[str]) -> int:
    cards = [card(name) for name in names or card_ids()]
    chosen = [one for one in cards if fits(one)]
    right = 0
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for one, wrong in zip(chosen, pool.map(complaints, chosen), strict=True):
            right += not wrong
            print(f"{'ok' if not wrong else '--'} {one.id}: {'; '.join(wrong)}", flush=True)
    print(f"{right} of {len(chosen)} as in a cell; {len(cards) - len(chosen)} need a session")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
