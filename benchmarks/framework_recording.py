"""Measures the cost of the recording in a step of each framework's small example, in two ways.

The first is the processor time of a step with recording and without it, by turns within one cell,
in random order, with a second part without recording as the control. The second is the time inside
the recorder, without that of the recorded functions, of a step's processor time.
It is measured by the clock: to ask for the processor time takes 5 µs on some machines, half as long
as a record. The measuring itself takes time, and a part of it falls into the recorder's: as many
steps with a function that records nothing in place of each of the recorder's tell how much, and
that is taken off. The note names it.

Horovod's own wait asks one function of its library without a pause whether an operation is over.
The recorder waits in its place, asks the same function and sleeps in between. That takes less
processor time than Horovod's wait, as the turns show. So the second figure leaves this wait out,
and the note shows the time with it.

Run it where a framework is installed, with the names of programs or without: ``.venv-deepspeed/bin/
python -m benchmarks.framework_recording``. Programs whose framework is missing are left out.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ddt_notebook.host.session import Session

from .common import Figure, run_checked

_TURNS, _CELLS = 20, 5
#: A cell has so many times the steps of a turn.
_TURNS_OF_A_CELL = 4


@dataclass(frozen=True)
class Program:
    """A small example.

    Attributes
    ----------
    package
        It is imported first; the program is left out where it is missing.
    setup
        A cell that defines ``train(steps)``.
    steps
        How many steps a turn has.
    owners
        An expression: classes and modules, beside those of torch, whose functions are recorded.
    framework
        What the session prepares its ranks for.
    simulate
        The devices that the session simulates.
    barrier
        Where the ranks meet before a turn.
    waits
        An expression: a class of the recorder and the name of its method that waits for other ranks
        in place of the framework.
    """

    package: str
    setup: str
    steps: int = 50
    owners: str = "()"
    framework: str = ""
    ranks: int = 2
    simulate: str = ""
    barrier: str = "dist.barrier()"
    waits: str = "None, None"


#: The networks that the programs train: that of the frameworks' examples for MNIST and CIFAR, two
#: convolutions and two layers with 64 images each step, and one whose steps do next to nothing.
_NETWORKS = {
    "": """
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 10, 5), torch.nn.MaxPool2d(2), torch.nn.ReLU(),
    torch.nn.Conv2d(10, 20, 5), torch.nn.MaxPool2d(2), torch.nn.ReLU(),
    torch.nn.Flatten(), torch.nn.Linear(320, 50), torch.nn.ReLU(), torch.nn.Linear(50, 10),
)
x = torch.randn(64, 1, 28, 28)
""",
    ", tiny network": """
network = torch.nn.Sequential(
    torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(),
    torch.nn.Linear(16, 1),
)
x = torch.randn(4, 16)
""",
}
_DEEPSPEED = """
import deepspeed
deepspeed.init_distributed("gloo")
torch.manual_seed(0)
torch.set_num_threads(1)
config = {
    "train_micro_batch_size_per_gpu": MICRO,
    "steps_per_print": 1 << 30,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}
"""
_ZERO = (
    _DEEPSPEED.replace("MICRO", "len(x)")
    + """
config["zero_optimization"] = {"stage": STAGE}
engine, *_ = deepspeed.initialize(
    model=network, model_parameters=network.parameters(), config=config
)

def train(steps):
    for _ in range(steps):
        engine.backward(engine(x).square().mean())
        engine.step()
"""
)
_PIPELINE = (
    _DEEPSPEED.replace("MICRO", "4")
    + """
from deepspeed.pipe import PipelineModule

config["train_batch_size"] = 8
layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
engine, *_ = deepspeed.initialize(
    model=net, model_parameters=list(net.parameters()), config=config
)
x = torch.randn(4, 16), torch.randn(4, 1)

def train(steps):
    for _ in range(steps):
        engine.train_batch(data_iter=iter([x, x]))
"""
)
#: After Megatron-core's ``run_simple_mcore_train_loop.py``, with the parallel sizes of the name.
_MEGATRON = """
import os, warnings
warnings.simplefilter("ignore")
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

