"""Ranks of Horovod with different numbers of steps."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

_START = """
        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        batches = torch.randn(5 - hvd.rank(), 8, 4)
        for batch in batches:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
"""

CARD = FaultCard(
    id="horovod-steps-differ",
    title="a rank of Horovod makes fewer steps than the others",
    symptoms=("D.2.1", "C.7"),
    views=("stacks", "collectives"),
    options={"framework": "horovod"},
    sees="""
        Training stands still near the end of an epoch. One rank has finished its batches, the
        others wait in `optimizer.step()` for its gradients; Horovod's own waiting keeps their
        processors busy.
    """,
    why="""
        Each step of a DistributedOptimizer averages every gradient over all ranks. A rank that has
        no batch left gives none, and nothing tells the others that it is done.
    """,
    broken=_START,
    fixed=_START
    + """
        last = hvd.join()
        hvd.broadcast_parameters(model.state_dict(), root_rank=last)
""",
    proof="""
        weights = hvd.allgather(model.weight.detach(), name="weights")
        assert torch.equal(weights[0], weights[1])
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 12, 1: 9}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give every rank the same number of batches: DistributedSampler with "
            "num_replicas=hvd.size(), rank=hvd.rank(), and drop_last=True",
        ),
        Advice(
            "fix distributed API usage",
            "call hvd.join() after the last batch: the rank then takes part with zeros; then "
            "broadcast the parameters of the rank that it returns",
        ),
    ),
    cluster="""
        After 60 s, rank 0 may warn that tensors were submitted by a subset of ranks, and list the
        missing ones. They are those whose data ended first.
    """,
    apart={
        "uneven-iterations": "ranks of torch make different numbers of steps",
        "horovod-rank-alone": "a condition on the rank keeps the others from the call",
    },
    references=(
        Reference(
            "Elastic and uneven data in Horovod: the join operation",
            "https://horovod.readthedocs.io/en/stable/api.html#horovod.torch.join",
        ),
    ),
    in_source=False,
)
