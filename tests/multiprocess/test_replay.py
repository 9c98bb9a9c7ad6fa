"""One rank of a recorded job runs again, without the others."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import stat
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from IPython.core.error import UsageError

import ddt_notebook as ddt
from ddt_notebook.jobs.replay import inputs_of
from ddt_notebook.model import FormatError
from ddt_notebook.model.replay import InputCall
from ddt_notebook.views.replay import ReplayView
from ddt_notebook.wire.messages import Envelope, encode
from ddt_notebook.wire.rank_inputs import (
    INPUTS,
    InputReceived,
    InputsBegun,
    InputsEnded,
    InputsFile,
    InputsFull,
    InputsWriter,
)

from ..magics.conftest import Notebook, notebook
from .test_jobs import TWO, Job

__all__ = ["notebook"]

SCRIPT = """
import os
import random
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

noise = random.random() + np.random.rand() + torch.rand(1).item()


def say(rank, *values):
    words = [v.double().sum().item().hex() if torch.is_tensor(v) else str(v) for v in values]
    os.write(1, f"{rank} {' '.join(words)}\\n".encode())


def exchange(rank):
    one, two = torch.full((4,), rank + noise), torch.empty(8)
    dist.all_gather_into_tensor(two, one)
    part = torch.empty(4)
    dist.reduce_scatter_tensor(part, two)
    parts = [torch.empty(4), torch.empty(4)]
    dist.all_gather(parts, one)
    if rank == 1:
        message = torch.empty(3)
        sender = dist.recv(message)
        later = dist.irecv(torch.empty(2), src=0)
        later.wait()
    else:
        message, sender = torch.rand(3), None
        dist.send(message, 1)
        dist.send(torch.rand(2), 1)
    objects = [{"seed": noise, "rank": rank}]
    dist.broadcast_object_list(objects, src=0)
    everyone = [None, None]
    dist.all_gather_object(everyone, (rank, noise))
    say(rank, two, part, *parts, message, sender, objects, everyone)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    exchange(rank)
    pair = dist.new_group([0, 1])
    mesh = init_device_mesh("cpu", (2,))
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    model = torch.nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(5):
        batch = torch.randn(8, 4) * noise + rank
        if rank == 0 and step == 3:
            batch[0, 0] = float("nan")
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        work = dist.all_reduce(total, group=mesh.get_group(), async_op=True)
        work.wait()
        dist.barrier(group=pair)
        say(rank, step, loss, total, *model.parameters(), *model.buffers())
        if rank == 1:
            assert torch.isfinite(total), f"loss {total} at step {step}"


main()
"""
FAILS = (
    SCRIPT.splitlines().index(
        '            assert torch.isfinite(total), f"loss {total} at step {step}"'
    )
    + 1
)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder of a job whose rank 1 kept its inputs and raised, and what that rank printed."""
    folder = tmp_path_factory.mktemp("replay")
    file = folder / "train.py"
    file.write_text(SCRIPT)
    started = Job(folder / "job", "--record-inputs", "1", "--", *TWO, file)
    try:
        status, output, errors = started.end()
    finally:
        started.kill()
    assert status, output
    assert f"%ddt_replay {folder / 'job'}" in errors
    lines = [line for line in output.splitlines() if line.startswith("1 ")]
    assert len(lines) == 5, errors
    return folder, lines


