"""Parameters are written to on one rank after DDP has made them equal."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="model-reset-on-one-rank",
    title="parameters change on one rank after DDP was built",
    symptoms=("D.2.5", "D.2.4", "D.2.2"),
    views=("parity",),
    n=2,
    sees="""
        The loss of one rank starts high, or jumps, and never equals that of the others again. No
        message appears, and the gradients are averaged correctly.
    """,
    why="""
        DDP copies rank 0's parameters to all ranks when it is built, and from then on only averages
        gradients. Weights that are initialised, loaded or clamped later on some ranks alone stay
        different, because equal steps from different points never lead to the same point.
    """,
    broken="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )
        model = DDP(net)
        pretrained = {name: value * 0.5 for name, value in net.state_dict().items()}
        if rank == 0:
            net.load_state_dict(pretrained)

        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(rank)
        for step in range(5):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)
        )
        pretrained = {name: value * 0.5 for name, value in net.state_dict().items()}
        if rank == 0:
            net.load_state_dict(pretrained)
        model = DDP(net)

        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(rank)
        for step in range(5):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            (model(x) - x.sum(dim=1, keepdim=True)).square().mean().backward()
            optimizer.step()
    """,
    proof="""
        weight = net[0].weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
    """,
    expected=Expected(ranks=(0,), lines={0: 8}),
    fixes=(
        Advice(
            "fix behavior logic",
            "load or initialise before the model is wrapped in DDP, or do the same on every rank",
        ),
        Advice(
            "fix model construction",
            "build DDP again after such a change: it copies rank 0's parameters to all ranks",
        ),
        Advice(
            "save single-device model/weights only",
            "let every rank load the one checkpoint that rank 0 wrote",
        ),
    ),
    cluster="""
        It is typical of `if rank == 0: model.load_state_dict(…)` after the wrapper, of a checkpoint
        that exists on one node only, and of initialisation with another seed on each rank.
    """,
    apart={
        "ranks-diverged-learning-rate": "unequal steps make the parameters differ",
        "no-sync-left-on": "gradients differ too",
    },
    references=(
        Reference(
            "Distributed Data Parallel: parameters are broadcast when it is constructed",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "Parameters that were replaced after DDP was built",
            "https://github.com/pytorch/pytorch/issues/12603",
        ),
    ),
)
