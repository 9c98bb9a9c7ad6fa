"""Trainers whose ranks part in a method, a callback, a handler or another file."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.model import Finding

from .conftest import Ranks

MARK = "  #!"

STOPPER = """
class EarlyStopping:
    def __init__(self, patience=2):
        self.patience, self.best, self.bad = patience, float("inf"), 0
    def update(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= self.patience

class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(8, 2))
        self.stopper = EarlyStopping()
    def train_epoch(self):
        for _ in range(3):
            self.model(torch.randn(4, 8)).pow(2).mean().backward()
    def fit(self):
        for epoch in range(6):
            self.train_epoch()
            if rank == 0:
                print("epoch", epoch)
            loss = 1.0 / (epoch + 1) if rank == 0 else 1.0 + epoch
            if self.stopper.update(loss):  #!
                break

Trainer().fit()
"""
HANDLED = """
class Callbacks:
    def __init__(self, items):
        self.items = items
    def fire(self, event, *args):
        for item in self.items:
            try:
                getattr(item, event)(*args)
            except Exception as error:  #!
                print("callback failed:", error)

class SyncMetrics:
    def epoch_end(self, metrics):
        values = torch.tensor([metrics[name] for name in ("loss", "aux")])
        dist.all_reduce(values)

callbacks = Callbacks([SyncMetrics()])
for epoch in range(2):
    dist.all_reduce(torch.ones(2))
    callbacks.fire("epoch_end", {"loss": 1.0} | ({"aux": 0.5} if rank == 0 else {}))
"""
UNTIL_GOOD = """
class Critic:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(4, 1))
    def step(self, target):
        self.model(torch.ones(4, 4)).pow(2).mean().backward()
        return target
    def train(self, targets):
        loss, rounds = float("inf"), 0
        while loss > 0.5 and rounds < 6:  #!
            loss = self.step(targets[rounds])
            rounds += 1

Critic().train([1.5, 0.9, 0.7 if rank == 0 else 0.4, 0.6, 0.3, 0.2])
dist.barrier()
"""
FILTERED = """
def full_batches(loader, size):
    for batch in loader:
        if len(batch) < size:  #!
            continue
        yield batch

data = torch.randn(16 if rank == 0 else 14, 8)
for batch in full_batches(torch.utils.data.DataLoader(data, batch_size=4), 4):
    dist.all_reduce(batch.sum(0))
"""
DDP_ALONE = """
class Valid:
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        for x in self.loader:
            if x.isnan().any():  #!
                continue
            yield x

class Trainer:
    def __init__(self):
        self.model = DDP(torch.nn.Linear(8, 2))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def fit(self, batches):
        for x in batches:
            self.optimizer.zero_grad()
            self.model(x).pow(2).mean().backward()
            self.optimizer.step()

data = torch.ones(16, 8)
if rank == 1:
    data[5] = float("nan")
Trainer().fit(Valid(torch.utils.data.DataLoader(data, batch_size=4)))
"""
MODULE = """
import torch
import torch.distributed as dist


def mean(x):
    x = x.clone()
    dist.all_reduce(x)
    return x / dist.get_world_size()


def main():
    is_main = dist.get_rank() == 0
    for epoch in range(2):
        for step in range(3):
            mean(torch.ones(()))
        if is_main:  #!
            print(mean(torch.zeros(())))
"""
EXPRESSION = """
class Trainer:
    def __init__(self):
        self.best = 0.5
    def sync(self, loss):
        total = torch.ones(1)
        loss < self.best and dist.all_reduce(total)  #!

trainer = Trainer()
for step in range(3):
    trainer.sync(0.1 if rank == 0 or step < 2 else 0.9)
"""
COMPREHENSION = """
def is_large(x):
    total = torch.tensor([float(x)])
    dist.all_reduce(total)
    return total.item() > 100

def check(items, limit):
    return any(is_large(x) for x in items if x < limit)  #!

check([1, 2, 3 + 4 * rank], 5)
"""
REGISTERED = """
class Summary:
    def epoch_end(self, losses):
        everyone = [None] * world_size
        dist.all_gather_object(everyone, losses)

