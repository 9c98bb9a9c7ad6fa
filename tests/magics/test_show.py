"""The views that %ddt_show gives of ranks that hold objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from IPython.core.error import UsageError

from .conftest import Notebook

CELL = """%%ddt -o run
torch.manual_seed(0)
from torch.utils.data import DataLoader, TensorDataset
model = DDP(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1 + rank)
loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=4)
for (x,) in loader:
    model(x).sum().backward()
"""


@pytest.fixture
def ranks(notebook: Notebook) -> Iterator[Notebook]:
    notebook.run("%ddt_start -n 2 --hang-after 0.5")
    yield notebook
    notebook.run("%ddt_stop")


def test_what_the_ranks_hold(ranks: Notebook) -> None:
    assert "no rank holds a module" in repr(ranks.run("%ddt_show placement"))
    ranks.run(CELL)
    placement = repr(ranks.run("%ddt_show placement"))
    assert "model · Linear in DDP · ranks 0 and 1 · cpu · 40 B each" in placement
    assert "optimizer" not in repr(ranks.run("%ddt_show placement model"))
    assert "each got the same 8 samples of loader" in repr(ranks.run("%ddt_show partition loader"))
    assert "optimizer.lr[0]: 0.1 on rank 0, 1.1 on rank 1" in repr(ranks.run("%ddt_show parity"))
    with pytest.raises(UsageError, match="ddt_show: rank 0: there is no 'modle' on this rank"):
        ranks.run("%ddt_show placement modle")


def test_a_hang_that_is_held_is_not_disturbed(ranks: Notebook) -> None:
    shown = ranks.shown("%%ddt --freeze\nif rank == 0:\n    dist.barrier()")
    assert "hang" in shown
    with pytest.raises(UsageError, match="%ddt_release ends it"):
        ranks.run("%ddt_show placement")
    ranks.run("%ddt_release")
