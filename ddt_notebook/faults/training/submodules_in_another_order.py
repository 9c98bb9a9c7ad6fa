"""Gradients of different layers are averaged, because all shapes fit."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="submodules-in-another-order",
    title="submodules are registered in another order on some ranks",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    n=3,
    sees="""
        DDP is built without complaint, the loss falls slowly or not at all, and no two ranks agree
        on what a layer holds. With layers of different shapes the constructor would have failed.
    """,
    why="""
        DDP identifies parameters by their position, not by their name: it compares the shapes at
        each position, broadcasts and averages by it. If layers come from a set, a directory listing
        or a dict in another order, DDP confuses them.
    """,
    broken="""
        class Experts(torch.nn.Module):
            def __init__(self, names):
                super().__init__()
                for name in names:
                    self.add_module(name, torch.nn.Linear(8, 8))
                self.out = torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.out(self.text(x).relu() + self.image(x).tanh() + self.audio(x))

        names = ["text", "image", "audio"]
        if rank == 1:
            names = sorted(names)
        torch.manual_seed(0)
        model = DDP(Experts(names))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        torch.manual_seed(rank)
        for step in range(5):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Experts(torch.nn.Module):
            def __init__(self, names):
                super().__init__()
                for name in names:
                    self.add_module(name, torch.nn.Linear(8, 8))
                self.out = torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.out(self.text(x).relu() + self.image(x).tanh() + self.audio(x))

        names = sorted(["text", "image", "audio"])
        torch.manual_seed(0)
        model = DDP(Experts(names))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
        torch.manual_seed(rank)
        for step in range(5):
            x = torch.randn(16, 8)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        weight = model.module.text.weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
    """,
    expected=Expected(ranks=(1,), lines={1: 20}),
    fixes=(
        Advice(
            "fix model construction",
            "register submodules in one fixed order on every rank: sort their names, iterate over "
            "no set",
        ),
        Advice(
            "fix behavior logic",
            "let rank 0 decide the list and broadcast it with broadcast_object_list",
        ),
    ),
    cluster="""
        The fault is rare, but no backend reports an error. Typical sources are os.listdir, sets of
        strings with another hash seed in each process, and configuration files per node.
    """,
    apart={
        "models-differ": "numbers or shapes of parameters differ, and DDP raises",
        "model-reset-on-one-rank": "the order is the same",
    },
    references=(
        Reference(
            "Gradients that are taken for those of another parameter when the order differs",
            "https://github.com/deepspeedai/DeepSpeed/issues/2343",
        ),
        Reference(
            "Distributed Data Parallel: parameters are matched by their order",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
