"""The gradients are equal on all ranks, but the steps are not."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="ranks-diverged-learning-rate",
    title="the optimizers of the ranks have different settings",
    symptoms=("D.2.5", "D.2.4"),
    views=("parity",),
    n=3,
    sees="""
        Losses of the ranks drift apart from step to step although DDP averages gradients, and the
        model in the checkpoint is worse than the loss of its best rank suggests.
    """,
    why="""
        DDP averages gradients, not parameters: replicas stay equal only as long as every rank takes
        the same step. A learning rate, momentum or schedule that depends on the rank, on a local
        loss or on a file that one rank alone has read makes the steps unequal for good.
    """,
    broken="""
        torch.manual_seed(0)
        batch_size = 48 if rank == 2 else 16
        model = DDP(torch.nn.Linear(8, 1))
        lr = 0.02 * batch_size / 16
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

        generator = torch.Generator().manual_seed(rank)
        for step in range(6):
            x = torch.randn(batch_size, 8, generator=generator)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        batch_size = 48 if rank == 2 else 16
        model = DDP(torch.nn.Linear(8, 1))
        total = torch.tensor(batch_size)
        dist.all_reduce(total)
        lr = 0.02 * total.item() / world_size / 16
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)

        generator = torch.Generator().manual_seed(rank)
        for step in range(6):
            x = torch.randn(batch_size, 8, generator=generator)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        rates = [None] * world_size
        dist.all_gather_object(rates, optimizer.param_groups[0]["lr"])
        assert len(set(rates)) == 1
        weight = model.module.weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
    """,
    expected=Expected(ranks=(2,), lines={2: 5}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give the optimizer and its schedule the same numbers on every rank: reduce what "
            "they are computed from, such as a validation loss or a batch size, before it is used",
        ),
        Advice(
            "fix batch size/data partition",
            "where ranks have batches of different size, weight the losses instead of the rates",
        ),
    ),
    cluster="""
        The learning rate in the log of rank 0 is not that of the others, which usually is not
        logged. After a resume, the ranks continue from rank 0's checkpoint and the loss jumps.
    """,
    apart={
        "model-reset-on-one-rank": "settings are equal, and parameters were written to",
        "learning-rate-not-scaled": "it is equal everywhere, and perhaps too small",
    },
    references=(
        Reference(
            "Distributed Data Parallel: optimizers see the same gradients and must do the same",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "torch.optim: how to adjust the learning rate",
            "https://docs.pytorch.org/docs/stable/optim.html",
        ),
    ),
    in_source=False,
)
