"""The shapes of two tensors do not fit each other."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensor-shapes",
    title="an operation gets tensors whose shapes or types do not fit",
    symptoms=("D.1.5",),
    views=("stacks",),
    sees="""
        An operation of the forward pass or of the loss raises that the sizes of two tensors must
        match, or that matrices cannot be multiplied. It happens at the last batch of an epoch, or
        on one rank, while all steps before ran.
    """,
    why="""
        Dividing data among ranks and batches rarely comes out even, so one batch is smaller than
        the others. Code that uses the batch size it was configured with, instead of the size of
        the batch it was given, fails there.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        batch_size = 4
        data = TensorDataset(torch.randn(36, 5, 3), torch.randn(36, 8))
        loader = DataLoader(data, batch_size, sampler=DistributedSampler(data))
        model = DDP(torch.nn.GRU(3, 8, batch_first=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            start = torch.zeros(1, batch_size, 8)
            output, last = model(x, start)
            loss = (last[0] - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        batch_size = 4
        data = TensorDataset(torch.randn(36, 5, 3), torch.randn(36, 8))
        loader = DataLoader(data, batch_size, sampler=DistributedSampler(data))
        model = DDP(torch.nn.GRU(3, 8, batch_first=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader:
            start = torch.zeros(1, len(x), 8)
            output, last = model(x, start)
            loss = (last[0] - y).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert len(x) == 2 and torch.isfinite(loss)",
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}),
    fixes=(
        Advice(
            "fix model construction",
            "make shapes and dtypes of the two tensors agree at the line shown: take sizes from "
            "the tensors (`len(x)`), not from the configuration",
        ),
        Advice(
            "fix batch size/data partition",
            "pass drop_last=True to the loader if every batch must be full",
        ),
        Advice(
            "fix distributed API usage",
            "divide the batch size by the number of ranks once, in one place",
        ),
        Advice(
            "fix framework installation/version",
            "if it began with an upgrade, look for a changed default (batch_first, a loss that no "
            "longer broadcasts)",
        ),
    ),
    gloo=(
        "Expected hidden size (1, 2, 8), got [1, 4, 8]",
        "mat1 and mat2 shapes cannot be multiplied",
    ),
    nccl=("The size of tensor a (4) must match the size of tensor b (2)",),
    cluster="""
        The job fails at the end of its first epoch, on all ranks, or on the last one if it has
        the rest. With another number of GPUs the data may come out even, and nothing happens.
    """,
    apart={
        "shape-differs": "each rank is correct, but a collective of different shapes fails",
        "models-differ": "DDP compares the models of the ranks",
    },
    references=(
        Reference(
            "torch.utils.data.DataLoader: drop_last",
            "https://docs.pytorch.org/docs/stable/data.html",
        ),
    ),
    in_source=False,
)
