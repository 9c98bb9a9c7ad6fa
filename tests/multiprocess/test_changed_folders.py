"""Folders of recorded jobs with random changes are refused in one line, or every view works.

``make fuzz`` tries many more changes.
"""

from __future__ import annotations

import json
import random
import re
import signal
import socket
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.jobs import recorded_job
from ddt_notebook.model import Position
from ddt_notebook.wire import job_files
from ddt_notebook.wire.job_files import RankAnswers, RankGone
from ddt_notebook.wire.messages import BranchValues, MonitorStatus
from ddt_notebook.wire.records import FlightEntry

from ..unit.changed_data import bytes_changed, changed
from ..unit.test_changed_files import CHANGES, SEEDS, show
from .test_jobs import TWO, Job

TRAINING = """
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(16, 4), torch.randn(16, 1))
for x, y in DataLoader(data, batch_size=4, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    (model(x) - y).square().mean().backward()
    optimizer.step()
group = dist.new_group([0, 1])
loss = torch.tensor(1.0 + rank)
if loss < 1.5:
    dist.all_reduce(loss, group=group)
else:
    raise ValueError(f"loss of rank {rank}")
"""
CRASH = """Fatal Python error: Segmentation fault

Current thread 0x00007f1 (most recent call first):
  File "/job/train.py", line 16 in <module>
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """The files of one job, as they are, as if its processes had been killed, and elsewhere."""
    folder = tmp_path_factory.mktemp("recorded")
    script = folder / "train.py"
    script.write_text(TRAINING)
    job = Job(folder / "job", "--", *TWO, script)
    try:
        job.end()
    finally:
        job.kill()
    ended = {file.name: file.read_bytes() for file in job.folder.iterdir() if file.is_file()}
    ended = {name: data for name, data in ended.items() if not name.endswith((".txt", "-1.json"))}
    reported = {name: data for name, data in ended.items() if "report" not in name}
    ended, reported = reported, ended
    running = {
        name: data
        for name, data in ended.items()
        if not name.endswith((".end", ".failure", ".gone", ".exit"))
    }
    stems = sorted(name.removesuffix(".rank") for name in ended if name.endswith(".rank"))
    killed, elsewhere = dict(running), {}
    killed |= {f"{stem}.crash": CRASH.encode() for stem in stems[:1]}
    killed |= {f"{stem}.exit": b"3\n" for stem in stems[1:]}
    here = socket.gethostname()
    for name, data in running.items():
        elsewhere[name.replace(here, "elsewhere", 1)] = data.replace(here.encode(), b"elsewhere")
    where = Position(file=str(script), line=16, function="<module>")
    for name, message in (
        (f"{stems[1]}.gone", RankGone(exit_status=-signal.SIGSEGV, ended_s=1e6)),
        (
            f"elsewhere-{stems[0].rpartition('-')[2]}.answers",
            RankAnswers(
                question="x",
                at_s=1e6,
                status=MonitorStatus(
                    position=where, stack=(where,), groups={"0": (9, 8)}, cpu_s=1.0,
                    memory_bytes=10**8, at_s=1e6,
                ),
                waits_group="0",
                waits_number=9,
                waits_since_s=1e6 - 5,
                cpu_share=0.1,
                flight=(
                    FlightEntry(group="0", number=9, op="all_reduce", done=False, where=where),
                ),
                branches=BranchValues(values={1: {"loss": "1.0"}}, marks=((1, 2), (3, -1))),
            ),
        ),
    ):  # fmt: skip
        job_files.write(folder / name, message)
        (killed if "gone" in name else elsewhere)[name] = (folder / name).read_bytes()
    return {"reported": reported, "ended": ended, "killed": killed, "elsewhere": elsewhere}


@pytest.fixture
def _no_host_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_job, "_OTHERS_ANSWER_S", 0.0)


@pytest.mark.usefixtures("_no_host_answers")
@pytest.mark.timeout(max(600, CHANGES))
def test_changed_folders(folders: dict[str, dict[str, bytes]], tmp_path: Path) -> None:
    """Each seed changes some files of a folder; all others stay as they are."""
    again, read = tmp_path / "again.json", 0
    places = {kind: tmp_path / kind for kind in folders}
    for kind, files in folders.items():
        write(places[kind], files)
        show(ddt.diagnose_dumps(places[kind]).snapshot, again)  # without a change
    for seed in SEEDS:
        random_ = random.Random(seed)
        kind = random_.choice(list(folders))
        folder, files = places[kind], folders[kind]
        differing = some_changed(files, random_)
        write(folder, differing)
        try:
            report = ddt.diagnose_dumps(folder)
            if report.snapshot is None:  # no rank's file can be read, and the rest is read as logs
                assert str(report)
            else:
                show(report.snapshot, again)
                read += 1
        except ddt.DdtError:
            pass
        except Exception as error:
            raise AssertionError(f"seed {seed}: {kind}, {list(differing)}") from error
        finally:
            for file in set(folder.iterdir()) - {folder / name for name in files}:
                file.unlink()
            write(folder, {name: files[name] for name in files if name in differing})
    assert read > CHANGES / 10


def write(folder: Path, files: dict[str, bytes | None]) -> None:
    folder.mkdir(exist_ok=True)
    for name, data in files.items():
        if data is None:
            (folder / name).unlink(missing_ok=True)
        else:
            (folder / name).write_bytes(data)


def some_changed(files: dict[str, bytes], random_: random.Random) -> dict[str, bytes | None]:
    """One to three of the files with other contents; None stands for a file that is missing."""
    differing: dict[str, bytes | None] = {}
    for _ in range(random_.choice((1, 1, 2, 3))):
        name = random_.choice(list(files))
        data = files[name]
        match random_.randrange(10):
            case 0:
                differing[name] = None
            case 1:
                differing[name] = data[: random_.randrange(len(data) + 1)]
            case 2:
                differing[name] = files[random_.choice(list(files))]
            case 3:
                differing[f"other-{name}"] = data
            case _ if name.endswith((".calls", ".branches")):
                differing[name] = words_changed(data, random_)
            case 4:
                differing[name] = bytes_changed(data, random_)
            case _:
                differing[name] = json_changed(data, random_)
    return differing


def json_changed(data: bytes, random_: random.Random) -> bytes:
    try:
        plain = json.loads(data)
    except ValueError:
        return bytes_changed(data, random_)
    text = json.dumps(changed(plain, random_, random_.choice((1, 1, 3)))).encode()
    match random_.randrange(20):
        case 0:
            return text.replace(b'"', b'["' * 100_000, 1)  # too deep for the parser
        case 1:
            return text.replace(b"{", b'{"rank":null,"pid":"x",', 1)  # the last of two keys counts
        case 2:
            return re.sub(rb"\d+", b"9" * 5000, text, count=1)
    return text


def words_changed(data: bytes, random_: random.Random) -> bytes:
    """Other bytes, or numbers, near bytes that are not zero."""
    new = bytearray(data)
    used = [found.start() // 8 * 8 for found in re.finditer(rb"[^\0][^\0]{0,6}", data)]
    for _ in range(random_.choice((1, 1, 4, 30))):
        at = random_.choice(used or [0])
        if not new:
            break
        match random_.randrange(4):
            case 0:
                new[at : at + 8] = random_.choice(NUMBERS)
            case 1:
                other = random_.choice(used or [0])
                new[at : at + 8] = data[other : other + 8]
            case _:
                at += random_.randrange(8)
                if at < len(new):
                    new[at] = random_.choice((0, 1, 0x22, 0x7F, 0x80, 0xFF, random_.randrange(256)))
    return bytes(new[: len(data)])


NUMBERS = [
    bytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f", b"\0\0\0\x80" * 2, b"\1" + bytes(7),
    b"\0" * 6 + b"\xf0\x7f", b"\0" * 6 + b"\xf8\x7f", b"\0\0\0\0\xff\xff\xff\x7f",
]  # fmt: skip
