"""Keras 3 on torch: ``fit`` with a ``train_step`` that averages gradients over the ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

import ddt_notebook as ddt
from tests.trainers.programs import program

if importlib.util.find_spec("keras") is None or importlib.util.find_spec("torch") is None:
    pytest.skip("make test-tensorflow installs Keras", allow_module_level=True)

PROGRAM = """
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
import numpy as np
import torch
import torch.distributed as dist


class Regression(keras.Sequential):
    def train_step(self, data):
        x, y = data
        self.zero_grad()
        loss = self.compute_loss(y=y, y_pred=self(x, training=True))
        loss.backward()
        weights = list(self.trainable_weights)
        for weight in weights:
            dist.all_reduce(weight.value.grad)
            weight.value.grad /= world_size
        with torch.no_grad():
            self.optimizer.apply([weight.value.grad for weight in weights], weights)
        return {"loss": loss}


class Budget(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if self.spends(epoch, logs):
            self.model.stop_training = True

    def spends(self, epoch, logs):
        return epoch == 2


seed, samples, callbacks = 5, 48, []
# before the model
keras.utils.set_random_seed(seed)
model = Regression([keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.build((None, 4))
model.compile(optimizer=keras.optimizers.SGD(0.05), loss="mse")
x = np.random.RandomState(rank).rand(samples, 4).astype("float32")
model.fit(x, x.sum(1, keepdims=True), batch_size=8, epochs=4, callbacks=callbacks, verbose=0)
"""
FIT = "model.fit("
#: What is inserted, the symptom, the ranks, the kind of a fact, and the line that it shows.
FAULTS = {
    "a callback of Keras": (
        'callbacks = [keras.callbacks.EarlyStopping("loss", 99.0 * rank, patience=9 - 9 * rank)]',
        ("D.2.1", [1], "callback-stops", FIT),
    ),
    "a callback of the program": (
        "callbacks = [Budget()]\nBudget.spends = lambda self, epoch, logs: epoch == 2 - rank",
        ("D.2.1", [1], "asks-to-stop", "if self.spends(epoch, logs):"),
    ),
    "fewer samples": ("samples -= 16 * rank", ("D.2.1", [1], "loaders-differ", FIT)),
    "own weights": (
        "seed += rank",
        ("D.2.5", [0, 1], "seeded-with", "keras.utils.set_random_seed(seed)"),
    ),
}


@pytest.fixture(scope="module")
def session() -> Iterator[ddt.Session]:
    with ddt.Session(2) as one:
        yield one


@pytest.mark.parametrize("inserted", ["", "callbacks = [Budget()]"])
def test_equal_ranks_stay_quiet(session: ddt.Session, inserted: str) -> None:
    run = session.run(program(PROGRAM, "before the model", inserted))
    assert run.ok, run.outputs
    report = ddt.diagnose(run)
    assert not report.findings
    assert not report.hints


@pytest.mark.parametrize("name", FAULTS)
def test_what_differs_is_named_at_the_users_line(session: ddt.Session, name: str) -> None:
    inserted, (symptom, ranks, kind, line) = FAULTS[name]
    report = ddt.diagnose(session.run(program(PROGRAM, "before the model", inserted)))
    found = report.findings[0]
    assert (found.symptom, found.ranks) == (symptom, ranks), str(report)
    places = [fact.place for fact in found.facts if fact.kind == kind]
    assert places, str(report)
    assert all(place is not None and place.code.startswith(line) for place in places)
