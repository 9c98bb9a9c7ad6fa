"""Parameters that are unfrozen after the model was put into DDP."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="unfrozen-after-ddp",
    title="parameters are unfrozen, or added, after the model was put into DDP",
    symptoms=("D.2.2", "D.2.5", "D.2.4"),
    views=("parity",),
    n=2,
    sees="""
        Nothing fails. From the epoch on in which a part of the model is unfrozen, the ranks' copies
        of this part drift apart, and an evaluation or a checkpoint depends on the rank.
    """,
    why="""
        DDP looks once, when it is built, which parameters require gradients, and averages the
        gradients of these. A parameter that is unfrozen or put into the model later gets a gradient
        and is stepped by the optimizer, but each rank uses its own gradient.
    """,
    broken="""
        torch.manual_seed(0)
        body, head = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)
        body.requires_grad_(False)
        model = DDP(torch.nn.Sequential(body, torch.nn.Tanh(), head))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            if step == 4:
                body.requires_grad_(True)
            x = torch.randn(16, 6, generator=generator)
            loss = (model(x) - x[:, :2]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        body, head = torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)
        body.requires_grad_(False)
        model = DDP(torch.nn.Sequential(body, torch.nn.Tanh(), head))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            if step == 4:
                body.requires_grad_(True)
                model = DDP(model.module)
            x = torch.randn(16, 6, generator=generator)
            loss = (model(x) - x[:, :2]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        copies = [torch.empty_like(body.weight) for _ in range(world_size)]
        dist.all_gather(copies, body.weight.detach())
        assert all(torch.equal(copy, body.weight) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}, confidence="likely"),
    fixes=(
        Advice(
            "fix model construction",
            "put the model into DDP again after its parameters were unfrozen or replaced, and keep "
            "the optimizer: the parameters are the same objects",
        ),
        Advice(
            "fix distributed API usage",
            "or unfreeze before DDP and leave the gradients unused until then, with "
            "find_unused_parameters=True",
        ),
    ),
    cluster="""
        Fine-tuning with a frozen start is worse on several GPUs than on one, from the moment on at
        which the backbone is unfrozen.
    """,
    apart={
        "gradients-changed-after-averaging": "code changes gradients that DDP has averaged",
        "gradients-not-reduced": "the program averages gradients itself, without DDP",
    },
    references=(
        Reference(
            "Distributed Data Parallel: the reducer is built with the parameters of that time",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "DistributedDataParallel: change no parameters after it was built",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
