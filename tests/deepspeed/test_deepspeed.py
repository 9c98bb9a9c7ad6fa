"""Programs of DeepSpeed, unmodified, in cells and as scripts, one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.rank.frameworks.deepspeed import engines_hold_former_groups
from tests.trainers.programs import program, run

from .deepspeed_programs import MOE, PIPELINE, zero

pytest.importorskip("deepspeed", reason="make test-deepspeed installs it")

HEALTHY = {
    "zero-0": zero(0),
    "zero-1": zero(1),
    "zero-2": zero(2),
    "zero-3": zero(3),
    "accumulates": zero(2, 2),
    "two losses of one pass": program(
        zero(0, 2), "before the step", "engine.backward(loss)"
    ).replace("backward(loss)", "backward(loss, retain_graph=True)", 1),
    "buffers of one seed": zero(3).replace(
        "model = Net()", 'model = Net()\n    model.register_buffer("noise", torch.randn(4))'
    ),
    "a mean of two losses": zero(2, 2).replace("backward(loss)", "backward((loss + loss) / 2)"),
    "inputs for the first stage, labels for the last": PIPELINE.replace(
        "yield x, x.sum(1, keepdim=True)",
        "y = x.sum(1, keepdim=True)\n"
        "        first = os.environ['RANK'] == '0'\n"
        "        yield (x, y * 0) if first else (x * 0, y)",
    ),
    "saves": program(zero(2), "at the end", 'engine.save_checkpoint("saved")'),
    "experts": MOE,
    "pipeline": PIPELINE,
    "zero-0 after a pipeline": zero(0),
}
UNUSED = """
if rank == 1:
    engine.backward(engine.module.last(torch.relu(engine.module.first(x))).sum())
    engine.step()
    continue
