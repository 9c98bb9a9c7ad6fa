"""Each small tensor has its own collective, instead of one for all of them."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="small-collectives",
    title="many small collectives in each step",
    symptoms=("D.2.3",),
    views=("collectives",),
    sees="""
        Training gives the right result, but most of its time passes in all_reduce, although only
        a few kilobytes are exchanged in a step.
    """,
    why="""
        Each collective makes all ranks meet and costs at least one round trip, however small its
        tensor is. A loop that reduces every parameter, every metric or every sample on its own
        pays that for each, one after the other.
    """,
    broken="""
        net = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(24)])
        for p in net.parameters():
            dist.broadcast(p.data, src=0)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

        for step in range(40):
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            net(x).pow(2).mean().backward()
            for p in net.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world_size
            optimizer.step()
    """,
    fixed="""
        net = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(24)])
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        for step in range(40):
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    """,
    proof="""
        mine = torch.cat([p.detach().flatten() for p in net.parameters()])
        first = mine.clone()
        dist.broadcast(first, src=0)
        assert torch.equal(mine, first)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="possible"),
    fixes=(
        Advice(
            "fix communication configuration",
            "put the tensors into one before {op} (torch.cat of the flattened ones, or "
            "torch._utils._flatten_dense_tensors), or let DDP do so",
        ),
        Advice(
            "fix batch size/data partition",
            "exchange less often: accumulate over several batches, and reduce metrics once in an "
            "epoch",
        ),
        Advice(
            "fix distributed API usage",
            "issue them with async_op=True and wait for all of them at the end",
        ),
    ),
    cluster="""
        The time of a step grows with the number of nodes, while bandwidth counters stay near zero.
        A trace shows hundreds of short NCCL kernels, each preceded by a launch from Python.
    """,
    apart={"small-buckets": "DDP issues them, as its buckets are small"},
    references=(
        Reference(
            "DDP notes: why gradients are reduced in buckets",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
