"""Gradients are averaged by hand, but the models were never equal."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="replicas-start-apart",
    title="gradients are averaged by hand, but the models start from other values on each rank",
    symptoms=("D.2.5", "D.2.2"),
    views=("parity",),
    n=2,
    sees="""
        A training loop without DDP averages all gradients itself, and the averages agree. Still
        each rank reports another loss on the same data and saves other weights.
    """,
    why="""
        Equal gradients give every model the same step; they cannot make models equal that started
        differently. The difference of the first values stays, and each averaged gradient is a mean
        over different models, so it is the right direction for none of them. DDP sends the
        parameters of rank 0 to all ranks when it is built; a training loop without DDP must do that
        too.
    """,
    broken="""
        torch.manual_seed(100 + rank)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def average_gradients(model):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world_size

        for step in range(8):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            average_gradients(model)
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(100 + rank)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        for parameter in model.parameters():
            dist.broadcast(parameter.detach(), src=0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def average_gradients(model):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world_size

        for step in range(8):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            average_gradients(model)
            optimizer.step()
    """,
    proof="""
        for parameter in model.parameters():
            copies = [torch.empty_like(parameter) for _ in range(world_size)]
            dist.all_gather(copies, parameter.detach())
            assert all(torch.equal(copy, parameter) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 17, 1: 17}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "broadcast parameters and buffers from rank 0 once, after the model is built or loaded "
            "and before the first step; use another seed on each rank for the data only",
        ),
        Advice(
            "fix distributed API usage",
            "wrap the model in DistributedDataParallel: it sends rank 0's values when it is built, "
            "and averages the gradients",
        ),
    ),
    cluster="""
        NCCL reduces as many bytes as it should and nothing is late. Validation differs between
        ranks from the first epoch on, and a checkpoint of rank 0 is worse than the training loss
        suggests.
    """,
    apart={
        "gradients-not-reduced": "models start equal and some gradients stay local",
        "model-not-wrapped": "no gradient is averaged at all",
        "model-reset-on-one-rank": "DDP made the models equal and something undid it",
    },
    references=(
        Reference(
            "Writing distributed applications with PyTorch: averaging gradients by hand",
            "https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html",
        ),
        Reference(
            "DistributedDataParallel: parameters are broadcast from rank 0 when it is built",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
