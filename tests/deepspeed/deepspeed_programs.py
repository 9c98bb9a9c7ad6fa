"""Training programs of DeepSpeed for two CPU ranks, with places for a fault."""

from __future__ import annotations

#: Format it with the stage and with the steps of accumulation.
ZERO = """
import os
import torch
import deepspeed

CONFIG = {{
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": {accumulation},
    "optimizer": {{"type": "Adam", "params": {{"lr": 1e-3, "torch_adam": True}}}},
    "zero_optimization": {{"stage": {stage}}},
}}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.second = torch.nn.Linear(16, 16)
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.last(torch.relu(self.second(torch.relu(self.first(x)))))


def main():
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    config = dict(CONFIG)
    # before the engine
    model = Net()
    engine, optimizer, _, _ = deepspeed.initialize(
        model=model, model_parameters=model.parameters(), config=config
    )
    generator = torch.Generator().manual_seed(rank)
    steps = 4
    # before the loop
    for step in range(steps):
        x = torch.randn(4, 16, generator=generator)
        y = x.sum(1, keepdim=True)
        # in a step
        loss = torch.nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        # before the step
        engine.step()
    # at the end
    print("rank", rank, "ended")


main()
"""

PIPELINE = """
import os
import torch
import deepspeed
from deepspeed.pipe import PipelineModule

CONFIG = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
}


def samples(count):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        x = torch.randn(4, 16, generator=generator)
        yield x, x.sum(1, keepdim=True)


def main():
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
    net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
    engine, _, _, _ = deepspeed.initialize(
        model=net, model_parameters=[p for p in net.parameters() if p.requires_grad], config=CONFIG
    )
    steps = 3
    # before the loop
    data = samples(100)
    for step in range(steps):
        # in a step
        loss = engine.train_batch(data_iter=data)
    # at the end
    print("rank", rank, "ended")


main()
"""

MOE = """
import os
import torch
import deepspeed
from deepspeed.moe.layer import MoE
from deepspeed.moe.utils import split_params_into_different_moe_groups_for_optimizer

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 16)
        self.moe = MoE(hidden_size=16, expert=torch.nn.Linear(16, 16), num_experts=2, ep_size=2)
        self.last = torch.nn.Linear(16, 1)

    def forward(self, x):
        x, _, _ = self.moe(torch.relu(self.first(x)))
        return self.last(x)


def main():
    torch.manual_seed(0)
    deepspeed.init_distributed("gloo")
    rank = int(os.environ["RANK"])
    model = Net()
    groups = {"params": list(model.parameters()), "name": "parameters"}
    engine, *_ = deepspeed.initialize(
        model=model,
        model_parameters=split_params_into_different_moe_groups_for_optimizer(groups),
        config=CONFIG,
    )
    generator = torch.Generator().manual_seed(rank)
    for step in range(3):
        count = 16
        # in a step
        x = torch.randn(count, 16, generator=generator)
        engine.backward(engine(x).pow(2).mean())
        engine.step()


main()
"""


def zero(stage: int, accumulation: int = 1) -> str:
    """Return a program that trains with this stage of ZeRO."""
    return ZERO.format(stage=stage, accumulation=accumulation)
