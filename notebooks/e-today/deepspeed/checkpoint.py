"""ZeRO on two ranks: rank 0 saves the model."""

import os
import tempfile

import deepspeed
import torch

deepspeed.init_distributed("gloo")
rank = int(os.environ["RANK"])
config = {
    "train_micro_batch_size_per_gpu": 4,
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
if rank == 0:
    engine.save_checkpoint(tempfile.mkdtemp())
