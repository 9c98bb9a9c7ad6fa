"""The optimizer updates a copy of the model that gets no gradients."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="optimizer-on-another-copy",
    title="the optimizer holds the parameters of another copy of the model",
    symptoms=("D.2.5",),
    views=("placement", "parity"),
    n=2,
    sees="""
        The loss does not move at all, whatever the learning rate. Gradients are there and are
        averaged; the weights stay at what they were at the start.
    """,
    why="""
        An optimizer updates the tensors that it was given. If the model was copied, rebuilt or
        loaded again after that, backward fills the gradients of the new tensors. The optimizer
        finds none on the old ones and skips them without a message.
    """,
    broken="""
        import copy

        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        model = DDP(copy.deepcopy(net))

        generator = torch.Generator().manual_seed(rank)
        losses = []
        for step in range(10):
            x = torch.randn(16, 4, generator=generator)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    """,
    fixed="""
        import copy

        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
        model = DDP(copy.deepcopy(net))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

        generator = torch.Generator().manual_seed(rank)
        losses = []
        for step in range(10):
            x = torch.randn(16, 4, generator=generator)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    """,
    proof="""
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        assert held == {id(p) for p in model.parameters()}
        assert not torch.equal(model.module[0].weight, net[0].weight)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}),
    fixes=(
        Advice(
            "fix behavior logic",
            "build the optimizer last, from the parameters of the model that is trained",
        ),
        Advice(
            "fix framework installation/version",
            "where a library wraps or shards the model (FSDP, compile, a trainer), take the "
            "parameters from what it returns",
        ),
        Advice(
            "save single-device model/weights only",
            "load weights into the model that there is instead of making another one",
        ),
    ),
    cluster="""
        The loss curve is flat from the first step and equal for all learning rates. Common after
        a deepcopy, after model = build() in a second notebook cell, and with wrappers that replace
        parameters.
    """,
    apart={"model-reset-on-one-rank": "the optimizer updates the right parameters"},
    references=(
        Reference(
            "torch.optim: construct the optimizer after the model has its final parameters",
            "https://docs.pytorch.org/docs/stable/optim.html",
        ),
        Reference(
            "A parameter that was replaced behind DDP's back",
            "https://github.com/pytorch/pytorch/issues/12603",
        ),
    ),
)