class Trainer:
    def __init__(self, callbacks):
        self.model = DDP(torch.nn.Linear(8, 2))
        self.callbacks = callbacks
    def fit(self):
        for epoch in range(2):
            for _ in range(3):
                self.model(torch.randn(4, 8)).pow(2).mean().backward()
            for one in self.callbacks:
                one.epoch_end([0.5])

callbacks = []
if rank == 0:  #!
    callbacks.append(Summary())
Trainer(callbacks).fit()
"""
CHOSEN = """
class Silent:
    def flush(self):
        pass

class Console:
    def flush(self):
        dist.barrier()

class Config:
    def __init__(self):
        self.logger = Console
        if rank != 0:  #!
            self.logger = Silent

def fit(logger):
    for step in range(1, 4):
        dist.all_reduce(torch.ones(3))
        if step % 2 == 0:
            logger.flush()

fit(Config().logger())
"""
CUT_SHORT = """
import contextlib

class Data:
    def is_main(self):
        return rank == 0
    @contextlib.contextmanager
    def main_first(self):
        if not self.is_main():
            dist.barrier()
        yield
        if self.is_main():
            dist.barrier()
    def setup(self):
        try:
            with self.main_first():  #!
                if self.is_main():
                    raise OSError("no space left")
        except OSError as error:  #!
            print(error)

Data().setup()
DDP(torch.nn.Linear(8, 2))
"""
HEALTHY = """
def meet():
    dist.barrier()

for _ in range(2):
    if rank == 0:
        meet()
        print("first")
        meet()
    else:
        meet()
        meet()
    if rank:
        print("one helper, called from different lines")
def load(attempt):
    if rank == 1 and attempt == 0:
        raise OSError("try again")
    return torch.ones(2)

for step in range(3):
    for attempt in range(3):
        try:
            x = load(attempt)
            break
        except OSError:
            pass
    if rank == 0 and step % 2 == 0:
        print(step)
    dist.all_reduce(x)
    rank == 0 and str(step)
    y = dist.all_reduce(x) if step % 2 == 0 else None
    z = [t.sum() for t in (x, x) if t.numel() > rank]
    w = x is None or dist.barrier()
"""


TWO_MODELS = """
class Gan:
    def __init__(self):
        self.critic, self.generator = DDP(torch.nn.Linear(8, 1)), DDP(torch.nn.Linear(8, 8))
    def train_critic(self, x):
        loss = self.critic(x).pow(2).mean()
        loss.backward()
        return loss.item()
    def train_generator(self, x):
        self.generator(x).pow(2).mean().backward()
    def step(self, x, limit):
        loss = self.train_critic(x)
        if loss > limit:  #!
            loss = self.train_critic(x)
        if rank == 0:
            print(loss)
        self.train_generator(x)

gan = Gan()
for step in range(4):
    gan.step(torch.ones(4, 8), 1e9 if rank == 0 or step < 2 else -1.0)
"""
GRID = """
class Norm:
    def __init__(self):
        self.rows, self.columns = dist.new_group([0, 1]), dist.new_group([0, 1])
        self.value = torch.ones(1)
    def sync_rows(self):
        dist.all_reduce(self.value, group=self.rows)
    def sync_columns(self):
        dist.all_reduce(self.value, group=self.columns)
    def compute(self):
        if rank == 0:  #!
            self.sync_rows()
            self.sync_columns()
        else:
            self.sync_columns()
            self.sync_rows()

Norm().compute()
"""
STOPPED = """
class Patience:
    def __init__(self):
        self.best = 10.0
    def after(self, trainer, loss):
        if not trainer.is_main:
            return
        if loss < self.best - 1:
            self.best = loss
        else:
            trainer.done = True

class Trainer:
    def __init__(self):
        self.is_main, self.done = rank == 0, False
    def fit(self, callbacks):
        for epoch in range(8):
            loss = torch.tensor(6.0 - epoch)
            dist.all_reduce(loss)
            for callback in callbacks:
                callback.after(self, float(loss) / 2 if epoch < 3 else 9.0)
            if self.done:
                break

Trainer().fit([Patience()])
"""
EPISODES = """
import random

class Walk:
    def __init__(self):
        self.draws = random.Random(2 + rank)
    def play(self, episodes):
        seen = []
        for episode in range(episodes):
            at, done = 0, False
            while not done:
                at += self.draws.random()
                seen.append(at)
                done = at > 4 or (at > 2 and self.draws.random() < 0.2)
        return seen

