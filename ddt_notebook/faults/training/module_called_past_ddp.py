"""The model inside DDP is called, so DDP does not prepare for the backward pass."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="module-called-past-ddp",
    title="the training step calls the model inside DDP instead of DDP",
    symptoms=("D.2.2", "D.2.5"),
    views=("parity", "placement"),
    n=2,
    sees="""
        The model is wrapped, nothing fails, but training is as good as on one process. Printed
        gradients of the same step are different numbers on each rank.
    """,
    why="""
        The forward pass of DDP prepares its reducer for the backward pass that follows. Calling
        ddp.module(x), or a method of it that computes the loss, goes around that preparation: the
        gradients are computed, and no one averages them.
    """,
    broken="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(6, 12)
                self.head = torch.nn.Linear(12, 3)

            def forward(self, x):
                return self.head(self.body(x).relu())

        torch.manual_seed(rank)
        ddp = DDP(Classifier())
        optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
        for step in range(6):
            x, target = torch.randn(8, 6), torch.randint(3, (8,))
            logits = ddp.module(x)
            loss = torch.nn.functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(6, 12)
                self.head = torch.nn.Linear(12, 3)

            def forward(self, x):
                return self.head(self.body(x).relu())

        torch.manual_seed(rank)
        ddp = DDP(Classifier())
        optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
        for step in range(6):
            x, target = torch.randn(8, 6), torch.randint(3, (8,))
            logits = ddp(x)
            loss = torch.nn.functional.cross_entropy(logits, target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        weight = ddp.module.head.weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 15, 1: 15}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call the DDP model itself in training; keep `.module` for evaluation and for saving",
        ),
        Advice(
            "fix model construction",
            "let forward() do what is trained, and choose by an argument what else was a method",
        ),
    ),
    cluster="""
        NCCL sees the broadcast of the constructor and then nothing. A typical sign is a call of a
        method such as model.module.training_step(batch) or model.module.loss(x, y).
    """,
    apart={
        "no-sync-left-on": "DDP is called inside no_sync()",
        "wrapped-by-ddp": "an attribute is missing on the wrapper, which is an error",
    },
    references=(
        Reference(
            "PyTorch's test that ddp.module(input) synchronises nothing",
            "https://github.com/pytorch/pytorch/pull/20282",
        ),
        Reference(
            "Distributed Data Parallel: how it works inside",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
)
