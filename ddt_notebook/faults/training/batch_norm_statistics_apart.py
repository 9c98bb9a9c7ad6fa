"""Running statistics of each rank's own batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="batch-norm-statistics-apart",
    title="batch-norm statistics are each rank's own",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    n=2,
    sees="""
        Weights are equal on all ranks, but the same validation batch gives other predictions on
        each of them. Small batches make it worse; which rank writes the checkpoint matters.
    """,
    why="""
        Batch norm keeps a running mean and variance as buffers, computed from the local batch. DDP
        averages gradients only; it copies rank 0's buffers before a forward pass in training, and
        with broadcast_buffers=False not even that.
    """,
    broken="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.Linear(12, 1)
        )
        model = DDP(net, broadcast_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        for step in range(8):
            x = torch.randn(8, 6, generator=generator) + rank
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(6, 12), torch.nn.BatchNorm1d(12), torch.nn.Linear(12, 1)
        )
        model = DDP(net, broadcast_buffers=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        for step in range(8):
            x = torch.randn(8, 6, generator=generator) + rank
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for buffer in (net[1].running_mean, net[1].running_var):
            dist.all_reduce(buffer)
            buffer /= world_size
    """,
    proof="""
        mean = net[1].running_mean
        copies = [torch.empty_like(mean) for _ in range(world_size)]
        dist.all_gather(copies, mean)
        assert all(torch.equal(copy, mean) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "convert the model with SyncBatchNorm.convert_sync_batchnorm before DDP (on GPUs), or "
            "reduce the running statistics before each evaluation",
        ),
        Advice(
            "fix model construction",
            "use a normalisation without running statistics, such as LayerNorm or GroupNorm",
        ),
        Advice(
            "fix batch size/data partition",
            "give ranks batches that are large and shuffled enough for their statistics to agree",
        ),
    ),
    cluster="""
        Rank 0's validation curve is not what a later evaluation of the checkpoint on one GPU shows,
        or each rank reports another accuracy on the same data. There is no error and no warning.
    """,
    apart={"model-reset-on-one-rank": "parameters differ, not only buffers"},
    references=(
        Reference(
            "SyncBatchNorm: statistics over all ranks",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.SyncBatchNorm.html",
        ),
        Reference(
            "Distributed Data Parallel: how buffers are synchronised",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
