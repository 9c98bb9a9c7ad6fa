"""A bad sample on one rank makes the loss nan on all ranks."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="nan-from-one-rank",
    title="nan from one rank spreads to all of them",
    symptoms=("D.2.5", "D.2.4"),
    n=3,
    sees="""
        The loss is fine, and from one step to the next it is nan on every rank. Looking at rank 0,
        whose data are clean, shows nothing.
    """,
    why="""
        A rank reads a value that is not finite in its batch. Its gradients become nan, the
        all-reduce adds them to those of all others, and the next step writes nan into every
        replica. One pass later each loss is nan, and no message says where it began.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        samples = torch.randn(60, 4, generator=generator)
        if rank == 2:
            samples[27, 1] = float("nan")

        for start in range(0, 60, 10):
            x = samples[start : start + 10]
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        samples = torch.randn(60, 4, generator=generator)
        if rank == 2:
            samples[27, 1] = float("nan")
        samples = samples.nan_to_num()

        for start in range(0, 60, 10):
            x = samples[start : start + 10]
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert loss.isfinite()
        assert all(parameter.isfinite().all() for parameter in model.parameters())
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={2: 14}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "clean or leave out the samples of rank {rank} that hold no finite number, and check "
            "each batch before it is used",
        ),
        Advice(
            "fix behavior logic",
            "where a bad batch is to be skipped, let all ranks skip it: all_reduce a flag first",
        ),
        Advice(
            "fix framework installation/version",
            "in mixed precision, scale the loss with GradScaler, which leaves out such steps",
        ),
    ),
    cluster="""
        Every log turns to nan within one iteration, and rank 0's is the one that is read. A restart
        from the last checkpoint dies at the same step, as the data come in the same order.
    """,
    apart={"loss-not-finite": "it becomes nan on all ranks in the same pass: look at the model"},
    references=(
        Reference(
            "A loss that is nan on one rank only, and poisons the all-reduce",
            "https://github.com/ecmwf/WeatherGenerator/pull/2718",
        ),
        Reference(
            "torch.autograd: anomaly detection",
            "https://docs.pytorch.org/docs/stable/autograd.html",
        ),
    ),
    in_source=False,
)