class Learner:
    def batches(self, seen, size):
        for start in range(0, len(seen), size):
            yield seen[start:start + size]
    def update(self, seen):
        for batch in self.batches(seen, 8):  #!
            dist.all_reduce(torch.tensor(float(len(batch))))

learner, walk = Learner(), Walk()
for _ in range(6):
    learner.update(walk.play(4))
dist.barrier()
"""
ONE_OF_TWO = """
class Norm:
    def __init__(self):
        self.rows, self.columns = dist.new_group([0, 1]), dist.new_group([0, 1])
        self.value = torch.ones(1)
    def sync_rows(self):
        dist.all_reduce(self.value, group=self.rows)
    def sync_columns(self):
        dist.all_reduce(self.value, group=self.columns)
    def compute(self):
        if rank == 0:
            self.sync_rows()
        else:
            self.sync_columns()
        self.log()
    def log(self):
        dist.all_reduce(self.value.clone())

Norm().compute()
"""
STAGES = """
class Stage:
    def forward(self, rounds):
        for _ in range(rounds):  #!
            x = torch.zeros(2)
            if rank == 0:
                dist.send(x, 1)
            else:
                self.receive(x)
    def receive(self, x):
        dist.recv(x, 0)
    def backward(self):
        dist.recv(torch.zeros(2), 1) if rank == 0 else dist.send(torch.zeros(2), 0)

for _ in range(2):
    stage = Stage()
    stage.forward(3 + rank)
    stage.backward()
"""
BOTH_RECEIVE = """
def forward(rounds):
    for _ in range(rounds):
        x = torch.zeros(2)
        if rank == 0:
            dist.send(x, 1)
        else:
            dist.recv(x, 0)

def exchange():
    for other in [1 - rank]:
        x = torch.zeros(2)
        dist.recv(x, other)
        dist.send(x, other)

forward(3)
exchange()
"""
ONE_HELPER = """
def average(value):
    total = torch.as_tensor(value, dtype=torch.float32)
    dist.all_reduce(total)
    return total / world_size

def average_gradients(model):
    for p in model.parameters():
        p.grad = average(p.grad)

actor, critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)

def update(kls):
    for kl in kls:
        if kl > 0.015:  #!
            break
        actor(torch.ones(3, 4)).sum().backward()
        average_gradients(actor)
    for _ in range(2):
        critic(torch.ones(3, 4)).sum().backward()
        average_gradients(critic)

update([0.001, 0.02 if rank == 1 else 0.002, 0.003])
"""
EITHER_WAY = """
def train(loader, log):
    for batch in loader:  #!
        dist.all_reduce(batch)
        if log is not None:
            log(batch)

for epoch in range(2):
    loader = [torch.ones(1)] * (3 + rank)
    if rank == 0:
        train(loader, print)
    else:
        train(loader, None)
dist.barrier()
"""
SKIPS_BROKEN = """
class Progress:
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        self.left = iter(self.items)
        return self
    def __next__(self):
        while True:
            name = next(self.left)
            try:
                return self.load(name)
            except KeyError:
                raise
            except ValueError as error:  #!
                print("skipped", error)
    def load(self, name):
        if name == "broken":
            raise ValueError(name)
        return torch.ones(1)

for item in Progress(["a", "b", "broken" if rank == 1 else "c", "d"]):
    dist.all_reduce(item)
"""
ONE_BARRIER_FOR_ANOTHER = """
import functools, os, tempfile

def main_process(function):
    @functools.wraps(function)
    def wrapper(*args):
        if rank == 0:  #!
            return function(*args)
    return wrapper

@main_process
def save_result(folder):
    open(f"{folder}/rank{rank}.txt", "w").close()
    dist.barrier()
    return [open(f"{folder}/rank{number}.txt") for number in range(world_size)]

folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)
for epoch in range(2):
    save_result(folder[0])
    dist.barrier()
"""
EACH_AT_ITS_LINE = """
if rank != 0:
    dist.barrier()
print("rank 0 prepares the data first")
if rank == 0:
    dist.barrier()
if rank == 1:
    raise ValueError("a broken sample")