@pytest.fixture
def changed(
    job: tuple[Path, list[str]], tmp_path: Path
) -> Iterator[Callable[..., tuple[ReplayView, str]]]:
    """Replays the job after changes to its script or to its record; undoes them afterwards."""
    folder, _ = job
    copied = tmp_path / "job"
    shutil.copytree(folder / "job", copied, symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
    sessions = []

    def replay(before: str = "", after: str = "") -> tuple[ReplayView, str]:
        assert before in SCRIPT
        (folder / "train.py").write_text(SCRIPT.replace(before, after, 1) if before else SCRIPT)
        view = ddt.replay(copied)
        sessions.append(view.session)
        return view, view.to_text()

    replay.folder = copied  # type: ignore[attr-defined]
    yield replay
    (folder / "train.py").write_text(SCRIPT)
    for session in sessions:
        session.stop()


def test_a_replay_is_bitwise_and_ends_at_the_same_line(job: tuple[Path, list[str]]) -> None:
    folder, printed = job
    (file,) = (folder / "job").glob(f"*{INPUTS}")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    view = ddt.replay(folder / "job")
    try:
        said = view.run.outputs[0].splitlines()
        assert [line for line in said if not line.startswith("[rank")] == printed  # but PyTorch
        assert view.ok, view
        assert view.agreement == "same error"
        assert view.error.where.line == FAILS
        assert view.outcome.served == view.outcome.recorded > 30
        # the variables of the function that raised are alive
        assert view.session.pull("step") == 3
        assert view.session.pull("total").isnan()
        look = view.session.run("print(type(model).__name__, net[0].weight.shape)")
        assert look.outputs[0].split()[0] == "DistributedDataParallel", look.errors
        assert "rank 1 of 2" in view.to_text()
        assert "AssertionError" in view.to_html()
    finally:
        view.session.stop()


def test_the_next_replay_ends_the_former_one(
    job: tuple[Path, list[str]], notebook: Notebook, tmp_path: Path
) -> None:
    folder, _ = job
    first = notebook.run(f"%ddt_replay {folder / 'job'}")
    assert first.agreement == "same error"
    with pytest.raises(UsageError, match="is not the folder"):
        notebook.run(f"%ddt_replay {tmp_path / 'none'}")
    assert first.session.alive, "a mistake costs no variables"
    second = notebook.run(f"%ddt_replay {folder / 'job'}")
    try:
        assert not first.session.alive
        assert second.session.alive
        assert second.agreement == "same error"
    finally:
        second.session.stop()


@pytest.mark.parametrize(
    ("before", "after", "what", "line"),
    [
        ("dist.barrier(group=pair)", "dist.all_reduce(loss.detach())", "operation", "all_reduce"),
        ("message = torch.empty(3)", "message = torch.empty(2)", "shapes", "sender = dist.recv"),
        ("dist.new_group([0, 1])", "dist.new_group([1])", "group", "dist.barrier"),
        ("assert torch.isfinite(total), f", "f", "end", "model(batch)"),
    ],
)
def test_a_changed_script_departs_and_the_call_is_named(
    changed: Callable[..., tuple[ReplayView, str]], before: str, after: str, what: str, line: str
) -> None:
    view, text = changed(before, after)
    departure = view.outcome.departure
    assert view.agreement == "departed", text
    assert departure is not None
    assert departure.what == what, text
    assert departure.replayed is not None
    assert "train.py has changed" in text
    where = departure.replayed.where
    assert where is not None
    assert line in where.code
    assert f"train.py line {where.line}" in " ".join(text.split())


def test_other_values_and_random_numbers_are_told(
    changed: Callable[..., tuple[ReplayView, str]],
) -> None:
    view, text = changed("    pair = dist", "    np.random.rand()\n    pair = dist")
    assert view.agreement == "same error", text  # one line further down
    assert not view.ok
    assert {one.what: one.libraries for one in view.outcome.unequal} == {
        "random states": ("numpy",)
    }, text
    view, text = changed("lr=0.1", "lr=0.2")
    assert [one.what for one in view.outcome.unequal] == ["values"], text
    assert view.agreement == "same error"


def test_a_rank_that_stood_in_a_call_stops_there_and_a_full_record_ends(
    changed: Callable[..., tuple[ReplayView, str]],
) -> None:
    (path,) = changed.folder.glob(f"*{INPUTS}")  # type: ignore[attr-defined]
    file = InputsFile(path)
    whole = path.read_bytes()
    number = [n for n, kept in enumerate(file.calls) if kept.call.ddp][-1]
    path.write_bytes(whole[: _end_of_issue(path, number)])
    view, text = changed()
    assert view.agreement == "stood", text
    assert view.outcome.at is not None
    assert view.outcome.at.ddp
    path.write_bytes(whole)
    number = next(n for n, kept in enumerate(file.calls) if kept.call.op == "barrier")
    path.write_bytes(whole[: _end_of_issue(path, number)])
    view, text = changed()
    assert view.agreement == "stood", text
    assert view.outcome.at is not None
    assert view.outcome.at.op == "barrier"
    assert view.session.pull("step") == 0
    with path.open("ab") as opened:
        message = InputReceived(call=number)
        for one in (message, InputsEnded(reason="it holds 1 MB")):
            head = encode(Envelope(one))
            opened.write(struct.pack("<I", len(head)) + head + struct.pack("<Q", 0))
    view, text = changed()
    assert view.agreement == "record ended", text
    assert "it holds 1 MB" in text
    assert view.outcome.served == number + 1


def _end_of_issue(path: Path, number: int) -> int:
    """Where the message of a call's beginning ends in the file."""
    data, at, seen = path.read_bytes(), 0, -1
    while True:
        (length,) = struct.unpack_from("<I", data, at)
        head = data[at + 4 : at + 4 + length]
        (payload,) = struct.unpack_from("<Q", data, at + 4 + length)
        at += 12 + length + payload
        seen += b'"CallIssued"' in head[:40]
        if seen == number:
            return at


class _Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("evil"),))


