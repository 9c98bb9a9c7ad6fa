"""A collective refuses its arguments on one rank."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="collective-arguments",
    title="a collective refuses its arguments",
    symptoms=("D.1.1",),
    views=("stacks",),
    n=2,
    sees="""
        One rank raises in a collective: an argument is missing or invalid. The others do not see
        this message; they fail later with a broken connection, or wait.
    """,
    why="""
        Arguments are checked on each rank before anything is sent. Some are asked of certain
        ranks only, such as the list of the source in a scatter, so the same call is right on one
        rank and wrong on another.
    """,
    broken="""
        def share(shard, parts=None):
            dist.scatter(shard, scatter_list=parts, src=0)
            return shard

        table = torch.arange(8.0)
        parts = list(table.chunk(world_size))
        shard = share(torch.empty(4))
        print(shard.tolist())
    """,
    fixed="""
        def share(shard, parts=None):
            dist.scatter(shard, scatter_list=parts, src=0)
            return shard

        table = torch.arange(8.0)
        parts = list(table.chunk(world_size))
        shard = share(torch.empty(4), parts if rank == 0 else None)
        print(shard.tolist())
    """,
    proof="assert torch.equal(shard, table[4 * rank : 4 * rank + 4])",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 2, 1: 2}),
    fixes=(
        Advice("fix distributed API usage", "give {op} the arguments that the message asks for"),
        Advice(
            "fix communication configuration",
            "use a backend that implements {op} for these tensors: gloo on the CPU, nccl on GPUs",
        ),
        Advice(
            "fix framework installation/version",
            "see in the documentation of this version of torch which arguments {op} takes",
        ),
    ),
    gloo=("Argument ``scatter_list`` must be specified on source rank.",),
    nccl=("Argument ``scatter_list`` must be specified on source rank.",),
    cluster="""
        The first failing rank in time gives the reason; torchrun names it as the root cause. The
        other ranks show a connection that was closed.
    """,
    apart={
        "output-list-length": "the list of outputs has the wrong length",
        "root-differs": "each rank's arguments are valid, and they do not fit",
    },
    references=(
        Reference(
            "torch.distributed: scatter",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.scatter",
        ),
    ),
    in_source=False,
)
