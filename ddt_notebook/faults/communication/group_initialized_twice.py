"""The process group is formed a second time."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="group-initialized-twice",
    title="the process group is formed a second time",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        "trying to initialize the default process group twice!" on every rank, often when a cell of
        a notebook is run again, or when a library and the script both set the group up.
    """,
    why="""
        A process has one default group, which exists until destroy_process_group. In a script the
        set-up runs once; in a notebook the process goes on between two runs of the cell, and
        trainers such as Lightning or Accelerate form the group themselves.
    """,
    broken="""
        def train(steps):
            dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(torch.nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
            return model

        model = train(steps=2)
        model = train(steps=4)
    """,
    fixed="""
        def train(steps):
            if not dist.is_initialized():
                dist.init_process_group("gloo")
            torch.manual_seed(0)
            model = DDP(torch.nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.randn(8, 4)).square().mean().backward()
                optimizer.step()
            return model

        model = train(steps=2)
        model = train(steps=4)
    """,
    proof="""
        assert dist.get_world_size() == world_size
        assert model.module.weight.grad is not None
    """,
    expected=Expected(ranks=(0, 1), lines={0: 2, 1: 2}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "form the group once: `if not dist.is_initialized():` before {op}, or leave it to the "
            "library that does it; in a session that has formed the group, leave the call out "
            "(`%ddt_start --no-group` to form it yourself)",
        ),
        Advice(
            "fix behavior logic",
            "call destroy_process_group at the end of what formed it, in a `finally`",
        ),
    ),
    gloo=("trying to initialize the default process group twice!",),
    nccl=("trying to initialize the default process group twice!",),
    cluster="""
        The job ends in its first second, on all ranks alike, usually after a trainer was put around
        a script that set the group up by itself.
    """,
    apart={"group-not-initialized": "it was never formed, or is gone already"},
    references=(
        Reference(
            "torch.distributed: init_process_group, is_initialized",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",
        ),
    ),
)
