"""A callback evaluates, and stops the training, on the main rank only."""

from __future__ import annotations

from typing import Any

from ddt_notebook.classroom import reference
from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    Behaviour,
    as_one,
    value,
)
from ddt_notebook.classroom.evidence import Evidence
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

_TARGET = 1.2


def _course(seen: Evidence) -> tuple[Any, list[float]]:
    """The parameters at the end, and the validation loss after each epoch."""
    data = seen.data
    weights: reference.Weights = data.initial
    losses: list[float] = []
    while len(losses) < data.setting.epochs and not (losses and losses[-1] < _TARGET):
        weights = reference.train(
            weights, data.inputs, data.labels, [slice(None)], data.setting.rate
        )
        losses.append(reference.mean_loss(weights, data.validation_inputs, data.validation_labels))
    return weights, losses


def _stops(seen: Evidence) -> str:
    seen.require_end()
    needed = len(_course(seen)[1])
    for rank, journal in seen.journals.items():
        steps = len(journal.trained)
        if steps != needed:
            return f"rank {rank} trained for {steps} epochs; {needed} are enough"
    return ""


EXERCISE = Exercise(
    name="own-callback",
    title="stop a trainer from a callback",
    level=2,
    minutes=12,
    story="""
    `Trainer` stands for the training loop of a library; leave it as it is. The callback should note
    the validation loss after each epoch and stop the training when this loss is below 1.2. The job
    hangs in the first epoch, in a line of the library. The cell leaves the trained `model`, the
    same on every rank, and on rank 0 the list `history` of losses.
    """,
    faults=("collective-under-rank-condition", "early-exit-on-rank-condition"),
    lesson="E.11",
    start="""
    class Trainer:
        def __init__(self, network, on_epoch_end):
            self.model = DDP(network)
            self.on_epoch_end = on_epoch_end
            self.should_stop = False
            self.is_main = rank == 0
            self.loss = torch.nn.CrossEntropyLoss(reduction="sum")
            mine = range(rank, len(exercise.dataset), world_size)
            self.x, self.y = exercise.dataset.take(mine)
            mine = range(rank, len(exercise.validation), world_size)
            self.other_x, self.other_y = exercise.validation.take(mine)

        def evaluate(self):
            with torch.no_grad():
                loss = self.loss(self.model.module(self.other_x), self.other_y)
            dist.all_reduce(loss)
            return loss.item() / len(exercise.validation)

        def fit(self):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=exercise.learning_rate)
            for epoch in range(exercise.epochs):
                optimizer.zero_grad()
                (self.loss(self.model(self.x), self.y) / len(self.y)).backward()
                optimizer.step()
                self.on_epoch_end(self, epoch)
                if self.should_stop:
                    break


    history = []


    def on_epoch_end(trainer, epoch):
        if trainer.is_main:
            loss = trainer.evaluate()
            print(f"epoch {epoch}: validation loss {loss:.3f}")
            history.append(loss)
            if loss < 1.2:
                trainer.should_stop = True


    trainer = Trainer(exercise.model(), on_epoch_end)
    trainer.fit()
    model = trainer.model
    """,
    solution="""
    class Trainer:
        def __init__(self, network, on_epoch_end):
            self.model = DDP(network)
            self.on_epoch_end = on_epoch_end
            self.should_stop = False
            self.is_main = rank == 0
            self.loss = torch.nn.CrossEntropyLoss(reduction="sum")
            mine = range(rank, len(exercise.dataset), world_size)
            self.x, self.y = exercise.dataset.take(mine)
            mine = range(rank, len(exercise.validation), world_size)
            self.other_x, self.other_y = exercise.validation.take(mine)

        def evaluate(self):
            with torch.no_grad():
                loss = self.loss(self.model.module(self.other_x), self.other_y)
            dist.all_reduce(loss)
            return loss.item() / len(exercise.validation)

        def fit(self):
            optimizer = torch.optim.SGD(self.model.parameters(), lr=exercise.learning_rate)
            for epoch in range(exercise.epochs):
                optimizer.zero_grad()
                (self.loss(self.model(self.x), self.y) / len(self.y)).backward()
                optimizer.step()
                self.on_epoch_end(self, epoch)
                if self.should_stop:
                    break


    history = []


    def on_epoch_end(trainer, epoch):
        loss = trainer.evaluate()
        if trainer.is_main:
            print(f"epoch {epoch}: validation loss {loss:.3f}")
            history.append(loss)
        if loss < 1.2:
            trainer.should_stop = True


    trainer = Trainer(exercise.model(), on_epoch_end)
    trainer.fit()
    model = trainer.model
    """,
    hints=(
        (
            "In which line of the library does rank 0 wait? Which line of the callback called it, "
            "and which ranks run that line?"
        ),
        (
            "evaluate() contains a collective. When it works, the job hangs again, in the last "
            "epoch: which ranks know that the training stops?"
        ),
        (
            "Call evaluate() and set should_stop on all ranks. Only print and append belong under "
            "is_main."
        ),
    ),
    behaviours=(
        ENDS,
        READS_ONCE,
        OWN_SHARE,
        Behaviour("stops", "training stops when the validation loss is below 1.2", _stops),
        PARITY,
        as_one(lambda seen: _course(seen)[0]),
        value(
            "history",
            "`history` of rank 0 has the validation loss after each epoch",
            "history",
            lambda seen: _course(seen)[1],
            only=lambda rank: rank == 0,
            within=1e-3,
        ),
    ),
    setting=Setting(validation=60, epochs=40),
    leaves=("model", "history"),
)
