"""Parameters that the loss does not use."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="unused-parameters",
    title="parameters that take no part in the loss keep DDP waiting",
    symptoms=("D.1.4",),
    views=("stacks",),
    sees="""
        The first step runs; the forward pass of the second raises that the reduction of the prior
        iteration has not finished. With TORCH_DISTRIBUTED_DEBUG=INFO the message lists the
        parameters that did not receive a gradient.
    """,
    why="""
        DDP reduces gradients in buckets, each as soon as all of its gradients are there. A
        parameter that is registered and not used never gets one, its bucket is never sent, and the
        next forward pass finds the last reduction open.
    """,
    broken="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(8, 8)
                self.head = torch.nn.Linear(8, 1)
                self.auxiliary = torch.nn.Linear(8, 1)
            def forward(self, x):
                return self.head(self.body(x).relu())

        model = DDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(4, 8)).square().mean()
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
                self.auxiliary = torch.nn.Linear(8, 1)
            def forward(self, x):
                hidden = self.body(x).relu()
                return self.head(hidden) + 0.1 * self.auxiliary(hidden)

        model = DDP(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(4, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert model.module.auxiliary.weight.grad.abs().sum() > 0",
    expected=Expected(ranks=(0, 1), lines={0: 13, 1: 13}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "use every parameter in the loss; where a part rests in some steps, pass "
            "find_unused_parameters=True to DDP",
        ),
        Advice(
            "fix model construction",
            "remove layers that are never used, or freeze them with requires_grad_(False) before "
            "the model is wrapped",
        ),
        Advice(
            "fix dependency installation/version",
            "if the layer belongs to a library's model: take a version, or its option, that does "
            "not build the unused part",
        ),
    ),
    gloo=("Expected to have finished reduction in the prior iteration before starting a new one",),
    nccl=("Expected to have finished reduction in the prior iteration before starting a new one",),
    cluster="""
        All ranks fail at their second step. If a part is unused on some ranks only, the others wait
        for their buckets instead and the job hangs until the watchdog ends it.
    """,
    apart={
        "unused-parameter-in-last-step": "no further step follows, and nothing is raised",
        "graph-changed": "static_graph=True is set, and the graph changes",
    },
    references=(
        Reference(
            "PyTorch issue 57776: which parameters are unused",
            "https://github.com/pytorch/pytorch/issues/57776",
        ),
        Reference(
            "DistributedDataParallel: find_unused_parameters",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
