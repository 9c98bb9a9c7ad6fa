"""One rank does more in every step, and the others wait for it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="straggler-compute",
    title="one rank takes longer for each step, and all ranks wait for it",
    symptoms=("D.2.3",),
    views=("timeline",),
    n=3,
    sees="""
        Training is right but slow. Adding ranks makes it no faster, and taking out one certain
        rank makes it much faster.
    """,
    why="""
        Every exchange of gradients is a meeting of all ranks. A rank that also writes logs, makes
        pictures, computes a metric or sits on a slower device comes late to each of them, and its
        delay is added to every step of every rank.
    """,
    broken="""
        import time

        def log_histograms(step, model):
            if rank == 0:
                time.sleep(0.06)

        model = DDP(torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        started = time.monotonic()
        for step in range(16):
            log_histograms(step, model)
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        took = time.monotonic() - started
    """,
    fixed="""
        import time

        def log_histograms(step, model):
            if rank == 0 and step % 8 == 0:
                time.sleep(0.06)

        model = DDP(torch.nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        started = time.monotonic()
        for step in range(16):
            log_histograms(step, model)
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        took = time.monotonic() - started
    """,
    proof="assert took < 16 * 0.06",
    expected=Expected(ranks=(0,), waiting=(1, 2), lines={0: 14}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give rank {rank} as much work as the others: fewer samples if its device is slower, "
            "and what it alone does every few steps only",
        ),
        Advice(
            "change hardware",
            "if the work is the same, run the ranks on equal devices, and look for a device that "
            "is throttled or shared",
        ),
        Advice(
            "fix distributed API usage",
            "where ranks cannot be made equal, let them meet less often: accumulate gradients "
            "inside no_sync() over several batches",
        ),
        Advice(
            "fix behavior logic",
            "do what only rank {rank} does in a thread or process beside the training",
        ),
    ),
    cluster="""
        All GPUs but one show full use, since a kernel that waits in NCCL counts as running; the one
        that is late shows gaps. Step times are equal on all ranks, so a comparison of step times
        finds nothing. Only the times of arrival at the collective show it.
    """,
    apart={
        "straggler-data": "the loader of that rank is late",
        "uneven-batch-sizes": "it has larger batches",
        "rank-too-slow": "a single delay exceeds the timeout of the group",
    },
    references=(
        Reference(
            "Straggler detection across processes",
            "https://github.com/pytorch/pytorch/issues/71303",
        ),
        Reference(
            "DDP notes: gradients are averaged when they are ready in all processes",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