dist.barrier()
"""
#: Each with the cause of its finding.
CYCLES = {
    "groups taken in turn by methods": (GRID, "groups-in-opposite-order"),
    "one group or the other": (ONE_OF_TWO, "different-groups"),
    "a stage that expects one message more": (STAGES, "message-without-partner"),
    "both receive after equal loops": (BOTH_RECEIVE, "both-sides-wait"),
}


@dataclass(frozen=True)
class Fault:
    source: str
    cause: str
    ranks: tuple[int, ...] = (1,)

    @property
    def line(self) -> int:
        """The marked line, counted from 1."""
        return self.lines[0]

    @property
    def lines(self) -> list[int]:
        """All marked lines: each of them shows how the ranks parted."""
        lines = enumerate(self.source.splitlines(), 1)
        return [number for number, line in lines if line.endswith(MARK)]


FAULTS = {
    "method": Fault(STOPPER, "collective-under-local-condition"),
    "callback": Fault(HANDLED, "exception-swallowed"),
    "expression": Fault(EXPRESSION, "collective-under-local-condition"),
    "comprehension": Fault(COMPREHENSION, "collective-under-local-condition"),
    "generator": Fault(FILTERED, "collective-under-local-condition"),
    "collectives of DDP alone": Fault(DDP_ALONE, "collective-under-local-condition"),
    "loop until a loss is small": Fault(UNTIL_GOOD, "collective-under-local-condition", (0, 1)),
    "file": Fault(MODULE, "collective-under-rank-condition"),
    "registered callback": Fault(REGISTERED, "collective-under-rank-condition", ranks=(0, 1)),
    "class chosen before": Fault(CHOSEN, "collective-under-rank-condition", ranks=(0, 1)),
    "batches of episodes": Fault(EPISODES, "uneven-iterations", ranks=(0, 1)),
    "function cut short": Fault(CUT_SHORT, "exception-swallowed", ranks=(0, 1)),
    "function called on either way": Fault(EITHER_WAY, "uneven-iterations", ranks=(0, 1)),
    "iterator that skips": Fault(SKIPS_BROKEN, "exception-swallowed"),
}


def _parted(finding: Finding) -> int | None:
    places = [fact.place for fact in finding.facts if fact.kind == "parted"]
    return places[0].line if places and places[0] is not None else None


@pytest.mark.parametrize("name", FAULTS)
def test_the_line_at_which_ranks_parted(ranks: Ranks, name: str, tmp_path: Path) -> None:
    session, fault = ranks.session(2), FAULTS[name]
    source = fault.source.replace(MARK, "")
    if name == "file":
        (tmp_path / "engine_of_a_trainer.py").write_text(source)
        source = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n"
        source += "import engine_of_a_trainer\nengine_of_a_trainer.main()\n"
    finding = ddt.diagnose(session.run(source, trace=True)).findings[0]
    assert finding.symptom == "D.2.1", str(finding)
    assert (finding.cause, finding.ranks) == (fault.cause, list(fault.ranks)), str(finding)
    assert _parted(finding) in fault.lines, str(finding)


def test_the_line_that_made_gloo_abort_a_rank(ranks: Ranks) -> None:
    """DDP's own collectives of a process that died are not known."""
    fault = Fault(TWO_MODELS, "collective-under-local-condition")
    run = ranks.session(2).run(fault.source.replace(MARK, ""), trace=True)
    assert "died" in {report.state for report in run.snapshot.ranks}
    finding = ddt.diagnose(run).findings[0]
    assert (finding.cause, _parted(finding)) == (fault.cause, fault.line), str(finding)


def test_a_collective_that_fitted_before_an_error_although_ranks_were_out_of_step(
    ranks: Ranks,
) -> None:
    fault = Fault(ONE_BARRIER_FOR_ANOTHER, "collective-under-rank-condition", ranks=(0, 1))
    run = ranks.session(2).run(fault.source.replace(MARK, ""))
    (finding,) = ddt.diagnose(run).findings
    assert (finding.kind, finding.cause) == ("out-of-step", fault.cause), str(finding)
    lines = [fact.place.line for fact in finding.facts if fact.place is not None]
    assert fault.line in lines, str(finding)


