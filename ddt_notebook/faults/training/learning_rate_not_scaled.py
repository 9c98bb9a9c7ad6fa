"""The global batch is larger, but the learning rate is not."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="learning-rate-not-scaled",
    title="the learning rate of one device is used for the batch of several",
    symptoms=("D.2.5",),
    n=2,
    sees="""
        An epoch takes half the time on two devices, but the loss after it is higher than it was on
        one; more epochs are needed, and the gain is gone.
    """,
    why="""
        With N ranks and the same batch on each, the global batch is N times as large and an epoch
        has N times fewer steps. DDP averages, so the size of a step stays as it was: for plain SGD
        the learning rate usually has to grow with the batch, after a short warm-up.
    """,
    broken="""
        base_lr = 0.02
        torch.manual_seed(0)
        data = torch.randn(256, 6)
        model = DDP(torch.nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=base_lr)

        for x in data[rank::world_size].split(16):
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        base_lr = 0.02
        torch.manual_seed(0)
        data = torch.randn(256, 6)
        model = DDP(torch.nn.Linear(6, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=base_lr * world_size)

        for x in data[rank::world_size].split(16):
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert optimizer.param_groups[0]["lr"] == base_lr * world_size
        assert loss.item() < 4
    """,
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "multiply the rate by world_size and warm it up, or keep it and say so by the name of "
            "the variable",
        ),
        Advice(
            "fix batch size/data partition",
            "divide the batch by world_size instead, so that the global batch stays as it was",
        ),
    ),
    cluster="""
        Curves over epochs get worse with every machine that is added, curves over steps do not.
        There is no message of any kind.
    """,
    apart={"ranks-diverged-learning-rate": "the ranks do not agree on the rate"},
    references=(
        Reference(
            "Accurate, Large Minibatch SGD: the linear scaling rule and warm-up",
            "https://arxiv.org/abs/1706.02677",
        ),
    ),
    in_source=False,
)
