"""A collective with tensors of another shape on one rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="shape-differs",
    title="tensors of different shape in one collective",
    symptoms=("D.1.1", "D.2.4"),
    views=("stacks", "collectives"),
    n=2,
    sees="""
        One process dies without a Python exception and the others lose the connection, in a line
        that reads the same on every rank. With other sizes the same line hangs, or it ends and
        the numbers belong to no rank.
    """,
    why="""
        The libraries do not compare shapes: each rank sends as many bytes as its own tensor has.
        Equal sizes with another layout pair the wrong elements; unequal sizes leave the rest of
        a tensor as it was, overrun a buffer or wait for bytes that do not come.
    """,
    broken="""
        torch.manual_seed(0)
        body = torch.nn.Linear(4, 3 if rank == 0 else 2, bias=False)
        head = torch.nn.Linear(body.out_features, 1, bias=False)
        model = torch.nn.Sequential(body, torch.nn.ReLU(), head)
        model(torch.ones(8, 4)).sum().backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        print(flat / world_size)
    """,
    fixed="""
        torch.manual_seed(0)
        body = torch.nn.Linear(4, 3, bias=False)
        head = torch.nn.Linear(body.out_features, 1, bias=False)
        model = torch.nn.Sequential(body, torch.nn.ReLU(), head)
        model(torch.ones(8, 4)).sum().backward()
        flat = torch.cat([p.grad.flatten() for p in model.parameters()])
        mine = flat.clone()
        dist.all_reduce(flat, op=dist.ReduceOp.SUM)
        print(flat / world_size)
    """,
    proof="assert torch.allclose(flat, mine * world_size)",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give {op} tensors of one shape on every rank: pad, drop the last batch, or exchange "
            "the sizes first",
        ),
        Advice("fix model construction", "build the same model, in the same order, on every rank"),
        Advice(
            "fix behavior logic",
            "go through the tensors in one order on every rank: sort their names, use no sets",
        ),
    ),
    gloo=("op.preamble.length <= op.nbytes", "Received data size doesn't match expected size"),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        NCCL may hang or may end with wrong elements, depending on how many transfers the sizes
        need. The usual place is the last batch of an epoch, or results per sample that are
        gathered without padding.
    """,
    apart={
        "dtype-differs": "the shapes agree and the element types do not",
        "models-differ": "DDP compares the models itself and raises",
    },
    references=(
        Reference(
            "NCCL: all_reduce with a shape mismatch hangs in some cases and not in others",
            "https://github.com/NVIDIA/nccl/issues/1417",
        ),
        Reference(
            "What gather demands of the shapes",
            "https://github.com/pytorch/pytorch/issues/103305",
        ),
    ),
)