TENSOR, PIPELINE = SIZES
torch.set_num_threads(1)
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
parallel_state.initialize_model_parallel(TENSOR, PIPELINE)
tensor_parallel.model_parallel_cuda_manual_seed(1, force_reset_rng=True)
config = TransformerConfig(
    num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True,
    pipeline_dtype=torch.float32, tensor_model_parallel_size=TENSOR,
    pipeline_model_parallel_size=PIPELINE, hidden_dropout=0.0, attention_dropout=0.0,
)
model = GPTModel(
    config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=64,
    max_sequence_length=16, pre_process=parallel_state.is_pipeline_first_stage(),
    post_process=parallel_state.is_pipeline_last_stage(),
).cuda()
model = DistributedDataParallel(config, DistributedDataParallelConfig(), model)
optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3), [model])
tokens = torch.randint(64, (2, 17)).cuda()
positions = torch.arange(16, device="cuda").expand(2, -1)

def forward_step(iterator, model):
    output = model(tokens[:, :-1], positions, None, labels=tokens[:, 1:])
    return output, lambda output: (output.mean(), {"loss": output.detach().mean()})

def train(steps):
    run_step = get_forward_backward_func()
    for _ in range(steps):
        optimizer.zero_grad()
        model.zero_grad_buffer()
        run_step(
            forward_step_func=forward_step, data_iterator=None, model=model, num_microbatches=2,
            seq_length=16, micro_batch_size=2, forward_only=False,
        )
        finalize_model_grads([model])
        optimizer.step()
"""
_OF_MEGATRON = (
    "[__import__(f'megatron.core.{name}', fromlist=['']) for name in "
    "('parallel_state', 'pipeline_parallel.schedules', 'tensor_parallel.random')]"
)
_ACCELERATE = """
from accelerate import Accelerator

torch.manual_seed(0)
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
net, optimizer = accelerator.prepare(network, torch.optim.AdamW(network.parameters(), lr=1e-3))