def test_no_code_comes_out_of_a_record(
    changed: Callable[..., tuple[ReplayView, str]], job: tuple[Path, list[str]]
) -> None:
    folder, _ = job
    (path,) = changed.folder.glob(f"*{INPUTS}")  # type: ignore[attr-defined]
    file = InputsFile(path)
    number = next(n for n, kept in enumerate(file.calls) if "_object" in kept.call.op)
    evil = pickle.dumps([_Evil()])
    head = encode(Envelope(InputReceived(call=number), payload=b""))
    message = struct.pack("<I", len(head)) + head + struct.pack("<Q", len(evil)) + evil
    path.write_bytes(path.read_bytes()[: _end_of_issue(path, number)] + message)
    _, text = changed()
    assert "CannotTravel" in text
    assert not list(folder.glob("**/evil"))


def test_what_cannot_be_replayed_is_said(
    job: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = job
    with pytest.raises(ddt.CannotReplay, match="not the folder of a recorded job"):
        ddt.replay(tmp_path / "none")
    with pytest.raises(ddt.CannotReplay, match="--record-inputs RANK"):
        ddt.replay(tmp_path)
    with pytest.raises(ddt.CannotReplay, match="rank 0 were not kept, but those of rank 1"):
        ddt.replay(folder / "job", 0)
    with monkeypatch.context() as patched:
        patched.setattr(metadata, "version", lambda _: "2.0.1+cpu")
        with pytest.raises(ddt.CannotReplay, match=r"this is torch 2\.0\.1"):
            inputs_of(folder / "job", 1)
    hidden = (folder / "train.py").rename(folder / "hidden.py")
    with pytest.raises(ddt.CannotReplay, match=r"script of the job is not here: .*train.py"):
        inputs_of(folder / "job", None)
    hidden.rename(folder / "train.py")
    (tmp_path / f"a-1{INPUTS}").write_bytes(b"\x10\0\0\0not a message")
    with pytest.raises(ddt.CannotReplay, match="does not hold the inputs"):
        ddt.replay(tmp_path)


def test_a_record_does_not_grow_beyond_its_limit(tmp_path: Path) -> None:
    path = tmp_path / f"a-1{INPUTS}"
    writer = InputsWriter(path, 2_000)
    begun = InputsBegun(
        rank=1,
        world_size=2,
        backend="gloo",
        torch_version="",
        python_version="",
        threads=1,
        script="",
    )
    writer.write(begun)
    call = InputCall(op="broadcast")
    first, second = writer.begin(call), writer.begin(call)
    writer.write(InputReceived(call=second), [b"abc"])
    with pytest.raises(InputsFull, match="MB"):
        writer.write(InputReceived(call=first), [bytes(2_000)])
    writer.end("it is full")
    with pytest.raises(InputsFull):
        writer.begin(call)
    with pytest.raises(FileExistsError):
        InputsWriter(path, 1)
    file = InputsFile(path)
    assert file.why_ended == "it is full"
    assert [kept.ended is not None for kept in file.calls] == [False, True]
    assert file.payload(file.calls[1]) == b"abc"
    for length in range(0, path.stat().st_size, 7):  # killed at any moment
        cut = tmp_path / f"cut{INPUTS}"
        cut.write_bytes(path.read_bytes()[:length])
        with contextlib.suppress(FormatError):
            assert len(InputsFile(cut).calls) <= 2


def test_a_full_disk_leaves_a_record_that_says_so(tmp_path: Path) -> None:
    path = tmp_path / f"a-1{INPUTS}"
    write = f"""
import resource, signal
from pathlib import Path
from ddt_notebook.model.replay import InputCall
from ddt_notebook.wire.rank_inputs import InputReceived, InputsBegun, InputsWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, 4_000))
writer = InputsWriter(Path({str(path)!r}), 1 << 20)
writer.write(InputsBegun(rank=1, world_size=2, backend="", torch_version="", python_version="",
                         threads=1, script=""))
number = writer.begin(InputCall(op="broadcast"))
try:
    writer.write(InputReceived(call=number), [bytes(8_000)])
except OSError as error:
    writer.end(str(error))
"""
    subprocess.run([sys.executable, "-c", write], check=True)
    file = InputsFile(path)
    assert "too large" in file.why_ended
    (kept,) = file.calls
    assert kept.ended is None
