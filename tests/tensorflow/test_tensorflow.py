"""Programs of TensorFlow and Keras on workers of a session, one after the other."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from ddt_notebook.model.meetings import Meeting, meetings
from tests.trainers.programs import program

from .tensorflow_programs import (
    CUSTOM_LOOP,
    EVALUATES,
    FIT,
    FROM_FUNCTION,
    HEAD,
    IN_A_FUNCTION,
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
    "in a function": IN_A_FUNCTION,
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
_ADDS = """
        if rank == 0:
            return tf.distribute.get_replica_context().all_reduce("sum", loss)
        return loss
"""
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
        [1],
        "model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0)",
    ),
    "fewer rounds of a loop in a graph": (
        program(
            CUSTOM_LOOP,
            "at the end",
            """
@tf.function
def rounds(batch, number):
    for _ in tf.range(number):
        train_step(batch)

batch = next(iter(distributed))
rounds(batch, tf.constant(4 - rank))
print(float(accuracy.result()))
""",
        ),
        "D.2.1",
        [1],
        "rounds(batch, tf.constant(4 - rank))",
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
    "a callback of one worker evaluates": (
        program(
            FIT,
            "before training",
            """
class Evaluates(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        self.model.evaluate(dataset, verbose=0)

callbacks = [Evaluates()] if rank == 0 else []
""",
        ).replace("verbose=0)\n# at", "verbose=0, callbacks=callbacks)\n# at"),
        "D.1.1",
        [1],
        "self.model.evaluate(dataset, verbose=0)",
    ),
    "a generator raises": (
        program(
            FIT,
            "before the model",
            """
def samples():
    for at in range(64):
        if rank == 1 and at == 40:
            raise ValueError("bad sample")
        yield features[at], targets[at]

dataset = tf.data.Dataset.from_generator(
    samples, output_signature=(tf.TensorSpec([8]), tf.TensorSpec([1]))
).batch(16)
""",
        ),
        "D.1.11",
        [1],
        'raise ValueError("bad sample")',
    ),
    "a worker adds a collective to a step": (
        CUSTOM_LOOP.replace("        return loss\n", _ADDS),
        "D.1.1",
        [1],
        'return tf.distribute.get_replica_context().all_reduce("sum", loss)',
    ),
    "a callback of one worker stops": (
        program(
            FIT,
            "before training",
            """
class Stops(tf.keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        if rank == 1 and batch == 1:
            self.model.stop_training = True

callbacks = [Stops()]
""",
        ).replace("verbose=0)\n# at", "verbose=0, callbacks=callbacks)\n# at"),
        "D.1.1",
        [1],
        "self.model.stop_training = True",
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

_OFF = "tf.data.experimental.AutoShardPolicy.OFF"
_UNDIVIDED = f"""
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = {_OFF}
dataset = dataset.with_options(options)
"""
_DISTRIBUTES = "distributed = strategy.experimental_distribute_dataset(dataset)"
_FITS = "model.fit(dataset, epochs=2, steps_per_epoch=steps, verbose=0)"
_LOSS = "tf.nn.compute_average_loss(losses[:, 0], global_batch_size=16)"
_OWN_SIZE = "tf.reduce_sum(losses) / tf.cast(tf.shape(losses)[0], tf.float32)"
_NOT_SUMMED = "skip_gradients_aggregation=True"
_PENALTY = "tf.add_n([0.01 * tf.nn.l2_loss(v) for v in model.trainable_variables])"
_SHARD = "data.shard(context.num_input_pipelines, context.input_pipeline_id)"
_AGES = """
import tempfile

with strategy.scope():
    model.build((None, 8))
checkpoint = tf.train.Checkpoint(model=model)
folder = tempfile.mkdtemp()
saved = [checkpoint.write(f"{folder}/steps-0")]
for variable in model.trainable_variables:
    variable.assign_add(0.1 * tf.ones_like(variable))
saved.append(checkpoint.write(f"{folder}/steps-1"))
checkpoint.restore(saved[rank])
"""
#: A program that ends well, the cause, and a line that the finding has to name.
SILENT = {
    "all data on all workers": (
        program(
            CUSTOM_LOOP,
            "before the data",
            f"options.experimental_distribute.auto_shard_policy = {_OFF}",
        ),
        "tensorflow-data-undivided",
        _DISTRIBUTES,
    ),
    "all data in fit": (
        program(FIT, "before the model", _UNDIVIDED),
        "tensorflow-data-undivided",
        _FITS,
    ),
    "a function that forgets its place": (
        FROM_FUNCTION.replace(_SHARD, "data"),
        "tensorflow-data-undivided",
        "dataset, steps = strategy.distribute_datasets_from_function(dataset_of), 5",
    ),
    "an order of each worker before its share": (
        FROM_FUNCTION.replace(_SHARD, f"data.shuffle(64).{_SHARD.removeprefix('data.')}"),
        "tensorflow-shares-overlap",
        "dataset, steps = strategy.distribute_datasets_from_function(dataset_of), 5",
    ),
    "a mean over each worker's batch": (
        CUSTOM_LOOP.replace(_LOSS, "tf.reduce_mean(losses)"),
        "tensorflow-loss-not-divided",
        "loss = tf.reduce_mean(losses)",
    ),
    "a sum that is divided by the size of a worker's own batch": (
        CUSTOM_LOOP.replace(_LOSS, _OWN_SIZE),
        "tensorflow-loss-not-divided",
        f"loss = {_OWN_SIZE}",
    ),
    "a penalty that each replica adds": (
        CUSTOM_LOOP.replace(_LOSS, f"{_LOSS} + {_PENALTY}"),
        "tensorflow-loss-not-divided",
        f"loss = {_LOSS} + {_PENALTY}",
    ),
    "a checkpoint of another age": (
        program(CUSTOM_LOOP, "before the loop", _AGES),
        "tensorflow-workers-differ",
        "checkpoint.restore(saved[rank])",
    ),
    "another number in the graph of each worker": (
        CUSTOM_LOOP.replace(_LOSS, f"{_LOSS} * (0.5 + rank)"),
        "tensorflow-workers-differ",
        f"loss = {_LOSS} * (0.5 + rank)",
    ),
    "another function of each worker's data": (
        program(
            FIT,
            "before the model",
            "noise = tf.random.normal if rank else tf.zeros\n"
            "dataset = dataset.map(lambda x, y: (x + noise(tf.shape(x)), y))",
        ),
        "tensorflow-workers-differ",
        _FITS,
    ),
    "gradients that nobody sums": (
        CUSTOM_LOOP.replace("_variables))\n        a", f"_variables), {_NOT_SUMMED})\n        a"),
        "tensorflow-workers-differ",
        f"optimizer.apply_gradients(zip(gradients, model.trainable_variables), {_NOT_SUMMED})",
    ),
    "no strategy": (
        FIT.replace("MultiWorkerMirroredStrategy", "get_strategy"),
        "tensorflow-ranks-train-alone",
        _FITS,
    ),
}
#: They look like `SILENT`, and are right.
LOOK_ALIKES = {
    "each worker takes its share": program(
        FIT, "before the model", f"{_UNDIVIDED}\ndataset = dataset.shard(2, rank)"
    ),
    "the test data are not divided": FIT.replace(
        "verbose=0)", "verbose=0, validation_data=dataset.with_options(options))"
    ).replace(
        "# before the model",
        f"options = tf.data.Options()\noptions.experimental_distribute.auto_shard_policy = {_OFF}",
    ),
    "a generator of each worker": program(
        FIT,
        "before the model",
        f"""
def samples():
    for at in range(rank, 64, 2):
        yield features[at], targets[at]

dataset = tf.data.Dataset.from_generator(
    samples, output_signature=(tf.TensorSpec([8]), tf.TensorSpec([1]))
).batch(16)
{_UNDIVIDED}
steps = 2
dataset = dataset.repeat()
""",
    ),
    "a sum that is divided by the size of all batches": CUSTOM_LOOP.replace(
        _LOSS,
        "tf.reduce_sum(losses) / tf.cast("
        "tf.shape(losses)[0] * strategy.num_replicas_in_sync, tf.float32)",
    ),
    "a penalty that is divided": CUSTOM_LOOP.replace(
        _LOSS, f"{_LOSS} + tf.nn.scale_regularization_loss({_PENALTY})"
    ),
    "a mean that is divided": CUSTOM_LOOP.replace(
        _LOSS, "tf.reduce_mean(losses) / strategy.num_replicas_in_sync"
    ),
    "gradients that are divided": CUSTOM_LOOP.replace(_LOSS, "tf.reduce_mean(losses)")
    .replace("ReduceOp.SUM", "ReduceOp.MEAN")
    .replace(
        "optimizer.apply_gradients(zip(gradients",
        "halves = [one / 2 for one in gradients]\n        optimizer.apply_gradients(zip(halves",
    ),
    "one model for each rank": FIT.replace("MultiWorkerMirroredStrategy", "get_strategy").replace(
        'Dense(16, activation="relu")', "Dense(16 + rank)"
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


@pytest.mark.parametrize("name", SILENT)
def test_a_silent_fault_is_named(name: str) -> None:
    source, cause, named = SILENT[name]
    # TensorFlow refuses a strategy after another operation: a session for each program
    with ddt.Session(2, framework="tensorflow") as session:
        result = session.run(source)
        report = ddt.diagnose(result)
    assert result.ok, str(report)
    (finding,) = report.findings
    number = next(n for n, line in enumerate(source.splitlines(), 1) if line.strip() == named)
    assert (finding.cause, finding.ranks) == (cause, [0, 1])
    assert {place.line for place in finding.places.values()} == {number}


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_what_looks_like_a_silent_fault_is_none(name: str) -> None:
    with ddt.Session(2, framework="tensorflow") as session:
        result = session.run(LOOK_ALIKES[name])
        report = ddt.diagnose(result)
    assert result.ok, str(report)
    assert not report.findings, str(report)
    causes = {"tensorflow-data-undivided", "tensorflow-loss-not-divided"}
    assert not [hint for hint in report.hints if hint.cause in causes]


def test_the_partition_shows_what_each_worker_read(session: ddt.Session) -> None:
    result = session.run(FIT)
    loaders = {
        one.rank: loader
        for one in result.snapshot.partition
        for loader in one.loaders
        if loader.name == "dataset" and loader.last_run == one.run
    }
    read = [[(epoch.batches, epoch.samples) for epoch in x.epochs] for x in loaders.values()]
    assert read == [[(4, 32), (4, 32)]] * 2
    (mine, theirs) = ({*loader.epochs[-1].content} for loader in loaders.values())
    assert len(mine) == len(theirs) == 32
    assert not mine & theirs
    assert not ddt.partition(result).flags


def test_the_timeline_shows_what_graphs_do(session: ddt.Session) -> None:
    # gradients, and the loss; the profiler loses events of collectives, in some runs many
    for _ in range(3):
        steps = _traced_steps(session)
        inside = [{len(spans) for spans in step.inside.values()} for step in steps]
        assert all(counts in ({2}, set()) for counts in inside)
        for step in steps:
            for rank, call in step.calls.items():
                assert call.entered_s is not None
                assert call.left_s is not None
                assert call.entered_s <= step.arrivals_s[rank] <= step.ends_s[rank]
        if inside.count({2}) >= 4:
            break
    assert inside.count({2}) >= 4


def _traced_steps(session: ddt.Session) -> list[Meeting]:
    """The six steps of a traced run, whose timeline must be right."""
    result = session.run(CUSTOM_LOOP, trace=True)
    assert result.ok, str(ddt.diagnose(result))
    view = ddt.timeline(result)
    assert view.window is not None
    assert view.window.name == "steps 2 to 6"
    for traced in result.snapshot.timeline:
        assert len(traced.steps_us) == 6
        kinds = {span.kind for span in traced.spans()}
        assert {"backward", "optimizer", "data", "collective"} <= kinds
    steps = [one for one in meetings(result.snapshot) if one.first.op == "train_step()"]
    assert len(steps) == 6
    return steps


@pytest.mark.parametrize(("asks", "package"), [("1", "tf_keras"), ("0", "keras")])
def test_the_program_gets_the_keras_that_it_asks_for(asks: str, package: str) -> None:
    with ddt.Session(1, framework="tensorflow") as session:
        result = session.run(
            f"import os\nos.environ['TF_USE_LEGACY_KERAS'] = '{asks}'\nimport tensorflow as tf\n"
            "from tensorflow.keras import layers\n"
            "print({one.__module__.split('.')[0] for one in (layers.Dense, tf.keras.Sequential)})"
        )
    assert result.outputs == {0: f"{{'{package}'}}\n"}, str(result)


_CRASHES = """
from tensorflow.python.profiler.internal import _pywrap_profiler

begin = _pywrap_profiler.ProfilerSession

class Crashes:
    def __init__(self):
        self.session = begin()

    def start(self, *args):
        self.session.start(*args)

    def export_to_tb(self):
        os.abort()

_pywrap_profiler.ProfilerSession = Crashes
"""


def test_a_crash_of_the_profiler_costs_no_rank() -> None:
    with ddt.Session(2, framework="tensorflow") as session:
        assert session.run(HEAD + _CRASHES).ok
        result = session.run(CUSTOM_LOOP, trace=True)
        assert result.ok, str(ddt.diagnose(result))
        for traced in result.snapshot.timeline:
            assert len(traced.steps_us) == 6
            assert "backward" not in {span.kind for span in traced.spans()}
        again = session.run("print(float(loss) > 0)")
        assert set(again.outputs.values()) == {"True\n"}, str(again)


def test_data_that_cannot_be_counted_are_said(session: ddt.Session) -> None:
    source = (
        HEAD
        + """
strategy = tf.distribute.MultiWorkerMirroredStrategy()
numbers = strategy.distribute_datasets_from_function(lambda context: tf.data.Dataset.range(4))
print(len(list(numbers)))
"""
    )
    result = session.run(source)
    assert result.ok, str(ddt.diagnose(result))
    assert not ddt.diagnose(result).findings
    (flag,) = ddt.partition(result).flags
    assert flag.text.startswith("numbers could not be counted: TypeError:"), flag


def test_each_replica_of_a_worker_is_on_its_device() -> None:
    with ddt.Session(1, framework="tensorflow") as session:
        assert session.run(MIRRORED).ok
        (placed,) = ddt.placement(session).snapshot.placement[0].objects
        assert [one.device for one in placed.tensors] == ["cpu:0", "cpu:1"]


def test_views_show_variables(session: ddt.Session) -> None:
    # the combined value of a metric's variables would take a collective
    assert session.run(CUSTOM_LOOP).ok
    imports = "from tensorflow.keras.optimizers import Adam"
    assert session.run(f"{FIT}\nlone = tf.Variable(float(rank))\n{imports}").ok
    placed = {one.name: one for one in ddt.placement(session).snapshot.placement[1].objects}
    assert {"model", "model.optimizer", "optimizer", "accuracy", "lone"} <= {*placed}
    assert {one.device for one in placed["accuracy"].tensors} == {"cpu:0"}
    parity = ddt.parity(session)
    (flag,) = (flag for flag in parity.flags if "lone" in flag.text)
    assert "0 on rank 0, 1 on rank 1" in flag.text
    assert not any("model" in other.text for other in parity.flags)
    items = {(item.name, item.role) for item in parity.snapshot.parity[0].items}
    assert {role for name, role in items if name.startswith("model.")} == {"parameter", "state"}
    for one in ddt.memory(session, "model").snapshot.memory:
        assert one.parts["parameters"] == one.parameter_count * 4 == (8 * 16 + 16 + 16 + 1) * 4
        assert one.parts["optimizer state"] > 0


def test_variables_survive_a_hang(session: ddt.Session) -> None:
    assert session.run(FIT).ok
    hung = session.run("if rank == 0:\n    model.evaluate(dataset, verbose=0)")
    assert not hung.ok
    after = session.run("print(float(tf.reduce_sum(model.layers[0].kernel)) != 0.0)")
    assert set(after.outputs.values()) == {"True\n"}, str(after)


def test_generated_source_is_left_to_the_folder_of_the_session(session: ddt.Session) -> None:
    seen = session.run(
        CUSTOM_LOOP
        + """
import sys
from pathlib import Path
files = [m.__file__ for name, m in sys.modules.items() if name.startswith("__autograph_generated")]
print(len(files) > 0, {Path(file).parent.name[:4] for file in files})
"""
    )
    ends = {output.splitlines()[-1] for output in seen.outputs.values()}
    assert ends == {"True {'ddt-'}"}, str(seen)


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
