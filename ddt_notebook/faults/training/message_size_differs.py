"""A message is received into a tensor of another size."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="message-size-differs",
    title="a message is received into a tensor of another size",
    symptoms=("D.2.4", "D.1.1"),
    n=2,
    sees="""
        The received tensor ends in zeros or in whatever was in memory. If the tensor is too small
        instead of too big, the receiving process is ended by the library.
    """,
    why="""
        `recv` does not learn from the sender how much will come: it fills the tensor that it was
        given. A last micro-batch that is shorter than the others fills only a part of it, and
        nothing says so.
    """,
    broken="""
        tokens = torch.arange(1.0, 21.0)
        received = []
        for start in range(0, 20, 8):
            if rank == 0:
                dist.send(tokens[start : start + 8], dst=1)
            else:
                micro_batch = torch.zeros(8)
                dist.recv(micro_batch, src=0)
                received.append(micro_batch)
        if rank == 1:
            print("mean of all tokens", torch.cat(received).mean().item())
    """,
    fixed="""
        tokens = torch.arange(1.0, 21.0)
        received = []
        for start in range(0, 20, 8):
            if rank == 0:
                piece = tokens[start : start + 8]
                dist.send(torch.tensor([len(piece)]), dst=1)
                dist.send(piece, dst=1)
            else:
                size = torch.zeros(1, dtype=torch.int64)
                dist.recv(size, src=0)
                micro_batch = torch.zeros(int(size))
                dist.recv(micro_batch, src=0)
                received.append(micro_batch)
        if rank == 1:
            print("mean of all tokens", torch.cat(received).mean().item())
    """,
    proof="assert rank == 0 or torch.equal(torch.cat(received), tokens)",
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 8}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "receive into a tensor of the size that is sent; send the size first if it varies",
        ),
    ),
    gloo=("op.preamble.length <= op.nbytes",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        NCCL transfers as much as both sides agree on and may hang over the rest. Pipelines show it
        at the end of an epoch, or when the length of sequences varies.
    """,
    apart={"shape-differs": "a collective and not a message has two sizes"},
    references=(
        Reference(
            "torch.distributed: recv fills the tensor that it is given",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.recv",
        ),
    ),
)
