"""A result is read before its asynchronous collective has been waited for."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="result-read-before-wait",
    title="a result is read before it was waited for",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        The reduced value is sometimes right and sometimes the rank's own: it depends on the size of
        the tensor, on the machine and on its load. In the debugger it is always right.
    """,
    why="""
        With `async_op=True` the call returns at once and the exchange continues in the background.
        Until `wait()` on the handle returns, the tensor may hold the old value, the new one, or
        half of each.
    """,
    broken="""
        model = torch.nn.Linear(512, 512)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.full((4, 512), float(rank + 1))).mean()
        loss.backward()
        grad = model.weight.grad
        handle = dist.all_reduce(grad, async_op=True)
        norm = (grad / world_size).norm()
        handle.wait()
        print("gradient norm", norm.item())
    """,
    fixed="""
        model = torch.nn.Linear(512, 512)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = model(torch.full((4, 512), float(rank + 1))).mean()
        loss.backward()
        grad = model.weight.grad
        handle = dist.all_reduce(grad, async_op=True)
        handle.wait()
        norm = (grad / world_size).norm()
        print("gradient norm", norm.item())
    """,
    proof="""
        norms = [None] * world_size
        dist.all_gather_object(norms, norm.item())
        assert len(set(norms)) == 1
    """,
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call wait() on the handle of {op} before the line that reads the tensor",
        ),
        Advice(
            "fix behavior logic",
            "move work that does not need the result between {op} and wait(), and nothing else",
        ),
    ),
    cluster="""
        Training is a little worse than it should be, and not reproducible. On GPUs `wait()` orders
        the streams without stopping the CPU; leaving it out lets kernels read a tensor that NCCL
        is still writing.
    """,
    apart={"handle-not-waited": "some ranks never take part"},
    references=(
        Reference(
            "torch.distributed: synchronous and asynchronous collective operations",
            "https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations",
        ),
        Reference(
            "What wait() on a handle guarantees",
            "https://github.com/pytorch/pytorch/issues/42247",
        ),
    ),
)
