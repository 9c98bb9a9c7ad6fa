"""Each rank clips its own gradients, and only then are they averaged."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="clipped-before-average",
    title="gradients are clipped before they are averaged over the ranks",
    symptoms=("D.2.4", "D.2.5"),
    sees="""
        Training is slower than on one GPU with the same global batch, and the logged norm differs
        between ranks. Nothing fails, and replicas stay equal.
    """,
    why="""
        The norm of a rank's own gradients is larger than that of their mean, since noise averages
        out. Clipping each rank's gradients first shrinks steps that needed no clipping, and weighs
        ranks differently. Within DDP the same happens when micro-batches inside no_sync() are
        clipped one by one.
    """,
    broken="""
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            (model(x) - 3 * x.mean(1, keepdim=True)).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world_size
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            (model(x) - 3 * x.mean(1, keepdim=True)).square().mean().backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world_size
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
    """,
    proof="""
        everyone = [torch.empty_like(norm) for _ in range(world_size)]
        dist.all_gather(everyone, norm)
        assert torch.equal(everyone[0], everyone[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "clip after the gradients are averaged: with DDP after the last backward pass of the "
            "step, outside no_sync(), and once in a step",
        ),
    ),
    cluster="""
        The gradient norm in the log falls when ranks are added only if clipping comes after the
        average. If it stays, each rank clips its own.
    """,
    apart={
        "gradients-changed-after-averaging": "ranks clip averaged gradients differently",
        "gradients-not-divided": "the average itself is wrong",
    },
    references=(
        Reference(
            "torch.nn.utils.clip_grad_norm_",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        ),
    ),
)