"""
#: A program, the symptom, and a line that the finding has to name.
FAULTS = {
    "a step is skipped": (
        program(zero(1), "before the step", "if rank == 1 and step == 2:\n    continue"),
        "D.1.1",
        "if rank == 1 and step == 2:",
    ),
    "more batches": (
        program(zero(2), "before the loop", "steps = 4 + rank"),
        "D.2.1",
        "for step in range(steps):",
    ),
    "one rank leaves": (
        program(zero(1), "before the step", "if rank == 1 and step == 1:\n    break"),
        "D.2.1",
        "if rank == 1 and step == 1:",
    ),
    "another stage": (
        program(zero(1), "before the engine", 'config["zero_optimization"] = {"stage": rank}'),
        "D.1.1",
        "engine.step()",
    ),
    "other accumulation": (
        program(zero(2), "before the engine", 'config["gradient_accumulation_steps"] = 1 + rank'),
        "D.1.1",
        "engine.step()",
    ),
    "one rank saves": (
        program(zero(1), "at the end", 'if rank == 0:\n    engine.save_checkpoint("saved")'),
        "D.2.1",
        "if rank == 0:",
    ),
    "own tags": (
        program(zero(2), "at the end", 'engine.save_checkpoint("saved", f"rank{rank}")'),
        "D.1.6",
        'engine.save_checkpoint("saved", f"rank{rank}")',
    ),
    "accumulated twice": (
        program(zero(2, 2), "before the step", "if step % 2 == 0:\n    continue"),
        "D.2.4",
        "engine.step()",
    ),
    "other rates": (
        program(
            zero(1),
            "before the engine",
            'given = {"lr": 0.1 + rank, "torch_adam": True}\n'
            'config["optimizer"] = {"type": "Adam", "params": given}',
        ),
        "D.2.5",
        "engine, optimizer, _, _ = deepspeed.initialize(",
    ),
    "other clipping": (
        program(zero(2), "before the engine", 'config["gradient_clipping"] = 1.0 + rank'),
        "D.2.2",
        "engine, optimizer, _, _ = deepspeed.initialize(",
    ),
    "a buffer of its own": (
        program(zero(3), "before the engine", "torch.manual_seed(rank)").replace(
            "model = Net()", 'model = Net()\n    model.register_buffer("noise", torch.randn(4))'
        ),
        "D.2.4",
        'model.register_buffer("noise", torch.randn(4))',
    ),
    "divided by the loop as well": (
        zero(2, 2).replace(
            "engine.backward(loss)", 'engine.backward(loss / CONFIG["gradient_accumulation_steps"])'
        ),
        "D.2.4",
        'engine.backward(loss / CONFIG["gradient_accumulation_steps"])',
    ),
    "stages read their own batches": (
        PIPELINE.replace(
            "manual_seed(0)\n    for", "manual_seed(int(os.environ['RANK']))\n    for"
        ),
        "D.2.2",
        "loss = engine.train_batch(data_iter=data)",
    ),
    "one stage evaluates": (
        program(PIPELINE, "in a step", "if engine.is_last_stage():\n    engine.eval_batch(data)"),
        "D.2.1",
        "if engine.is_last_stage():",
    ),
    "unused parameters": (program(zero(3), "in a step", UNUSED), "D.1.1", "if rank == 1:"),
    "one rank raises": (
        program(
            zero(3), "in a step", 'if rank == 1 and step == 2:\n    raise ValueError("bad sample")'
        ),
        "D.1.11",
        'raise ValueError("bad sample")',
    ),
    "fewer batches in the pipeline": (
        program(PIPELINE, "before the loop", "steps = 3 - rank"),
        "D.2.1",
        "loss = engine.train_batch(data_iter=data)",
    ),
    "experts get other numbers of samples": (
        program(MOE, "in a step", "if rank == 1 and step == 2:\n    count = 8"),
        "D.1.1",
        "x, _, _ = self.moe(torch.relu(self.first(x)))",
    ),
    "a stage raises": (
        program(
            PIPELINE, "in a step", 'if rank == 1 and step == 1:\n    raise ValueError("bad sample")'
        ),
        "D.1.11",
        'raise ValueError("bad sample")',
    ),
}


@pytest.fixture(autouse=True)
def _nothing_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    monkeypatch.chdir(tmp_path)
    yield
    assert not (tmp_path / "extensions").exists()


@pytest.fixture(params=["cell", "script"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_healthy_programs_stay_quiet(way: str, tmp_path: Path) -> None:
    with ddt.Session(2) as session:
        for name, source in HEALTHY.items():
            result = run(session, source, way, tmp_path)
            report = ddt.diagnose(result)
            assert result.ok, f"{name}: {report}"
            assert not report.findings, f"{name}: {report}"
            assert not report.hints, f"{name}: {report}"
            assert not any("not recorded" in note for note in result.snapshot.notes), name


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_the_users_line_and_the_next_engine_trains(
    name: str, way: str, tmp_path: Path
) -> None:
    source, symptom, named = FAULTS[name]
    with ddt.Session(2) as session:
        finding = ddt.diagnose(run(session, source, way, tmp_path)).findings[0]
        number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
        told = {place.line for place in finding.places.values()}
        told |= {fact.place.line for fact in finding.facts if fact.place is not None}
        assert number in told, str(finding)
        assert finding.symptom == symptom, str(finding)
        again = run(session, zero(2), way, tmp_path)
        report = ddt.diagnose(again)
        assert again.ok, str(report)
        assert not report.findings, str(report)


def test_after_a_hang_a_pipeline_can_be_made_again(way: str, tmp_path: Path) -> None:
    waits = program(PIPELINE, "before the loop", "steps = 3 - rank")
    # a cell need not call init_distributed() again
    again = PIPELINE.replace('    deepspeed.init_distributed("gloo")\n', "")
    with ddt.Session(2) as session:
        assert not run(session, waits, "cell", tmp_path).ok
        after = run(session, again if way == "cell" else PIPELINE, way, tmp_path)
        report = ddt.diagnose(after)
        assert after.ok, str(report)
        assert not report.findings, str(report)


def test_the_same_samples_on_all_ranks_are_told() -> None:
    source = program(
        zero(2),
        "before the loop",
        "data = torch.utils.data.TensorDataset(torch.randn(16, 16))\n"
        "loader = iter(torch.utils.data.DataLoader(data, batch_size=4))",
    ).replace("x = torch.randn(4, 16, generator=generator)", "(x,) = next(loader)")
    with ddt.Session(2) as session:
        (finding,) = ddt.diagnose(session.run(source)).findings
    assert (finding.symptom, finding.cause) == ("D.2.2", "no-distributed-sampler")


def test_the_same_samples_without_a_loader_are_told() -> None:
    """The program keeps the data itself; each rank has to take a part of its own."""
    source = program(zero(1), "before the loop", "data, steps = torch.randn(64, 16), 32").replace(
        "x = torch.randn(4, 16, generator=generator)", "x = data[begin::16] / 2"
    )
    with ddt.Session(2) as session:
        (finding,) = ddt.diagnose(session.run(source.replace("begin", "step % 16"))).findings
        assert (finding.symptom, finding.cause) == ("D.2.2", "no-distributed-sampler")
        shared = session.run(source.replace("begin", "(step * 2 + rank) % 16"))
        assert not ddt.diagnose(shared).findings


def test_an_engine_that_holds_a_former_group_is_noted() -> None:
    source = zero(1).replace("def main():", "def main():\n    global engine")
    with ddt.Session(2) as session:
        assert session.run(source).ok
        assert not session.run("if rank == 0:\n    dist.barrier()").ok
        after = session.run("x = torch.ones(1)\ndist.all_reduce(x)")
        assert after.ok
        assert engines_hold_former_groups(("engine",)) in after.snapshot.notes
        assert not session.run("pass").snapshot.notes
        assert not session.run("if rank == 0:\n    dist.barrier()").ok
        again = session.run(source)
        assert again.ok
        assert not [note for note in again.snapshot.notes if "engine" in note]


@pytest.mark.parametrize("stage", [0, 2])
def test_parity_compares_whole_parameters(stage: int) -> None:
    source = zero(stage).replace("def main():", "def main():\n    global engine")
    with ddt.Session(2) as session:
        assert session.run(source).ok
        agrees = ddt.parity(session)
        assert not agrees.flags, str(agrees)
        compared = {item.name for item in agrees.snapshot.parity[0].items}
        assert "engine.last.weight" in compared
        assert session.run("if rank == 1:\n    engine.module.last.weight.data.add_(1)").ok
        (flag,) = ddt.parity(session).flags
        assert "engine.last.weight" in flag.text


def test_parity_compares_no_experts_of_other_ranks() -> None:
    with ddt.Session(2) as session:
        assert session.run(MOE.replace("def main():", "def main():\n    global engine")).ok
        view = ddt.parity(session)
        assert not view.flags, str(view)
        parts = {item.part for parity in view.snapshot.parity for item in parity.items}
        assert {"experts 0", "experts 1"} <= parts
