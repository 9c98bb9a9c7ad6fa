"""A message is received as another data type."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="message-dtype-differs",
    title="a message is received as another data type",
    symptoms=("D.2.4", "D.1.1"),
    n=2,
    sees="""
        Received labels are numbers of ten digits, or received activations are tiny. The shape is
        right, and no rank raised.
    """,
    why="""
        A message carries bytes and no type. If the receiver prepared a float tensor for what was
        sent as integers of the same width, it reads their bit patterns as floats. `torch.empty` and
        `torch.zeros` make floats unless they get a dtype.
    """,
    broken="""
        labels = torch.tensor([3, 1, 2, 0], dtype=torch.int32)
        if rank == 0:
            dist.send(labels, dst=1)
        else:
            received = torch.zeros(4)
            dist.recv(received, src=0)
            print("labels", received.tolist())
    """,
    fixed="""
        labels = torch.tensor([3, 1, 2, 0], dtype=torch.int32)
        if rank == 0:
            dist.send(labels, dst=1)
        else:
            received = torch.zeros(4, dtype=torch.int32)
            dist.recv(received, src=0)
            print("labels", received.tolist())
    """,
    proof="assert rank == 0 or received.tolist() == [3, 1, 2, 0]",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 6}),
    fixes=(Advice("fix distributed API usage", "receive into a tensor of the dtype that is sent"),),
    cluster="""
        Neither gloo nor NCCL reports it. It occurs with mixed precision: a stage sends bfloat16 and
        the next one has prepared float16, and the loss jumps without a message.
    """,
    apart={"message-size-differs": "the number of bytes differs"},
    references=(
        Reference(
            "torch.distributed: point-to-point communication",
            "https://docs.pytorch.org/docs/stable/distributed.html#point-to-point-communication",
        ),
    ),
)
