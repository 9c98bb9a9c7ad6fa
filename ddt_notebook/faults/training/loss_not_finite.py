"""The loss becomes nan or inf on all ranks in the same pass."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="loss-not-finite",
    title="the loss is not finite on all ranks at once",
    symptoms=("D.2.5", "D.2.4"),
    n=2,
    sees="""
        The loss is nan or inf on every rank from the same step on, often the first. It is the same
        with one process alone.
    """,
    why="""
        The cause has nothing to do with distribution: an overflow, a logarithm of zero or zero
        times infinity in the model, the loss or the step. Every rank computes the same formula with
        the same result. Averaging only makes sure that none recovers.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        torch.manual_seed(rank)
        for step in range(4):
            x = torch.randn(16, 5) * 1000
            target = torch.nn.functional.one_hot(torch.randint(3, (16,)), 3)
            probability = torch.softmax(model(x), dim=1)
            loss = -(target * probability.log()).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(5, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        torch.manual_seed(rank)
        for step in range(4):
            x = torch.randn(16, 5) * 1000
            target = torch.nn.functional.one_hot(torch.randint(3, (16,)), 3)
            log_probability = torch.log_softmax(model(x), dim=1)
            loss = -(target * log_probability).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert loss.isfinite()
        assert all(parameter.isfinite().all() for parameter in model.parameters())
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="likely"),
    fixes=(
        Advice(
            "fix model construction",
            "use the stable form of the formula (log_softmax, logsumexp, an epsilon under a root "
            "or a logarithm); torch.autograd.set_detect_anomaly names the operation",
        ),
        Advice(
            "fix behavior logic",
            "lower the learning rate or clip the norm of the gradients, if it grew before it broke",
        ),
    ),
    cluster="""
        All logs turn to nan in the same iteration, and a run on one device does so too. In mixed
        precision look for float16 first.
    """,
    apart={"nan-from-one-rank": "it begins in one rank's data and spreads in the next step"},
    references=(
        Reference(
            "torch.autograd: anomaly detection",
            "https://docs.pytorch.org/docs/stable/autograd.html",
        ),
    ),
    in_source=False,
)
