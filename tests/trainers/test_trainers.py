"""Programs of Accelerate, Trainer, Lightning and Fabric, unmodified, in cells and as scripts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import ddt_notebook as ddt

from .programs import ACCELERATE, FABRIC, LIGHTNING, TRAINER, program, run

pytest.importorskip("accelerate", reason="make test-trainers installs the libraries")
pytest.importorskip("lightning", reason="make test-trainers installs the libraries")
pytest.importorskip("transformers", reason="make test-trainers installs the libraries")

BASES = {
    "accelerate": ACCELERATE,
    "trainer": TRAINER,
    "lightning": LIGHTNING,
    "fabric": FABRIC,
}

#: A program, a place in it, the lines of a fault, and which of these a finding has to name.
FAULTS = {
    "accelerate gathers on one rank": (
        ACCELERATE,
        "after an epoch",
        "if accelerator.is_main_process:\n    print(accelerator.gather(total.reshape(1)))",
        "if accelerator.is_main_process:",
    ),
    "accelerate waits on one rank": (
        ACCELERATE,
        "after an epoch",
        "if accelerator.is_main_process:\n    accelerator.wait_for_everyone()",
        "if accelerator.is_main_process:",
    ),
    "accelerate leaves the loop by its own loss": (
        ACCELERATE,
        "in a step",
        (
            "threshold = 0.2 if accelerator.process_index == 0 else 5.0\n"
            "if loss.item() < threshold:\n    break"
        ),
        "if loss.item() < threshold:",
    ),
    "accelerate raises on one rank": (
        ACCELERATE,
        "in a step",
        'if accelerator.process_index == 1 and step == 2:\n    raise ValueError("bad sample")',
        'raise ValueError("bad sample")',
    ),
    "trainer's callback waits on one rank": (
        TRAINER,
        "after an epoch",
        "if state.is_world_process_zero:\n    torch.distributed.barrier()",
        "if state.is_world_process_zero:",
    ),
    "trainer evaluates on one rank": (
        TRAINER,
        "at the end",
        "if trainer.is_world_process_zero():\n    print(trainer.evaluate())",
        "if trainer.is_world_process_zero():",
    ),
    "trainer's loss raises on one rank": (
        TRAINER,
        "in a step",
        (
            "if self.args.process_index == 1 and self.state.global_step == 2:\n"
            '    raise ValueError("bad batch")'
        ),
        'raise ValueError("bad batch")',
    ),
    "trainer's callback stops one rank": (
        TRAINER,
        "after an epoch",
        "if args.process_index == 1:\n    control.should_training_stop = True",
        "if args.process_index == 1:",
    ),
    "trainer's callback stops by its own loss": (
        TRAINER,
        "after an epoch",
        (
            "lost = 1.0 / (1 + args.process_index)\n"
            "if lost < 0.8:\n    control.should_training_stop = True\n"
            "if state.is_world_process_zero:\n    print(lost)"
        ),
        "if lost < 0.8:",
    ),
    "lightning's step waits on one rank": (
        LIGHTNING,
        "in a step",
        "if self.trainer.is_global_zero and number == 2:\n    self.trainer.strategy.barrier()",
        "if self.trainer.is_global_zero and number == 2:",
    ),
    "lightning's step raises on one rank": (
        LIGHTNING,
        "in a step",
        'if self.global_rank == 1 and number == 2:\n    raise ValueError("bad batch")',
        'raise ValueError("bad batch")',
    ),
    "lightning's callback stops one rank": (
        LIGHTNING.replace(
            "class Net(",
            """class Stop(lightning.Callback):
    def on_train_batch_end(self, trainer, module, outputs, batch, number):
        if trainer.is_global_zero:
            self.seen = number
        if trainer.global_rank == 1 and number == 2:
            trainer.should_stop = True


