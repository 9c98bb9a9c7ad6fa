"""Six steps; rank 0 saves each of them. Host A is switched off after the fourth step."""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

host = os.environ["HOST"]
last = Path(os.environ["CHECKPOINTS"]) / "last.pt"
dist.init_process_group("gloo")
rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])

torch.manual_seed(0)
network = nn.Linear(8, 1)
first = torch.tensor(0)
if rank == 0 and last.exists():
    state = torch.load(last)
    network.load_state_dict(state["model"])
    first = state["step"]
model = DDP(network)
dist.broadcast(first, 0)
place = f"host {host} is rank {rank} of {dist.get_world_size()}"
print(f"restart {restarts}: {place}, begins at step {first}", flush=True)

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(first), 6):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).square().mean().backward()
    optimizer.step()
    if rank == 0:
        torch.save({"model": network.state_dict(), "step": torch.tensor(step + 1)}, last)
    dist.barrier()
    if host == "A" and step == 3:  # the launcher and this rank, as when the power fails
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
print(f"host {host} has ended", flush=True)
