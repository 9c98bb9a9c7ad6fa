"""The graph changes although static_graph=True says that it does not."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="graph-changed",
    title="static_graph=True, and later steps use other parameters than the first",
    symptoms=("D.1.4",),
    views=("stacks",),
    sees="""
        The first steps run. Then the backward pass raises that the training graph has changed in
        this iteration, on all ranks, at the step in which a warm-up ends or a layer is unfrozen.
    """,
    why="""
        With static_graph=True DDP looks in the first step which parameters get gradients, and how
        often, and relies on that in all later steps. A branch that depends on the step changes
        both.
    """,
    broken="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(8, 8)
                self.head = torch.nn.Linear(8, 1)
                self.refine = torch.nn.Linear(8, 1)
            def forward(self, x, warm_up):
                hidden = self.body(x).relu()
                if warm_up:
                    return self.head(hidden)
                return self.head(hidden) + self.refine(hidden)

        model = DDP(Net(), static_graph=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            loss = model(torch.randn(4, 8), warm_up=step < 3).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(8, 8)
                self.head = torch.nn.Linear(8, 1)
                self.refine = torch.nn.Linear(8, 1)
            def forward(self, x, warm_up):
                hidden = self.body(x).relu()
                if warm_up:
                    return self.head(hidden)
                return self.head(hidden) + self.refine(hidden)

        model = DDP(Net(), find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(6):
            loss = model(torch.randn(4, 8), warm_up=step < 3).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert model.module.refine.weight.grad.abs().sum() > 0",
    expected=Expected(ranks=(0, 1), lines={0: 18, 1: 18}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "leave static_graph out when the graph changes between steps, and pass "
            "find_unused_parameters=True if some parameters rest",
        ),
        Advice(
            "fix model construction",
            "keep one graph: compute both branches and weight the second with 0 or 1",
        ),
    ),
    gloo=("Your training graph has changed in this iteration",),
    nccl=("Your training graph has changed in this iteration",),
    cluster="""
        The job runs well for as long as the warm-up lasts, which may be days, and then stops on
        all ranks at once. After resuming it stops at the same step.
    """,
    apart={
        "unused-parameters": "static_graph is not set; parameters of the first step are unused",
        "parameter-ready-twice": "a parameter is used twice in one backward pass",
    },
    references=(
        Reference(
            "PyTorch issue 58111: static graph and several forward passes",
            "https://github.com/pytorch/pytorch/issues/58111",
        ),
        Reference(
            "DistributedDataParallel: static_graph",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
