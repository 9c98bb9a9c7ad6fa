"""The loss of one rank's share of the data is shown as that of all."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="local-loss-as-global",
    title="the loss of one rank's share of the data is shown as that of all",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        The loss in the log is noisier than expected, and does not agree with a run on one process
        although the weights do.
    """,
    why="""
        Each rank computes the loss of its batches. DDP averages the gradients of these losses, not
        the losses themselves, so rank 0 knows only its own. As a sign of progress that is good
        enough; as a result it is not.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.linspace(0, 1, 32).reshape(32, 1))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for (x,) in loader:
            optimizer.zero_grad()
            loss = (model(x) - 2 * x).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        if rank == 0:
            print("global training loss", sum(losses) / len(losses))
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        torch.manual_seed(0)
        data = TensorDataset(torch.linspace(0, 1, 32).reshape(32, 1))
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for (x,) in loader:
            optimizer.zero_grad()
            loss = (model(x) - 2 * x).pow(2).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        mean = torch.tensor(losses).mean()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if rank == 0:
            print("global training loss", mean.item())
    """,
    proof="""
        means = [None] * world_size
        dist.all_gather_object(means, sum(losses) / len(losses))
        assert abs(mean.item() - sum(means) / world_size) < 1e-6
    """,
    expected=Expected(ranks=(0,), lines={0: 16}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "average the value over the ranks with all_reduce before it is shown, or call it the "
            "loss of one rank",
        ),
    ),
    cluster="""
        Dashboards show one rank of many. If that rank has easier samples, the curve looks better
        than the model is; after a change in the number of ranks the curves do not match.
    """,
    apart={"metric-not-reduced": "the value is a result such as an accuracy"},
    references=(
        Reference(
            "DistributedDataParallel averages gradients across processes",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
