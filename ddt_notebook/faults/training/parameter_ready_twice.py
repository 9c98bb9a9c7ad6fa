"""The gradient of a parameter is computed twice in one backward pass."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="parameter-ready-twice",
    title="DDP sees the gradient of a parameter twice in one backward pass",
    symptoms=("D.1.4",),
    views=("stacks",),
    sees="""
        `Expected to mark a variable ready only once`, with the index and, with debug level INFO,
        the name of a parameter. It appears with activation checkpointing or with weights that
        several parts share.
    """,
    why="""
        DDP sends a gradient when it is ready and counts on that happening once per step. Reentrant
        checkpointing runs a separate backward pass for each checkpointed call, so a block that is
        used twice reports twice.
    """,
    broken="""
        from torch.utils.checkpoint import checkpoint

        class Recurrent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Linear(8, 8)
                self.block = torch.nn.Linear(8, 8)
            def forward(self, x):
                x = self.embed(x)
                for _ in range(3):
                    x = checkpoint(self.block, x.tanh(), use_reentrant=True)
                return x

        model = DDP(Recurrent())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        from torch.utils.checkpoint import checkpoint

        class Recurrent(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = torch.nn.Linear(8, 8)
                self.block = torch.nn.Linear(8, 8)
            def forward(self, x):
                x = self.embed(x)
                for _ in range(3):
                    x = checkpoint(self.block, x.tanh(), use_reentrant=False)
                return x

        model = DDP(Recurrent())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert model.module.block.weight.grad.abs().sum() > 0",
    expected=Expected(ranks=(0, 1), lines={0: 19, 1: 19}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "checkpoint with use_reentrant=False, or set static_graph=True if the graph is the "
            "same in every step",
        ),
        Advice(
            "fix dependency installation/version",
            "if a library checkpoints for you: take a version, or its option, that uses "
            "use_reentrant=False",
        ),
        Advice(
            "fix model construction",
            "use a shared block in one place of the forward pass, and no parameter outside of it",
        ),
    ),
    gloo=("Expected to mark a variable ready only once.",),
    nccl=("Expected to mark a variable ready only once.",),
    cluster="""
        All ranks fail in the first backward pass after checkpointing was switched on to save
        memory; on one GPU without DDP the same model trains.
    """,
    apart={
        "unused-parameters": "a gradient is never computed",
        "graph-freed": "autograd complains, and the wrapper plays no part",
    },
    references=(
        Reference(
            "PyTorch issue 84589: DDP and non-reentrant checkpointing",
            "https://github.com/pytorch/pytorch/issues/84589",
        ),
        Reference(
            "torch.utils.checkpoint: use_reentrant",
            "https://docs.pytorch.org/docs/stable/checkpoint.html",
        ),
    ),
)
