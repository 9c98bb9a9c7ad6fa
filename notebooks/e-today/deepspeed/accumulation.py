"""ZeRO on two ranks: the steps of accumulation follow from the memory of each rank."""

import os

import deepspeed
import torch

deepspeed.init_distributed("gloo")
rank = int(os.environ["RANK"])
memory_gb = 80 if rank == 0 else 40  # one GPU is smaller
config = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 80 // memory_gb,
    "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}
torch.manual_seed(0)
model = torch.nn.Linear(16, 1)
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)[0]
for _ in range(4):
    loss = engine(torch.randn(4, 16)).pow(2).mean()
    engine.backward(loss)
    engine.step()
