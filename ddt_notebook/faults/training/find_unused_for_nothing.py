"""DDP searches the graph in every step although every parameter is used."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="find-unused-for-nothing",
    title="find_unused_parameters=True although every parameter is used",
    symptoms=("D.2.3",),
    n=2,
    sees="""
        Training is right but slower than it need be: each iteration has an extra pass over the
        autograd graph and an extra small all-reduce. PyTorch warns once, in the first iteration.
    """,
    why="""
        With that option DDP walks the graph from the outputs after each forward pass, to mark
        parameters that will get no gradient, and reduces a map of who used what. If all are always
        used, this is work for nothing, and it grows with the number of layers.
    """,
    broken="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
        )
        model = DDP(net, find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        for step in range(10):
            x = torch.randn(32, 16, generator=generator)
            loss = (model(x) - x[:, :4]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)
        )
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        generator = torch.Generator().manual_seed(rank)
        for step in range(10):
            x = torch.randn(32, 16, generator=generator)
            loss = (model(x) - x[:, :4]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert not model.find_unused_parameters
        assert all(parameter.grad is not None for parameter in model.parameters())
    """,
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}, confidence="possible"),
    fixes=(
        Advice(
            "fix communication configuration",
            "leave find_unused_parameters out; where the same parameters are unused in every step, "
            "static_graph=True is cheaper",
        ),
    ),
    gloo=("did not find any unused parameters in the forward pass",),
    nccl=("did not find any unused parameters in the forward pass",),
    cluster="""
        The warning is in the log of every rank, once, far above everything else. A profile shows
        time between forward and backward, and one more all-reduce of int32 in each iteration.
    """,
    apart={
        "unused-parameters": "some are unused indeed, or the loss ignores an "
        "output that forward returns (DDP warns then, too): the option is needed"
    },
    references=(
        Reference(
            "DistributedDataParallel: find_unused_parameters",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
