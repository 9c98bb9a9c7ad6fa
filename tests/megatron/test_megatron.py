"""Programs of Megatron-core on CPU ranks with simulated GPUs, in cells, one after the other."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.session import Session
from ddt_notebook.rank.frameworks.megatron import GROUPS_ENDED
from tests.multiprocess.test_jobs import TORCHRUN, Job, _no_process_is_left, assert_gone
from tests.trainers.programs import program, run

from .megatron_programs import (
    DROPOUT,
    EVALUATES,
    SAVES,
    at_top_level,
    experts,
    gpt,
    own_groups,
    sequence_parallel,
    without_schedule,
)

pytest.importorskip("megatron.core", reason="make test-megatron installs it")

__all__ = ["_no_process_is_left"]

LOADS = "iterator = iter(DataLoader(rows, batch_size=MICRO_BATCH, shuffle=True))"
SHUFFLES = """
from torch.utils.data import DataLoader

rows = torch.arange(32 * (SEQUENCE + 1)).cuda().reshape(32, -1) % VOCABULARY
"""
#: Programs with the number of ranks.
HEALTHY = {
    "tensor": (2, gpt(2, 1)),
    "tensor-dropout": (2, gpt(2, 1, DROPOUT)),
    "pipeline": (2, gpt(1, 2)),
    "data": (2, gpt(1, 1)),
    "evaluates": (2, program(gpt(1, 2), "after a step", EVALUATES)),
    "stages shuffle alike": (
        2,
        program(gpt(1, 2), "before the data", SHUFFLES + "torch.manual_seed(seed)").replace(
            "iterator = batches(data_seed)", LOADS
        ),
    ),
    "saves": (2, program(gpt(2, 1), "at the end", SAVES)),
    "variables of the notebook": (2, at_top_level(gpt(2, 1))),
    "variables of a pipeline": (2, at_top_level(gpt(1, 2))),
    "distributed optimizer": (
        2,
        gpt(1, 1, "", "use_distributed_optimizer=True").replace(
            "lr=1e-2", "lr=1e-2, use_distributed_optimizer=True"
        ),
    ),
    "experts": (2, experts()),
    "sequence parallel": (2, sequence_parallel()),
    "groups of its own": (2, own_groups()),
    "without a schedule": (2, without_schedule("pass")),
    "whole parameters are broadcast": (
        2,
        without_schedule(
            "for one in model.parameters():\n"
            "    if not getattr(one, 'tensor_model_parallel', False):\n"
            "        dist.broadcast(one.data, 0)"
        ),
    ),
    "tensor and pipeline": (4, gpt(2, 2)),
    "all axes": (8, gpt(2, 2)),
}
RUN = "losses = run_step("
SEEDS = "tensor_parallel.model_parallel_cuda_manual_seed(seed, force_reset_rng=True)"
ADAM = 'optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=rate), [model])'
FORWARD = "output = model(tokens[:, :-1], position_ids, None, labels=tokens[:, 1:])"
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)"
#: A program for two ranks, the symptom, the cause, and a line that the finding has to name.
FAULTS = {
    "other number of micro-batches": (
        program(gpt(1, 2), "before the loop", "micro_batches = 2 + rank"),
        "D.2.1",
        "megatron-micro-batches-differ",
        RUN,
    ),
    "other type of the messages": (
        program(
            gpt(1, 2),
            "before the model",
            'if rank == 1:\n    settings["pipeline_dtype"] = torch.bfloat16',
        ),
        "D.1.1",
        "message-size-differs",
        RUN,
    ),
    "other seeds": (
        program(gpt(2, 1, DROPOUT), "before the seed", "seed = seed + rank"),
        "D.2.4",
        "megatron-seeds-differ",
        SEEDS,
    ),
    "other tokens": (
        program(gpt(2, 1), "before the data", "data_seed = rank"),
        "D.2.4",
        "megatron-tokens-differ",
        FORWARD,
    ),
    "other tokens in a group of its own": (
        own_groups().replace("data_seed = groups.dp.rank()", "data_seed = rank"),
        "D.2.4",
        "megatron-tokens-differ",
        "output = model(tokens[:, :-1], position_ids, None)",
    ),
    "begins apart without a schedule": (
        without_schedule("model.decoder.final_layernorm.weight.data.add_(0.1 * rank)"),
        "D.2.4",
        "megatron-parameters-differ",
        "loss = model(tokens[:, :-1], position_ids, None, labels=tokens[:, 1:]).mean()",
    ),
    "parts are broadcast without a schedule": (
        without_schedule("for one in model.parameters():\n    dist.broadcast(one.data, 0)"),
        "D.2.4",
        "megatron-parts-alike",
        "dist.broadcast(one.data, 0)",
    ),
    "a second model begins apart": (
        program(
            gpt(1, 1),
            "before the loop",
            "teacher = GPTModel(config, get_gpt_layer_local_spec(), VOCABULARY, SEQUENCE).cuda()\n"
            "teacher.decoder.final_layernorm.weight.data.add_(0.1 * rank)",
        ).replace(
            "        # in a step\n",
            "        # in a step\n        with torch.no_grad():\n"
            "            run_step(\n"
            "                forward_step_func=forward_step, data_iterator=iterator,\n"
            "                model=teacher, num_microbatches=1, seq_length=SEQUENCE,\n"
            "                micro_batch_size=MICRO_BATCH, decoder_seq_length=SEQUENCE,\n"
            "                forward_only=True)\n",
        ),
        "D.2.4",
        "megatron-parameters-differ",
        "run_step(",
    ),
    "replicas begin apart": (
        program(gpt(1, 1), "before the model", "torch.manual_seed(rank)"),
        "D.2.4",
        "megatron-parameters-differ",
        RUN,
    ),
    "replicas read the same batches": (
        program(gpt(1, 1), "before the data", "data_seed = 0"),
        "C.7",
        "megatron-data-undivided",
        FORWARD,
    ),
    "other sizes of the groups": (
        gpt(1, 1).replace(
            "    parallel_state.init", "    TENSOR = 2 - rank\n    parallel_state.init"
        ),
        "B.2",
        "megatron-sizes-differ",
        "parallel_state.initialize_model_parallel(TENSOR, PIPELINE)",
    ),
    "other learning rates": (
        program(gpt(2, 1), "before the model", "rate = 1e-2 / (1 + rank)").replace(
            "lr=1e-2", "lr=rate"
        ),
        "D.2.4",
        "megatron-parameters-differ",
        ADAM,
    ),
    "gradients are not reduced": (
        gpt(1, 1).replace("finalize_model_grads([model])", "pass"),
        "D.2.4",
        "megatron-parameters-differ",
        RUN,
    ),
    "an evaluation is not where they part": (
        program(
            gpt(1, 1).replace("finalize_model_grads([model])", "pass"), "after a step", EVALUATES
        ),
        "D.2.4",
        "megatron-parameters-differ",
        RUN,
    ),
    "other labels": (
        gpt(2, 1).replace(
            "labels=tokens[:, 1:])", "labels=(tokens[:, 1:] + dist.get_rank()) % VOCABULARY)"
        ),
        "D.2.4",
        "megatron-tokens-differ",
        FORWARD.replace(
            "labels=tokens[:, 1:])", "labels=(tokens[:, 1:] + dist.get_rank()) % VOCABULARY)"
        ),
    ),
    "stages shuffle by their own seeds": (
        program(gpt(1, 2), "before the data", SHUFFLES + "torch.manual_seed(seed + rank)").replace(
            "iterator = batches(data_seed)", LOADS
        ),
        "D.2.4",
        "megatron-stages-read-apart",
        LOADS,
    ),
    "clips by the norm of its part": (
        program(
            gpt(2, 1).replace(
                'get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2), [model])',
                "torch.optim.Adam(model.parameters(), lr=1e-2)",
            ),
            "before the update",
            "for one in model.parameters():\n    one.grad = one.main_grad\n" + CLIP,
        ),
        "D.2.4",
        "megatron-clipped-by-parts",
        CLIP,
    ),
    "other width of a stage": (
        gpt(1, 2).replace("hidden_size=16", "hidden_size=16 * (1 + rank)"),
        "D.1.1",
        "message-size-differs",
        RUN,
    ),
    "a step is skipped": (
        program(gpt(2, 1), "in a step", "if rank == 1 and step == 2:\n    continue"),
        "D.2.1",
        "early-exit-on-rank-condition",
        "if rank == 1 and step == 2:",
    ),
    "a stage leaves": (
        program(gpt(1, 2), "in a step", "if rank == 0 and step == 2:\n    break"),
        "D.2.1",
        "early-exit-on-rank-condition",
        "if rank == 0 and step == 2:",
    ),
    "one rank saves": (
        program(gpt(2, 1), "at the end", "if rank == 0:\n" + SAVES.replace("\n", "\n    ")),
        "D.2.1",
        "collective-under-rank-condition",
        "if rank == 0:",
    ),
    "a tensor rank saves": (
        program(
            gpt(2, 1),
            "at the end",
            "if parallel_state.get_tensor_model_parallel_rank() == 0:\n"
            "    dist.broadcast_object_list([step], src=0)",
        ),
        "D.2.1",
        "collective-under-rank-condition",
        "if parallel_state.get_tensor_model_parallel_rank() == 0:",
    ),
    "the last stage reduces its loss": (
        gpt(1, 2).replace(
            "        return loss, dict",
            "        dist.all_reduce(loss.detach())\n        return loss, dict",
        ),
        "D.2.1",
        "collective-within-pipeline-step",
        "dist.all_reduce(loss.detach())",
    ),
    "an expert's rank skips a step": (
        program(
            experts(),
            "in a step",
            "if parallel_state.get_expert_model_parallel_rank() == 1 and step == 1:\n    continue",
        ),
        "D.2.1",
        "early-exit-on-rank-condition",
        "if parallel_state.get_expert_model_parallel_rank() == 1 and step == 1:",
    ),
    "gradients of norms are not reduced": (
        sequence_parallel().replace("finalize_model_grads([model])", "pass"),
        "D.2.4",
        "megatron-parameters-differ",
        RUN,
    ),
    "one rank reduces": (
        program(
            gpt(2, 1),
            "at the end",
            "if rank == 0:\n    dist.all_reduce(\n        losses[0]['loss'], "
            "group=parallel_state.get_tensor_model_parallel_group()\n    )",
        ),
        "D.2.1",
        "collective-under-rank-condition",
        "if rank == 0:",
    ),
}


def start(ranks: int) -> Session:
    """Start a session, with variables under which Megatron-core's warnings stay away."""
    session = ddt.Session(ranks, simulate=f"cuda:{ranks}")
    session.run("import warnings; warnings.simplefilter('ignore')")
    return session


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_healthy_programs_stay_quiet(ranks: int) -> None:
    with start(ranks) as session:
        for name, (wanted, source) in HEALTHY.items():
            if wanted != ranks:
                continue
            result = session.run(source)
            report = ddt.diagnose(result)
            assert result.ok, f"{name}: {report}"
            assert not report.findings, f"{name}: {report}"
            assert not report.hints, f"{name}: {report}"
            assert not any("could not" in note for note in result.snapshot.notes), name