class Net(""",
        ).replace("max_epochs=2,", "max_epochs=2, callbacks=[Stop()],"),
        "",
        "",
        "if trainer.global_rank == 1 and number == 2:",
    ),
    "fabric gathers on one rank": (
        FABRIC,
        "in a step",
        "if fabric.global_rank == 0:\n    fabric.all_gather(loss)",
        "if fabric.global_rank == 0:",
    ),
    "fabric leaves the loop on one rank": (
        FABRIC,
        "in a step",
        "if fabric.global_rank == 1 and step == 2:\n    break",
        "if fabric.global_rank == 1 and step == 2:",
    ),
}

#: Rank 0 writes the accuracy of an evaluation on divided data.
WRITER = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torch.utils.tensorboard import SummaryWriter

torch.manual_seed(0)
data = TensorDataset(torch.randn(52, 4), torch.randint(0, 3, (52,)))
loader = DataLoader(data, batch_size=7, sampler=DistributedSampler(data, shuffle=False))
model = DDP(torch.nn.Linear(4, 3))
hits = torch.zeros(2)
with torch.no_grad():
    for x, y in loader:
        hits += torch.tensor([(model(x).argmax(1) == y).sum(), len(y)])
EXCHANGE
if rank == 0:
    writer = SummaryWriter("FOLDER")
    writer.add_scalar("accuracy", hits[0].item() / hits[1].item(), 1)
    writer.close()
"""


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2) as session:
        yield session


@pytest.mark.parametrize("way", ["cell", "script"])
@pytest.mark.parametrize("name", BASES)
def test_healthy_programs_stay_quiet(
    session: ddt.Session, name: str, way: str, tmp_path: Path
) -> None:
    result = run(session, program(BASES[name]), way, tmp_path)
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)


@pytest.mark.parametrize("way", ["cell", "script"])
@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_named_at_the_users_line(
    session: ddt.Session, name: str, way: str, tmp_path: Path
) -> None:
    base, place, lines, named = FAULTS[name]
    source = program(base, place, lines)
    result = run(session, source, way, tmp_path)
    finding = ddt.diagnose(result).findings[0]
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert number in told, str(finding)
    # calls that do not fit may also end a rank
    symptoms = ["D.1.11"] if named.startswith("raise") else ["D.2.1", "D.1.1"]
    assert finding.symptom in symptoms, str(finding)
    assert not result.lost


@pytest.mark.parametrize(
    ("base", "asks"), [("accelerate", "cpu=True"), ("trainer", "use_cpu=True, ")]
)
def test_ranks_without_gpus_train_together_unasked(
    session: ddt.Session, base: str, asks: str, tmp_path: Path
) -> None:
    source = BASES[base]
    assert asks in source
    # a script finds nothing that an earlier one has left in Accelerate
    result = run(session, program(source.replace(asks, "")), "script", tmp_path)
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert any(call.op == "all_reduce" for rank in result.snapshot.ranks for call in rank.calls)


@pytest.mark.parametrize("base", ["lightning", "fabric"])
@pytest.mark.parametrize("strategy", ["ddp_notebook", "ddp_spawn"])
def test_ranks_do_not_start_ranks(session: ddt.Session, strategy: str, base: str) -> None:
    result = session.run(BASES[base].replace('strategy="ddp"', f'strategy="{strategy}"'))
    said = {error.message.partition(",")[0] for error in result.errors.values()}
    assert said == {"this cell already runs on every rank"}
    assert session.run("x = torch.ones(1)\ndist.all_reduce(x)").ok


@pytest.mark.parametrize("made", ["", "accelerator = Accelerator(cpu=True)\n"])
@pytest.mark.parametrize("name", ["notebook_launcher", "debug_launcher"])
def test_launchers_of_notebooks_are_refused_in_one_line(
    session: ddt.Session, name: str, made: str
) -> None:
    result = session.run(
        f"from accelerate import Accelerator, {name}\n{made}"
        f"def main():\n    print('trained')\n{name}(main, num_processes=2)"
    )
    said = {error.message.partition(",")[0] for error in result.errors.values()}
    assert len(result.errors) == 2
    assert said == {"this cell already runs on every rank"}


@pytest.mark.parametrize("reduced", [False, True], ids=["own share", "of all ranks"])
def test_numbers_written_for_tensorboard_are_read(
    session: ddt.Session, reduced: bool, tmp_path: Path
) -> None:
    """An accuracy of one rank's share is a finding, and one that was reduced is not."""
    pytest.importorskip("tensorboard", reason="make test-trainers installs it")
    exchange = "dist.all_reduce(hits)" if reduced else "pass"
    source = WRITER.replace("FOLDER", str(tmp_path)).replace("EXCHANGE", exchange)
    report = ddt.diagnose(session.run(source))
    assert [f.cause for f in report.findings] == ([] if reduced else ["metric-not-reduced"]), report
    for finding in report.findings:
        assert finding.ranks == [0]
        assert "add_scalar" in finding.places[0].code
