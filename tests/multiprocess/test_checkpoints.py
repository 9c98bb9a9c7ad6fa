"""Checkpoints of healthy programs, which must give no finding."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults.scratch import SCRATCH
from ddt_notebook.host.session import Session

BEGIN = """
model = DDP(torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train():
    optimizer.zero_grad()
    model(torch.randn(4, 64)).square().mean().backward()
    optimizer.step()
"""

HEALTHY = {
    "rank 0 saves, all resume": """
        for epoch in range(3):
            train()
            if rank == 0:
                torch.save(model.module.state_dict(), "last.pt")
        dist.barrier()
        model.module.load_state_dict(torch.load("last.pt"))
    """,
    "a file for each rank": """
        train()
        torch.save({"rank": rank, "seed": torch.get_rng_state()}, f"state{rank}.pt")
        own = torch.load(f"state{rank}.pt")
    """,
    "resume first, save the same file later": """
        if rank == 0:
            torch.save(model.module.state_dict(), "last.pt")
        dist.barrier()
        for epoch in range(3):
            model.module.load_state_dict(torch.load("last.pt"))
            train()
            if rank == 0:
                torch.save(model.module.state_dict(), "last.pt")
            dist.barrier()
    """,
    "ranks take turns": """
        for turn in range(world_size):
            if rank == turn:
                torch.save({"by": rank}, "turn.pt")
            dist.barrier()
        assert torch.load("turn.pt")["by"] == world_size - 1
    """,
    "a part of a checkpoint": """
        torch.save({**model.module.state_dict(), "head.weight": torch.ones(1)}, f"part{rank}.pt")
        model.module.load_state_dict(torch.load(f"part{rank}.pt"), strict=False)
    """,
    "the prefix is taken off where it is needed": """
        torch.save(model.module.state_dict(), f"bare{rank}.pt")
        state = {f"module.{key}": value for key, value in torch.load(f"bare{rank}.pt").items()}
        left = model.module.load_state_dict(state, strict=False)
        if left.unexpected_keys:
            state = {key.removeprefix("module."): value for key, value in state.items()}
            model.module.load_state_dict(state)
    """,
    "in memory": """
        import io
        file = io.BytesIO()
        torch.save(model.module.state_dict(), file)
        file.seek(0)
        torch.load(file)
    """,
    "handed over by a message": """
        if rank == 0:
            torch.save(torch.ones(3), "handed.pt")
            dist.send(torch.ones(1), dst=1)
        else:
            dist.recv(torch.empty(1), src=0)
            torch.load("handed.pt")
    """,
    "many steps between": """
        if rank == 0:
            torch.save(torch.ones(3), "early.pt")
        for step in range(300):
            dist.all_reduce(torch.ones(1))
        torch.load("early.pt")
    """,
}


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(2) as started:
        assert started.run(SCRATCH + BEGIN).ok
        yield started


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_checkpointing_gives_no_finding(session: Session, name: str) -> None:
    result = session.run(dedent(HEALTHY[name]))
    assert result.ok, result.errors
    assert ddt.diagnose(result).findings == []
    assert any(report.uses for report in result.snapshot.checkpoints) == (name != "in memory")


RESUME = """
import os
path = "two-steps.pt"
def save():
    if rank == 0:
        state = {"model": model.module.state_dict(), "optimizer": adam.state_dict()}
        torch.save(state, path + ".tmp")
        os.replace(path + ".tmp", path)
    dist.barrier()
adam = torch.optim.Adam(model.parameters())
for _ in range(2):
    model(torch.randn(4, 64)).square().mean().backward()
    adam.step()
    save()
    state = torch.load(path)
    model.module.load_state_dict(state["model"])
    ALSO
save()
"""


@pytest.mark.parametrize(
    ("also", "hinted"), [("pass", True), ("adam.load_state_dict(state['optimizer'])", False)]
)
def test_a_file_that_was_saved_in_two_steps(session: Session, also: str, *, hinted: bool) -> None:
    result = session.run(RESUME.replace("ALSO", also))
    assert result.ok, result.errors
    report = ddt.diagnose(result)
    assert report.findings == []
    assert [hint.kind for hint in report.hints] == ["resumed-without-state"] * hinted
    saved = [use for one in result.snapshot.checkpoints for use in one.uses if use.renamed]
    assert {use.renamed.rsplit("/", 1)[-1] for use in saved} == {"two-steps.pt"}


def test_an_error_in_loading_is_shown_without_our_wrapper(session: Session) -> None:
    result = session.run("torch.load('nowhere.pt')")
    error = result.errors[0]
    assert error.type == "FileNotFoundError"
    assert error.where.place.endswith("] line 1")
    assert not any("/probes/" in frame.file for frame in error.frames)
    assert "checkpoints.py" not in error.traceback


def test_a_model_within_a_function_that_loaded_nothing_is_found(session: Session) -> None:
    result = session.run(
        dedent("""
        def resume(path):
            net = torch.nn.Linear(64, 8)
            net.load_state_dict(torch.load(path), strict=False)
            return net.weight.sum().item()
        torch.save(model.state_dict(), f"wrapped{rank}.pt")
        resume(f"wrapped{rank}.pt")
        """)
    )
    (finding,) = ddt.diagnose(result).findings
    assert (finding.cause, finding.ranks) == ("nothing-loaded", [0, 1])
    assert finding.where[0].endswith("net.load_state_dict(torch.load(path), strict=False)")
