"""A tensor that is changed between forward and backward."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="inplace-change",
    title="a tensor that backward needs is changed in place before it",
    symptoms=("D.1.4",),
    views=("stacks",),
    sees="""
        backward raises that a variable needed for gradient computation has been modified by an
        inplace operation, with its shape and two version numbers, but not its name.
    """,
    why="""
        The forward pass keeps the tensors that backward needs, not copies of them. A buffer that is
        updated in place after its use, by the module itself or by DDP, which copies the buffers of
        rank 0 at each forward pass, no longer has the values that were used.
    """,
    broken="""
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 4)
                self.register_buffer("scale", torch.ones(4))
            def forward(self, x):
                y = self.fc(x) * self.scale
                self.scale.mul_(0.9).add_(0.1 * y.detach().std(0))
                return y

        model = DDP(Scaled())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = torch.nn.Linear(8, 4)
                self.register_buffer("scale", torch.ones(4))
            def forward(self, x):
                y = self.fc(x) * self.scale.clone()
                self.scale.mul_(0.9).add_(0.1 * y.detach().std(0))
                return y

        model = DDP(Scaled())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss = model(torch.randn(16, 8)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert not torch.equal(model.module.scale, torch.ones(4))",
    expected=Expected(ranks=(0, 1), lines={0: 16, 1: 16}),
    fixes=(
        Advice(
            "fix model construction",
            "do not change the tensor in place between forward and backward: use a copy of it "
            "(`.clone()`), or update it after backward",
        ),
        Advice(
            "fix distributed API usage",
            "if it is a buffer that DDP copies and the model runs twice before backward: pass "
            "broadcast_buffers=False, or use SyncBatchNorm",
        ),
        Advice(
            "fix dependency installation/version",
            "if the line is in a library: take a version that does without the operation in place",
        ),
    ),
    gloo=("has been modified by an inplace operation: [torch.FloatTensor [4]] is at version",),
    nccl=("has been modified by an inplace operation: [torch.cuda.FloatTensor",),
    cluster="""
        The model trains on one GPU without the wrapper and fails under DDP on all ranks, typically
        where an adversarial loss runs it twice. torch.autograd.set_detect_anomaly(True) prints the
        forward line.
    """,
    apart={"graph-freed": "the stored tensors are gone, not changed"},
    references=(
        Reference(
            "PyTorch issue 22095: a module with a buffer is called twice under DDP",
            "https://github.com/pytorch/pytorch/issues/22095",
        ),
        Reference(
            "PyTorch issue 175024: two forward passes through BatchNorm under DDP",
            "https://github.com/pytorch/pytorch/issues/175024",
        ),
    ),
    in_source=False,
)