def test_an_error_after_a_collective_that_each_rank_has_at_its_own_line(ranks: Ranks) -> None:
    (finding,) = ddt.diagnose(ranks.session(2).run(EACH_AT_ITS_LINE, trace=True)).findings
    assert (finding.kind, finding.ranks) == ("raised", [1]), str(finding)


def test_ranks_at_one_line_of_a_helper_that_came_there_from_different_lines(ranks: Ranks) -> None:
    fault = Fault(ONE_HELPER, "collective-under-local-condition")
    run = ranks.session(2).run(fault.source.replace(MARK, ""), trace=True)
    finding = ddt.diagnose(run).findings[0]
    assert (finding.cause, _parted(finding)) == (fault.cause, fault.line), str(finding)
    entered = [fact.place.line for fact in finding.facts if fact.kind == "entered" and fact.place]
    assert sorted(entered) == [18, 21], str(finding)


@pytest.mark.parametrize("name", CYCLES)
def test_the_cause_of_a_cycle_of_waits(ranks: Ranks, name: str) -> None:
    source, cause = CYCLES[name]
    lines = [n for n, line in enumerate(source.splitlines(), 1) if line.endswith(MARK)]
    run = ranks.session(2).run(source.replace(MARK, ""), trace=True)
    finding = ddt.diagnose(run).findings[0]
    assert (finding.kind, finding.cause) == ("wait-cycle", cause), str(finding)
    assert [_parted(finding)] == (lines or [None]), str(finding)


def test_the_line_that_stored_what_the_condition_looks_at(ranks: Ranks) -> None:
    finding = ddt.diagnose(ranks.session(2).run(STOPPED, trace=True)).findings[0]
    assert _parted(finding) == 22, str(finding)
    stored = [
        (fact.place.line, fact.ranks)
        for fact in finding.facts
        if fact.kind == "stored-last" and fact.place is not None
    ]
    assert stored == [(11, (0,)), (15, (1,))], str(finding)


def test_partings_before_collectives_that_all_enter_are_harmless(ranks: Ranks) -> None:
    run = ranks.session(2).run(HEALTHY, trace=True)
    report = ddt.diagnose(run)
    assert report.ok, str(report)
    assert not report.hints, str(report)


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="branches are always observed")
def test_a_run_observes_branches_only_if_it_is_asked_to(ranks: Ranks) -> None:
    session = ranks.session(2)
    explained = "if rank == 0:\n    dist.barrier()\n"
    run = session.run(explained)
    assert run.snapshot.branches == ()
    assert not ddt.diagnose(run).notes
    alike = "dist.all_reduce(torch.ones(2 + rank))"
    assert not ddt.diagnose(session.run(alike)).ok  # no other way would explain the shapes
    for unexplained in (UNEXPLAINED, SUPPOSED):
        run = session.run(unexplained)
        assert run.snapshot.branches == ()
        assert any("which way" in note for note in ddt.diagnose(run).notes)
        assert len(session.run(explained).snapshot.branches) == 2
    assert session.run(explained).snapshot.branches == ()


#: The condition may come out differently, as far as the source shows.
SUPPOSED = """
def save_best(losses):
    for loss in losses:
        if loss < 1:
            dist.barrier()

save_best([2.0, 0.5 + rank])
"""


#: The source shows that the rounds of a loop differ, but not why.
UNEXPLAINED = """
class Trainer:
    def __init__(self, rank):
        self.losses = {0: [3.0, 2.0, 1.0], 1: [3.0, 2.0, 5.0]}[rank]

    def rounds(self):
        best = float("inf")
        for loss in self.losses:
            if loss > best:
                return
            best = loss
            yield loss

    def fit(self):
        for loss in self.rounds():
            dist.all_reduce(torch.ones(1))

Trainer(rank).fit()
"""


def test_the_users_own_trace_function_is_left_alone(ranks: Ranks) -> None:
    if sys.version_info >= (3, 12):
        pytest.skip("sys.monitoring does not touch it")
    session = ranks.session(2)
    own = "import sys\ndef mine(*_): return None\nsys.settrace(mine)\n"
    assert session.run(own).ok
    run = session.run(
        "kept = sys.gettrace() is mine\nif rank == 0:\n    dist.barrier()", trace=True
    )
    assert all(one.unobserved for one in run.snapshot.branches)
    assert session.pull("kept", rank=1) is True
    session.run("sys.settrace(None)")
