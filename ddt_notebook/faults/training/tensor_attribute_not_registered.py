"""A trained tensor is not registered in its nn.Module."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensor-attribute-not-registered",
    title="a trained tensor is a plain attribute, not a parameter",
    symptoms=("D.2.2", "D.1.3"),
    views=("placement",),
    n=2,
    sees="""
        One part of the model never learns, or learns something else on each rank. On GPUs the same
        model fails instead: that tensor stays on the CPU when the model moves.
    """,
    why="""
        A module keeps track of what is an nn.Parameter, a buffer or a submodule. A tensor with
        requires_grad, or layers in a plain list, are none of these: they are not in parameters(),
        so no optimizer, no device move, no checkpoint and no DDP reducer ever sees them.
    """,
    broken="""
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(6, 3)
                self.scale = torch.ones(3, requires_grad=True)

            def forward(self, x):
                return self.linear(x) * self.scale

        torch.manual_seed(0)
        model = DDP(Scaled())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for step in range(4):
            x = torch.randn(12, 6)
            loss = (model(x) - x[:, :3] * 2).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Scaled(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.linear = torch.nn.Linear(6, 3)
                self.scale = torch.nn.Parameter(torch.ones(3))

            def forward(self, x):
                return self.linear(x) * self.scale

        torch.manual_seed(0)
        model = DDP(Scaled())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for step in range(4):
            x = torch.randn(12, 6)
            loss = (model(x) - x[:, :3] * 2).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        scale = model.module.scale.detach()
        assert not torch.equal(scale, torch.ones(3))
        copies = [torch.empty_like(scale) for _ in range(world_size)]
        dist.all_gather(copies, scale)
        assert all(torch.equal(copy, scale) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 16, 1: 16}, confidence="likely"),
    fixes=(
        Advice(
            "fix model construction",
            "make it an nn.Parameter, a list of layers an nn.ModuleList; what is not trained is a "
            "buffer (register_buffer)",
        ),
        Advice(
            "fix device assignment",
            "a tensor that is needed in forward() only can be made there, on the input's device",
        ),
        Advice(
            "fix framework installation/version",
            "where a wrapper replicates modules (DataParallel), keep no state in attributes",
        ),
    ),
    cluster="""
        On GPUs: "Expected all tensors to be on the same device". With a .cuda() in the attribute's
        initialiser every process puts it on GPU 0. The state dict lacks the key.
    """,
    apart={
        "optimizer-on-another-copy": "no parameter of the model is stepped",
        "unused-parameters": "it is a parameter and has no gradient",
    },
    references=(
        Reference(
            "DataParallel does not replicate member variables",
            "https://github.com/pytorch/pytorch/issues/2864",
        ),
        Reference(
            "An empirical study of faults in distributed deep learning, example (d)",
            "https://arxiv.org/abs/2112.06222",
        ),
    ),
)
