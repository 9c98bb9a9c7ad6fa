"""Whether batches and rates of a program follow the number of ranks."""

from __future__ import annotations

import ast

import pytest

from ddt_notebook.model import Position
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.scaled_batches import (
    batch_may_be_shared,
    grows_with_ranks,
    loaders_share_a_batch,
)

SHARED = {
    "directly": "loader = DataLoader(data, batch_size=64 // dist.get_world_size())",
    "by position": "loader = torch.utils.data.DataLoader(data, int(64 / world_size))",
    "through settings": """
args = parser.parse_args()
args.batch_size = args.batch_size // args.world_size
loader = DataLoader(data, batch_size=args.batch_size)
""",
    "in a function that is called twice": """
def loader_of(data, batch_size):
    return DataLoader(data, batch_size)
share = config["batch"] // n
n = int(os.environ["WORLD_SIZE"])
train, test = loader_of(a, share), loader_of(b, batch_size=1)
""",
    "by a number under another name": """
def worker(per_node, args):
    args.batch_size = int(args.batch_size / per_node)
    return DataLoader(data, batch_size=args.batch_size)
args.size = int(os.environ["WORLD_SIZE"])
worker(args.size, args)
""",
    "by the number of GPUs": """
gpus = torch.cuda.device_count()
args.batch_size = int(args.batch_size / gpus)
loader = DataLoader(data, batch_size=args.batch_size)
""",
    "without a loader": "for x in data[rank].split(16 // world_size): train(x)",
    "by a batch sampler": "BatchSampler(sampler, batch // dist.get_world_size(), drop_last=True)",
    "fewer backward passes": """
accumulation //= world_size
while True:
    for micro in range(accumulation):
        loss(micro).backward()
    optimizer.step()
""",
    "fewer batches before a step": """
every = 8 // world_size
for step, x in enumerate(loader):
    loss(x).backward()
    if (step + 1) % every == 0:
        optimizer.step()
""",
}
NOT_SHARED = {
    "a batch for each rank": "loader = DataLoader(data, batch_size=args.batch_size)",
    "fewer steps, as large as before": """
steps = len(data) // (16 * world_size)
for step in range(steps):
    loss(step).backward()
    optimizer.step()
loader = DataLoader(data, batch_size=16)
""",
    "a mean of the loss": """
loader = DataLoader(data, batch_size=batch_size)
total = total / world_size
""",
    "workers only": "DataLoader(data, batch_size=16, num_workers=8 // world_size)",
    "a batch halved": "DataLoader(data, batch_size=args.batch_size // 2)",
    "a batch that grows": "DataLoader(data, batch_size=args.batch_size * world_size)",
}


def _program(source: str) -> Program:
    return Program([Document("cell[1]", source)], 2)


@pytest.mark.parametrize("name", SHARED)
def test_ranks_share_the_batch(name: str) -> None:
    assert batch_may_be_shared(_program(SHARED[name]))


@pytest.mark.parametrize("name", NOT_SHARED)
def test_each_rank_has_a_batch_of_its_own(name: str) -> None:
    assert not batch_may_be_shared(_program(NOT_SHARED[name]))


@pytest.mark.parametrize(
    ("source", "grows"),
    [
        ("base_lr = 0.1 * world_size", True),
        ("args.base_lr = args.base_lr * args.batch * dist.get_world_size() / 256", True),
        ("base_lr = 0.1; base_lr *= float(world_size)", True),
        ("base_lr = 0.1", False),
        ("base_lr = 0.1 * 2", False),
        ("base_lr = 0.1 / world_size", False),
    ],
)
def test_a_rate_grows_with_the_ranks(source: str, grows: bool) -> None:
    rate = ast.parse("args.base_lr", mode="eval").body
    assert grows_with_ranks(_program(source), rate) is grows


@pytest.mark.parametrize(
    ("source", "lines", "shared"),
    [
        ("loader = DataLoader(data, batch_size=64 // world_size)", [1], True),
        ("n = 64 // world_size\na = DataLoader(a, n)\nb = DataLoader(b, 64)", [2], True),
        ("n = 64 // world_size\na = DataLoader(a, n)\nb = DataLoader(b, 64)", [2, 3], False),
        ("n = 64 // world_size\na = DataLoader(a, n)\nb = DataLoader(b, 64)", [], False),
        ("loader = make(data, 64 // world_size)", [1], False),
    ],
)
def test_the_loaders_of_these_lines_share_a_batch(
    source: str, lines: list[int], shared: bool
) -> None:
    made = [Position(file="cell[1]", line=line, function="<module>") for line in lines]
    assert loaders_share_a_batch(_program(source), made) is shared
