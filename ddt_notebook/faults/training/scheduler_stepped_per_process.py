"""The learning-rate schedule counts the steps of all processes and is over too early."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="scheduler-stepped-per-process",
    title="the learning-rate scheduler steps once for each process and ends too early",
    symptoms=("D.2.5",),
    sees="""
        The learning rate falls faster than planned: with four ranks it is zero after a quarter of
        the run, and the loss stands still. With a cosine it rises again.
    """,
    why="""
        Some loops, and libraries such as accelerate, step the scheduler once for every process, as
        if each had its own batch in the schedule. That fits a schedule whose length counts the
        batches of all processes. A length that was computed from the rank's own loader is then too
        short by the number of ranks.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
        for step in range(12):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            for _ in range(world_size):
                schedule.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=12)
        for step in range(12):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            schedule.step()
    """,
    proof="assert schedule.last_epoch == 12 and optimizer.param_groups[0]['lr'] < 1e-6",
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "step the scheduler once for each step of the optimizer, or make the schedule as many "
            "times longer as there are processes",
        ),
    ),
    cluster="""
        The logged learning rate shows it at once: compare the step at which it is half of its peak
        with the planned one.
    """,
    apart={
        "ranks-diverged-learning-rate": "ranks have different learning rates",
        "learning-rate-not-scaled": "the rate itself does not fit the number of ranks",
    },
    references=(
        Reference(
            "torch.optim: how to adjust the learning rate",
            "https://docs.pytorch.org/docs/stable/optim.html#how-to-adjust-learning-rate",
        ),
    ),
)
