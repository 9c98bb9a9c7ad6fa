"""What ranks print is recorded unless the user's code prevents that."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ddt_notebook as ddt

CELL = """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from ddt_notebook.rank.probes import shown

data = TensorDataset(torch.randn(16, 4))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(4, 1))
model(torch.randn(4, 4)).sum().backward()
def fail(*_):
    raise ValueError("odd")
shown.ShownRecord.writes = fail
with torch.no_grad():
    loss = sum(model(x).mean().item() for (x,) in loader)
print("loss", loss)
"""


def test_why_printed_values_are_not_recorded_is_noted() -> None:
    with ddt.Session(2) as session:
        run = session.run(CELL)
        assert run.ok
        (note,) = run.snapshot.notes
        assert note.endswith("ValueError: odd")


#: An evaluation on the rank's own rows, then one of another kind, which exchanges its counts.
TWO_EVALUATIONS = """
data = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
model = DDP(torch.nn.Linear(4, 1))
model(torch.randn(4, 4)).sum().backward()
mean = torch.zeros(())
with torch.no_grad():
    for at in range(0, 16, 4):
        batch = data[at + 2 * rank : at + 2 * rank + 2]
        mean += model(batch).square().mean() / 4
{first}
if rank == 0:
    print(f"validation loss: {{mean.item():.4f}}")
right = torch.zeros((), dtype=torch.long)
with torch.no_grad():
    for at in range(rank, 16, world_size):
        right += (model(data[at : at + 1]).item() > 0)
dist.all_reduce(right)
{last}
if rank == 0:
    print("right", right.item())
"""


@pytest.mark.parametrize(
    ("first", "last", "found"),
    [
        ("", "", ["metric-not-reduced"]),
        ("dist.all_reduce(mean, op=dist.ReduceOp.AVG)", "", []),
        ("", "total = 4 * mean\ndist.all_reduce(total)\nif rank == 0: print(total.item() / 8)", []),
    ],
    ids=["never", "before", "the-sum-later"],
)
def test_what_another_evaluation_exchanges_is_not_this_ones_result(
    two_ranks: ddt.Session, first: str, last: str, found: list[str]
) -> None:
    run = two_ranks.run(TWO_EVALUATIONS.format(first=first, last=last))
    assert run.ok
    report = ddt.diagnose(run)
    assert [one.cause for one in report.findings] == found


@pytest.fixture(scope="module")
def two_ranks() -> Iterator[ddt.Session]:
    with ddt.Session(2) as session:
        yield session
