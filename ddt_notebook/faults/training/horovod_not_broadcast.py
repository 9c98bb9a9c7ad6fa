"""Models of Horovod's ranks that were never made equal."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="horovod-not-broadcast",
    title="the parameters were not broadcast before Horovod's first step",
    symptoms=("D.2.5", "D.2.2"),
    views=("parity",),
    options={"framework": "horovod"},
    sees="""
        Training runs through. The loss of each rank falls more slowly than that of one process, and
        the same sample gives another answer on each rank.
    """,
    why="""
        A DistributedOptimizer averages gradients and nothing else. Models that start from other
        random numbers, or of which only rank 0 loaded a checkpoint, stay apart by as much as in the
        beginning, and each averaged gradient is a mean over different models.
    """,
    broken="""
        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(10 + hvd.rank())
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        for step in range(6):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    """,
    fixed="""
        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(10 + hvd.rank())
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        for step in range(6):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    """,
    proof="""
        weights = hvd.allgather(model[0].weight.detach())
        assert torch.equal(weights[:16], weights[16:])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 14, 1: 14}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call hvd.broadcast_parameters(model.state_dict(), root_rank=0) and "
            "hvd.broadcast_optimizer_state(optimizer, root_rank=0) after the model is built or "
            "loaded, and before the first step",
        ),
    ),
    cluster="""
        Nothing hangs and nothing is logged. The validation of each rank differs from the first
        epoch on, and a checkpoint of rank 0 is worse than the averaged loss.
    """,
    apart={
        "replicas-start-apart": "a loop of torch averages gradients itself",
        "model-not-wrapped": "no gradient is averaged at all",
    },
    references=(
        Reference(
            "Horovod with PyTorch: broadcast the initial variable states from rank 0",
            "https://horovod.readthedocs.io/en/stable/pytorch.html",
        ),
    ),
    in_source=False,
)
