"""Started by torchrun: forms the group and prints when it was ready."""

import time

import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print(time.monotonic(), flush=True)
dist.destroy_process_group()
