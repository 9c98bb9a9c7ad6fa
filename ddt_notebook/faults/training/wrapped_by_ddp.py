"""The program reads an attribute of the model from the DDP wrapper."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="wrapped-by-ddp",
    title="an attribute of the model is read from the DDP wrapper",
    symptoms=("D.1.8",),
    views=("stacks",),
    sees="""
        `'DistributedDataParallel' object has no attribute 'head'`, on every rank at the same line,
        although the class of the model has it and the code worked before the model was wrapped.
    """,
    why="""
        DDP(model) is another module that holds yours as its attribute `module`. It passes on the
        call of the model and its parameters, but none of your own attributes and methods.
    """,
    broken="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(8, 4)
                self.head = torch.nn.Linear(4, 2)
            def forward(self, x):
                return self.head(self.body(x).relu())

        model = DDP(Classifier())
        optimizer = torch.optim.SGD([
            {"params": model.body.parameters(), "lr": 0.01},
            {"params": model.head.parameters(), "lr": 0.1},
        ])
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    """,
    fixed="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(8, 4)
                self.head = torch.nn.Linear(4, 2)
            def forward(self, x):
                return self.head(self.body(x).relu())

        model = DDP(Classifier())
        optimizer = torch.optim.SGD([
            {"params": model.module.body.parameters(), "lr": 0.01},
            {"params": model.module.head.parameters(), "lr": 0.1},
        ])
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    """,
    proof="""
        assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.1]
        assert model.module.head.weight.grad is not None
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "reach attributes of your model through `.module`, or keep the bare model in another "
            "variable; forward and backward still go through the wrapper",
        ),
        Advice(
            "fix dependency installation/version",
            "if the line is in a library: use a version that supports wrapped models",
        ),
    ),
    gloo=("'DistributedDataParallel' object has no attribute 'head'",),
    nccl=("'DistributedDataParallel' object has no attribute 'head'",),
    cluster="""
        A script that runs on one GPU without a wrapper fails on several, on all ranks alike, often
        only at the end of the first epoch where it saves, evaluates or freezes a part.
    """,
    apart={
        "attribute-missing": "a module of a package lacks the name",
        "module-called-past-ddp": "training calls `.module` instead of the wrapper",
    },
    references=(
        Reference(
            "A report from practice: the wrapper has no attribute 'model'",
            "https://github.com/ultralytics/yolov5/issues/90",
        ),
        Reference(
            "DistributedDataParallel",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