@pytest.mark.parametrize("name", ["tensor", "pipeline"])
def test_scripts_run_one_after_the_other(name: str, tmp_path: Path) -> None:
    """A script, a faulty one, and the first again, in one session."""
    with start(2) as session:
        source = HEALTHY[name][1]
        fault, _, cause, _ = FAULTS["a step is skipped" if name == "tensor" else "a stage leaves"]
        for lines, causes in ((source, []), (fault, [cause]), (source, [])):
            result = run(session, lines, "script", tmp_path)
            assert [f.cause for f in ddt.diagnose(result).findings] == causes


def test_faults_are_named_at_the_users_line_and_the_next_program_trains() -> None:
    wrong = []
    with start(2) as session:
        for name, (source, symptom, cause, line) in FAULTS.items():
            report = ddt.diagnose(session.run(source))
            number = next(n for n, one in enumerate(source.splitlines(), 1) if one.strip() == line)
            told = set()
            if report.findings:
                first = report.findings[0]
                told = {place.line for place in first.places.values()}
                told |= {fact.place.line for fact in first.facts if fact.place is not None}
            if not told or (first.symptom, first.cause) != (symptom, cause) or number not in told:
                wrong.append(f"{name}, line {number}: {report}")
            session.run("import warnings; warnings.simplefilter('ignore')")
        after = session.run(gpt(2, 1))
        assert after.ok, str(ddt.diagnose(after))
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("name", ["other number of micro-batches", "other seeds"])
def test_faults_of_a_recorded_job_are_named(name: str, tmp_path: Path) -> None:
    source, symptom, cause, _ = FAULTS[name]
    file = tmp_path / "train.py"
    file.write_text("import warnings\n\nwarnings.simplefilter('ignore')\n" + source)
    job = Job(tmp_path / "job", "--simulate", "cuda:2", "--on-hang", "stop", "--", *TORCHRUN, file)
    _, _, errors = job.end()
    report = ddt.diagnose(ddt.Snapshot.load(job.folder / "report-1.ddt.json"))
    assert [(f.symptom, f.cause) for f in report.findings[:1]] == [(symptom, cause)], errors
    assert_gone(job.pids)


