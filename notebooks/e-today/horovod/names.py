"""Horovod on two ranks: rank 0 reads the settings and sends them to the others."""

import horovod.torch as hvd
import torch

hvd.init()
settings = {"epochs": 3, "lr": 0.1} if hvd.rank() == 0 else None  # from a file of rank 0
settings = hvd.broadcast_object(settings, root_rank=0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
