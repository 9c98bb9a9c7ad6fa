"""The saved state belongs to an optimizer with other parameter groups."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="optimizer-state",
    title="the saved optimizer has other parameter groups than the one that resumes",
    symptoms=("D.1.6", "C.1"),
    views=("stacks",),
    sees="""
        The model of a checkpoint loads, its optimizer does not: the loaded state dict has a
        different number of parameter groups, or contains a group that does not match in size.
    """,
    why="""
        The state of an optimizer identifies its parameters only by their position in the groups. If
        the resumed program forms the groups otherwise, with or without a separate group for the
        head or for biases, or over frozen parameters, the positions mean something else.
    """,
    setup=SCRATCH,
    broken="""
        net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model = DDP(net)
        groups = [{"params": net[0].parameters(), "lr": 1e-4}, {"params": net[2].parameters()}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3)
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt")
        net.load_state_dict(checkpoint["model"])
        resumed = torch.optim.AdamW(model.parameters(), lr=1e-3)
        resumed.load_state_dict(checkpoint["optimizer"])
    """,
    fixed="""
        net = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model = DDP(net)
        def build_optimizer():
            groups = [{"params": net[0].parameters(), "lr": 1e-4}, {"params": net[2].parameters()}]
            return torch.optim.AdamW(groups, lr=1e-3)
        optimizer = build_optimizer()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt")
        net.load_state_dict(checkpoint["model"])
        resumed = build_optimizer()
        resumed.load_state_dict(checkpoint["optimizer"])
    """,
    proof="""
        assert [group["lr"] for group in resumed.param_groups] == [1e-4, 1e-3]
        assert len(resumed.state) == 4
    """,
    expected=Expected(ranks=(0, 1), lines={0: 14, 1: 14}),
    fixes=(
        Advice(
            "fix behavior logic",
            "build the optimizer by the same function when you train and when you resume, with "
            "the same groups in the same order, then load",
        ),
        Advice(
            "save single-device model/weights only",
            "if the optimizer has changed on purpose, resume from the weights alone and let it "
            "build a new state",
        ),
    ),
    gloo=("loaded state dict has a different number of parameter groups",),
    nccl=("loaded state dict contains a parameter group that doesn't match the size",),
    cluster="""
        A job that was preempted does not come back: all ranks stop right after loading the model.
        With a sharded optimizer it also happens when the number of ranks has changed.
    """,
    apart={"state-dict": "the model's own keys do not fit"},
    references=(
        Reference(
            "Optimizer.load_state_dict",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.optim.Optimizer.load_state_dict.html",
        ),
    ),
    in_source=False,
)
