"""Horovod on two ranks: each averages its metrics in the order in which it computed them."""

import horovod.torch as hvd
import torch

hvd.init()
metrics = {"loss": 4.0, "accuracy": 0.5}
if hvd.rank() == 1:
    metrics = {"accuracy": 0.75, "loss": 2.0}  # this rank evaluates first
for name, value in metrics.items():
    metrics[name] = hvd.allreduce(torch.tensor(value), name=name).item()
print(metrics)
