"""Programs of TensorFlow and Keras on workers of a session, one after the other."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from tests.trainers.programs import program

from .tensorflow_programs import (
    CUSTOM_LOOP,
    EVALUATES,
    FIT,
    FROM_FUNCTION,
    HEAD,
    MIRRORED,
    SAVES,
)

if importlib.util.find_spec("tensorflow") is None or importlib.util.find_spec("tf_keras") is None:
    pytest.skip("make test-tensorflow installs TensorFlow", allow_module_level=True)

HEALTHY = {
    "custom loop": CUSTOM_LOOP,
    "fit": FIT,
    "saves": SAVES,
    "from a function": FROM_FUNCTION,
    "evaluates": EVALUATES,
    "a helper on one rank": HEAD + "if rank == 0:\n    print(tf.reduce_sum(tf.ones([3])))",
}
_CONFIG = """
config = json.loads(os.environ["TF_CONFIG"])
{change}
os.environ["TF_CONFIG"] = json.dumps(config)
"""


def _configured(change: str) -> str:
    return program(FIT, "before the strategy", _CONFIG.format(change=change))


_STRATEGY = "strategy = tf.distribute.MultiWorkerMirroredStrategy()"
#: A program, the symptom, the culprits, and a line that the finding has to name.
FAULTS = {
    "fewer steps": (
        program(CUSTOM_LOOP, "before the loop", "steps = 3 - rank"),
        "D.1.1",  # what follows the loop meets a step of the other, and TensorFlow raises
        [0, 1],
        "for step in range(steps):",
    ),
    "fewer steps in fit": (
        program(FIT, "before training", "dataset, steps = dataset.repeat(), 4 - rank"),
        "D.1.1",
        [0, 1],
        "model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0)",
    ),
    "a step is skipped": (
        program(CUSTOM_LOOP, "in a step", "if rank == 1 and step == 2:\n    continue"),
        "D.1.1",
        [0, 1],
        "if rank == 1 and step == 2:",
    ),
    "the chief saves": (
        program(FIT, "at the end", 'if rank == 0:\n    model.save("saved")'),
        "D.2.1",
        [1],
        "if rank == 0:",
    ),
    "the chief evaluates": (
        program(FIT, "at the end", "if rank == 0:\n    model.evaluate(dataset, verbose=0)"),
        "D.2.1",
        [1],
        "if rank == 0:",
    ),
    "another number of workers": (
        _configured('if rank == 1:\n    config["cluster"]["worker"].append("127.0.0.1:1")'),
        "B.2",
        [1],
        _STRATEGY,
    ),
    "one task twice": (
        _configured('config["task"]["index"] = 0'),
        "B.2",
        [1],
        _STRATEGY,
    ),
    "another address": (
        _configured('if rank == 1:\n    config["cluster"]["worker"][0] = "127.0.0.1:1"'),
        "B.2",
        [1],
        _STRATEGY,
    ),
    "other shapes": (
        program(
            CUSTOM_LOOP,
            "at the end",
            "value = tf.ones([8 + rank])\nadd = tf.distribute.get_replica_context\n"
            'strategy.run(tf.function(lambda: add().all_reduce("sum", value)))',
        ),
        "D.1.1",
        [0, 1],
        'strategy.run(tf.function(lambda: add().all_reduce("sum", value)))',
    ),
    "a worker raises": (
        program(
            CUSTOM_LOOP, "in a step", 'if rank == 1 and step == 1:\n    raise ValueError("bad")'
        ),
        "D.1.11",
        [1],
        'raise ValueError("bad")',
    ),
    "a worker dies": (
        program(
            CUSTOM_LOOP, "in a step", "if rank == 1 and step == 1:\n    os.kill(os.getpid(), 9)"
        ),
        "D.1.11",
        [1],
        "loss = train_step(next(iterator))",
    ),
}


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2, framework="tensorflow", hang_after=0.5) as one:
        yield one


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_programs_stay_quiet(session: ddt.Session, name: str) -> None:
    result = session.run(HEALTHY[name])
    report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    assert not report.hints, str(report)


def test_replicas_in_one_worker_stay_quiet() -> None:
    with ddt.Session(2, framework="tensorflow", hang_after=0.5) as session:
        result = session.run(MIRRORED)
        report = ddt.diagnose(result)
        assert result.ok, str(report)
        assert not report.findings, str(report)
        assert [float(text) for _, text in sorted(result.outputs.items())] == [2.0, 2.0]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named_at_the_users_line_and_the_next_program_trains(
    session: ddt.Session, name: str
) -> None:
    source, symptom, ranks, named = FAULTS[name]
    result = session.run(source)
    findings = ddt.diagnose(result).findings
    assert findings, str(ddt.diagnose(result))
    finding = findings[0]
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    told = {place.line for place in finding.places.values()}
    told |= {fact.place.line for fact in finding.facts if fact.place is not None}
    assert number in told, str(finding)
    assert (finding.symptom, finding.ranks) == (symptom, ranks), str(finding)
    assert len(findings) == 1, [str(one) for one in findings]
    killed = [report.rank for report in result.snapshot.ranks if report.killed]
    assert not killed, "it was freed"
    again = session.run(CUSTOM_LOOP)
    report = ddt.diagnose(again)
    assert again.ok, str(report)
    assert not report.findings, str(report)


def test_variables_survive_a_hang(session: ddt.Session) -> None:
    assert session.run(FIT).ok
    hung = session.run("if rank == 0:\n    model.evaluate(dataset, verbose=0)")
    assert not hung.ok
    after = session.run("print(float(tf.reduce_sum(model.layers[0].kernel)) != 0.0)")
    assert set(after.outputs.values()) == {"True\n"}, str(after)


def test_ranks_have_no_process_group_and_know_their_place(session: ddt.Session) -> None:
    seen = session.run(
        "import json, os\nprint(dist.is_initialized(), json.loads(os.environ['TF_CONFIG'])['task'])"
    )
    assert seen.outputs == {
        rank: f"False {{'type': 'worker', 'index': {rank}}}\n" for rank in range(2)
    }


def test_what_runs_in_a_graph_is_a_record_at_the_users_line(session: ddt.Session) -> None:
    result = session.run(CUSTOM_LOOP)
    lines = CUSTOM_LOOP.splitlines()
    made = [call for call in result.snapshot.ranks[0].calls if call.op == "train_step()"]
    assert len(made) == 6
    assert all(
        lines[call.where.line - 1].strip() == "loss = train_step(next(iterator))"
        for call in made
        if call.where
    )
    assert all(call.left_s is not None and call.shapes for call in made)