def test_groups_carry_their_names_in_records_findings_and_views() -> None:
    source = program(gpt(2, 1), "in a step", "if rank == 1 and step == 2:\n    break")
    with start(2) as session:
        result = session.run(source)
        (finding,) = ddt.diagnose(result).findings
        assert "(tensor)" in finding.title
        assert "(tensor)" in str(ddt.collectives(result))
        rows = ddt.collectives(result).to_frame()
        assert {name.partition(" ")[2] for name in rows.group} >= {"(tensor)", "(data)"}


def test_groups_that_have_ended_are_noted() -> None:
    with start(2) as session:
        assert session.run(gpt(2, 1)).ok
        assert not session.run("if rank == 0:\n    dist.barrier()").ok
        after = session.run("x = torch.ones(1)\ndist.all_reduce(x)")
        assert after.ok
        assert GROUPS_ENDED in after.snapshot.notes


def test_groups_and_a_model_are_made_again_after_a_hang() -> None:
    """In cells that destroy no groups themselves; what holds the ended ones is refused first."""
    makes = at_top_level(gpt(2, 1)).replace("parallel_state.destroy_model_parallel()\n", "")
    step = makes[makes.index("losses = run_step(") : makes.index("    finalize_model_grads([")]
    with start(2) as session:
        assert session.run(makes).ok
        hung = session.run(f"if rank == 0:\n    {step}")
        assert [one.cause for one in ddt.diagnose(hung).findings] == [
            "collective-under-rank-condition"
        ]
        refused = session.run(dedent("    " + step))
        assert GROUPS_ENDED in refused.snapshot.notes
        (finding,) = ddt.diagnose(refused).findings
        assert (finding.symptom, {place.line for place in finding.places.values()}) == ("B.1", {1})
        again = session.run(makes)
        assert again.ok, str(ddt.diagnose(again))
        assert not ddt.diagnose(again).findings


def test_parity_and_placement_know_the_axes_of_the_mesh() -> None:
    with start(4) as session:
        assert session.run(at_top_level(gpt(2, 2))).ok
        for view in (ddt.parity(session), ddt.placement(session)):
            assert not view.flags, str(view)
        for text in ("mesh pipeline=2, tensor=2", "rank 3 pipeline 1 tensor 1"):
            assert text in view.to_html()
        norm = "model.module.decoder.layers[0].input_layernorm.weight"
        assert session.run(f"if rank == 1:\n    {norm}.data.add_(1)").ok
        (flag,) = ddt.parity(session).flags
        assert "input_layernorm.weight" in flag.text
