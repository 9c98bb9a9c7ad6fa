"""A running mean in a plain object follows each rank's own data."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="state-kept-by-each-rank",
    title="a running mean in a plain object is updated from each rank's own data",
    symptoms=("D.2.5", "D.2.4"),
    n=2,
    sees="""
        Nothing fails, and weights are equal on all ranks. But the loss is worse than on one
        process, and a checkpoint that rank 0 wrote gives other results on the data of other ranks.
    """,
    why="""
        A normaliser of observations, returns or inputs often keeps its mean and variance as plain
        tensors, arrays or numbers. DDP does not know of them: it sends buffers of its own model
        only. So each rank normalises by what it has seen itself, and the ranks train one model on
        inputs of different scale. Rank 0 saves its own values for all.
    """,
    broken="""
        class Norm:
            def __init__(self):
                self.mean, self.var = torch.zeros(6), torch.ones(6)

            def __call__(self, x):
                self.mean = self.mean + 0.1 * (x.mean(0) - self.mean)
                self.var = self.var + 0.1 * (x.var(0) - self.var)
                return (x - self.mean) / (self.var + 1e-5).sqrt()

        torch.manual_seed(0)
        model, norm = DDP(torch.nn.Linear(6, 3)), Norm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = norm(torch.randn(16, 6, generator=generator) * (rank + 1))
            loss = (model(x) - x[:, :3]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Norm:
            def __init__(self):
                self.mean, self.var = torch.zeros(6), torch.ones(6)

            def __call__(self, x):
                mean, square = x.mean(0), x.square().mean(0)
                dist.all_reduce(mean)
                dist.all_reduce(square)
                mean, square = mean / world_size, square / world_size
                self.mean = self.mean + 0.1 * (mean - self.mean)
                self.var = self.var + 0.1 * (square - mean.square() - self.var)
                return (x - self.mean) / (self.var + 1e-5).sqrt()

        torch.manual_seed(0)
        model, norm = DDP(torch.nn.Linear(6, 3)), Norm()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = norm(torch.randn(16, 6, generator=generator) * (rank + 1))
            loss = (model(x) - x[:, :3]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        copies = [torch.empty(6) for _ in range(world_size)]
        dist.all_gather(copies, norm.var)
        assert all(torch.equal(copy, norm.var) for copy in copies)
        assert bool((norm.var > 1.2).all())
    """,
    expected=Expected(ranks=(0, 1), lines={0: 6, 1: 6}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "all_reduce the sum, the sum of squares and the count of each batch, and update the "
            "running values from these on every rank",
        ),
        Advice(
            "fix behavior logic",
            "or compute the statistics once over the whole data set, before training",
        ),
    ),
    cluster="""
        A policy or model trained on many workers is worse than one trained on few, and only the
        evaluation on rank 0 looks right: its normaliser is the one in the checkpoint.
    """,
    apart={
        "buffer-updated-by-each-rank": "the value is a buffer of a module, not of a plain object",
        "batch-norm-statistics-apart": "a layer of torch keeps the statistics",
    },
    references=(
        Reference(
            "Distributed Data Parallel: how buffers are synchronised",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "Implementation Matters in Deep Policy Gradients (observation normalisation)",
            "https://arxiv.org/abs/2005.12729",
        ),
    ),
    in_source=False,
)