def train(steps):
    for _ in range(steps):
        with accelerator.accumulate(net):
            accelerator.backward(net(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()
"""
_TRAINER = """
import tempfile

from transformers import Trainer, TrainingArguments

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = network

    def forward(self, x):
        return {"loss": self.layers(x).square().mean()}

torch.manual_seed(0)
torch.set_num_threads(1)
rows = [{"x": torch.randn_like(x[0])} for _ in range(16 * len(x))]
trainer = Trainer(
    model=Net(),
    args=TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, report_to=[], save_strategy="no",
        logging_strategy="no", disable_tqdm=True, per_device_train_batch_size=len(x), max_steps=1,
    ),
    train_dataset=rows,
)

def train(steps):
    trainer.args.max_steps = steps
    trainer.train()
"""
_HOROVOD = """
import horovod.torch as hvd

hvd.init()
torch.manual_seed(0)
torch.set_num_threads(1)
optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
hvd.broadcast_parameters(network.state_dict(), root_rank=0)

def train(steps):
    for _ in range(steps):
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()
"""
_ENGINES = "(deepspeed.runtime.engine.DeepSpeedEngine,)"
PROGRAMS = {
    **{
        f"DeepSpeed ZeRO-{stage}{size}": Program(
            "deepspeed", network + _ZERO.replace("STAGE", str(stage)), owners=_ENGINES
        )
        for stage in (1, 2, 3)
        for size, network in _NETWORKS.items()
    },
    "DeepSpeed pipeline": Program("deepspeed", _PIPELINE, owners=_ENGINES),
    **{
        name + size: program
        for size, network in _NETWORKS.items()
        for name, program in {
            "Horovod": Program(
                "horovod",
                network + _HOROVOD,
                owners="(__import__('horovod.torch').torch.mpi_ops.mpi_lib,)",
                framework="horovod",
                barrier="hvd.barrier()",
                waits=(
                    "__import__('ddt_notebook.rank.frameworks.horovod', fromlist=['']).Horovod, "
                    "'_taken'"
                ),
            ),
            "Accelerate": Program("accelerate", network + _ACCELERATE),
            "transformers' Trainer": Program("transformers", network + _TRAINER, steps=30),
        }.items()
    },
    **{
        f"Megatron-core, {axis} parallel": Program(
            "megatron",
            _MEGATRON.replace("SIZES", sizes),
            steps=10,
            owners=_OF_MEGATRON,
            simulate="cuda:2",
        )
        for axis, sizes in (("tensor", "2, 1"), ("pipeline", "1, 2"), ("data", "1, 1"))
    },
}

#: Puts a switch before each of the recorder's functions: a library may keep a reference to it. Its
#: frames count as those of torch, or they would be taken for the user's lines.
_SWITCHES = """
import random, sys, time
from torch.distributed import distributed_c10d
from torch.optim import optimizer as optimizers

def is_recorder(function):
    code = getattr(function, "__code__", None)
    return (
        hasattr(function, "__wrapped__")
        and code is not None
        and "/ddt_notebook/rank/" in code.co_filename
    )

class State:
    kind, timed = "on", False
    within = []  # of each function of the recorder that runs: the time that is not the recorder's
    spent, waited = [], []

text = '''
from functools import wraps

def outer(function, state, clock):
    @wraps(function)  # simulated GPUs ask for the signature
    def call(*args, **kwargs):
        if not state.timed:
            return function(*args, **kwargs)
        state.within.append(0.0)
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            state.spent.append(clock() - began - state.within.pop())
    return call

def inner(function, state, clock):
    @wraps(function)
    def call(*args, **kwargs):
        if not state.within:
            return function(*args, **kwargs)
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            state.within[-1] += clock() - began
    return call

def waiting(function, state, clock):
    @wraps(function)
    def call(*args, **kwargs):
        if not state.within:
            return function(*args, **kwargs)
        state.within.append(0.0)
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            whole = clock() - began
            state.waited.append(whole - state.within.pop())
            state.within[-1] += whole
    return call

def nothing(function):
    @wraps(function)
    def call(*args, **kwargs):
        return function(*args, **kwargs)
    return call

def switched(kinds, state):
    def call(*args, **kwargs):
        return kinds[state.kind](*args, **kwargs)
    return call
'''
exec(compile(text, distributed_c10d.__file__, "exec"))

owners = [dist, distributed_c10d, dist.Work, torch.Tensor, torch.nn.Module, DDP, *OWNERS]
switches, not_timed = {}, set()
for owner in owners:
    for name, function in list(vars(owner).items()):
        if not is_recorder(function):
            continue
        if function not in switches:
            plain = function.__wrapped__
            cells = [c for c in function.__closure__ or () if c.cell_contents is plain]
            recorded = inner(plain, State, time.perf_counter)
            for cell in cells:
                cell.cell_contents = recorded
            kinds = {"on": function, "off": plain, "empty": plain}
            if cells:
                kinds["on"] = outer(function, State, time.perf_counter)
                kinds["empty"] = outer(nothing(recorded), State, time.perf_counter)
            else:
                not_timed.add(name)
            switches[function] = switched(kinds, State)
        setattr(owner, name, switches[function])

class Clock:
    sleep = staticmethod(inner(time.sleep, State, time.perf_counter))

    def __getattr__(self, name):
        return getattr(time, name)

waiter, name = WAITS
if waiter is not None:
    setattr(waiter, name, waiting(getattr(waiter, name), State, time.perf_counter))
    sys.modules[waiter.__module__].time = Clock()
hooks = [optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks]
kept = [
    {
        "on": {key: outer(hook, State, time.perf_counter) for key, hook in now.items()},
        "off": {},
        "empty": {key: outer(lambda *_: None, State, time.perf_counter) for key in now},
    }
    for now in hooks
]

def switch(kind):
    State.kind = kind
    for now, kinds in zip(hooks, kept):
        now.clear()
        now.update(kinds[kind])

switch("on")
"""
_BY_TURNS = """
train(5)

def step_s(steps):
    BARRIER
    began = time.process_time()
    train(steps)
    return (time.process_time() - began) / steps

taken = {"on": [], "off": [], "control": []}
shuffle = random.Random(0).shuffle
for _ in range(TURNS):
    order = list(taken)
    shuffle(order)
    for kind in order:
        switch("on" if kind == "on" else "off")
        taken[kind].append(step_s(STEPS))
switch("on")
"""
#: A call that takes longer was interrupted by other processes: none works that long.
_SPENT = """
def spent_s():
    State.spent.clear()
    State.waited.clear()
    State.timed = True
    began = time.process_time()
    train(CELL)
    taken_s = time.process_time() - began
    State.timed = False
    return taken_s, *(sum(s for s in each if s < 1e-3) for each in (State.spent, State.waited))

switch("empty")
_, measuring_s, _ = spent_s()
switch("on")
taken_s, recorder_s, waited_s = spent_s()
recorder_s -= measuring_s
share = 100 * recorder_s / (taken_s - measuring_s)
each_us = [1e6 * one / CELL for one in (recorder_s, recorder_s + waited_s, measuring_s)]
left_out = sorted(not_timed)
"""


def measure(names: Sequence[str] = ()) -> Iterator[Figure]:
    for name in names or PROGRAMS:
        if find_spec(PROGRAMS[name].package) is not None:
            yield from _figures(name, PROGRAMS[name])


def _figures(name: str, program: Program) -> Iterator[Figure]:
    def fill(source: str) -> str:
        for word, value in (
            ("BARRIER", program.barrier), ("OWNERS", program.owners),
            ("WAITS", program.waits), ("TURNS", str(_TURNS)), ("STEPS", str(program.steps)),
            ("CELL", str(_TURNS_OF_A_CELL * program.steps)),
        ):  # fmt: skip
            source = source.replace(word, value)
        return source

    with Session(
        program.ranks, framework=program.framework or None, simulate=program.simulate or None
    ) as session:
        run_checked(session, f"import {program.package}")
        for source in (_SWITCHES, program.setup, _BY_TURNS):
            run_checked(session, fill(source))
        taken: Any = session.pull("taken", rank=0)
        shares: list[Any] = []
        each_us: list[Any] = []
        for _ in range(_CELLS):
            run_checked(session, fill(_SPENT))
            shares.append(session.pull("share", rank=0))
            each_us.append(session.pull("each_us", rank=0))
        missed: Any = session.pull("left_out", rank=0)
    off = list(map(statistics.fmean, zip(taken["off"], taken["control"], strict=True)))
    costs = [100 * (on / without - 1) for on, without in zip(taken["on"], off, strict=True)]
    errors = [
        100 * (one / two - 1) for one, two in zip(taken["control"], taken["off"], strict=True)
    ]
    low, cost, high = statistics.quantiles(costs, n=4)
    note = (
        f"{1e3 * statistics.median(off):.2f} ms, {_TURNS} turns of {program.steps} steps, middle "
        f"half {low:+.1f} to {high:+.1f} %, control {statistics.median(errors):+.1f} %"
    )
    where = f"a step of {name}, {program.ranks} ranks"
    yield Figure(f"processor time of recording, by turns, {where}", cost, 2.0, "%", note=note)
    spent_us, waited_us, measuring_us = map(statistics.median, zip(*each_us, strict=True))
    note = f"{spent_us:.0f} µs without {measuring_us:.0f} µs for the measuring, "
    if waited_us > spent_us:
        note += f"with the wait in place of the framework's {waited_us:.0f} µs, "
    note += (
        f"{len(shares)} cells, {min(shares):.1f} to {max(shares):.1f} %, "
        f"{_TURNS_OF_A_CELL * program.steps} steps each"
    )
    if missed:
        note += f"; not timed: {', '.join(missed)}"
    share = statistics.median(shares)
    yield Figure(f"time in the recorder, {where}", share, 2.0, "%", note=note)


if __name__ == "__main__":
    for figure in measure(sys.argv[1:]):
        print(figure.row(), flush=True)
