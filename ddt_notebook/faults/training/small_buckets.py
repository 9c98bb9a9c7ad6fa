"""DDP sends gradients in many small pieces."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="small-buckets",
    title="gradients sent in many small buckets",
    symptoms=("D.2.3",),
    views=("collectives",),
    sees="""
        The result is right. A step takes longer than the amount of data explains, most of it at
        the end of the backward pass; the network is far from busy.
    """,
    why="""
        DDP gathers gradients in buckets and reduces a bucket as soon as it is full. Each reduction
        costs a fixed time beside that of its bytes. With a small bucket_cap_mb there are as many
        reductions as parameters, and that fixed time is paid for each.
    """,
    broken="""
        layers = [torch.nn.Linear(64, 64) for _ in range(8)]
        model = DDP(torch.nn.Sequential(*layers), bucket_cap_mb=0.001)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(20):
            x = torch.randn(16, 64)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    """,
    fixed="""
        layers = [torch.nn.Linear(64, 64) for _ in range(8)]
        model = DDP(torch.nn.Sequential(*layers))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(20):
            x = torch.randn(16, 64)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    """,
    proof="assert model.bucket_bytes_cap >= 25 * 1024 * 1024",
    expected=Expected(ranks=(0, 1), confidence="possible"),
    fixes=(
        Advice(
            "fix communication configuration",
            "leave bucket_cap_mb at its default of 25, or measure larger values: on a slow network "
            "with a large model fewer buckets are better",
        ),
        Advice(
            "change hardware",
            "if many small messages cannot be avoided, a network of lower latency between the "
            "ranks helps; more bandwidth does not",
        ),
    ),
    cluster="""
        A trace shows a row of short NCCL kernels in each backward pass with gaps in between, and
        it gets worse with the number of nodes, as the latency of each all_reduce grows with it.
    """,
    apart={"small-collectives": "the code itself issues the small collectives"},
    references=(
        Reference(
            "DDP notes: gradients are put into buckets",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "DistributedDataParallel: bucket_cap_mb",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
