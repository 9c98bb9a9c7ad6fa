"""A job resumes with the weights of a checkpoint and leaves the optimizer's state in the file."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="resumed-without-state",
    title="a resumed run does not take over the state of its optimizer or scheduler",
    symptoms=("D.2.5", "D.2.4"),
    views=("parity",),
    setup=SCRATCH,
    sees="""
        After each restart the loss jumps and needs some hundred steps to come back. If only one
        rank loads the state, the ranks' parameters drift apart from the first step on.
    """,
    why="""
        Adam's moments, momentum and the position in the schedule are state, as the weights are. A
        checkpoint that holds them helps only if each rank calls load_state_dict for each of them.
        DDP sends parameters and buffers of rank 0 to the others, but not the state of the
        optimizer.
    """,
    broken="""
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(states, "last.pt")
        dist.barrier()

        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        states = torch.load("last.pt")
        model.module.load_state_dict(states["model"])
        if rank == 0:
            optimizer.load_state_dict(states["optimizer"])
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
    """,
    fixed="""
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        model(torch.randn(16, 8)).square().mean().backward()
        optimizer.step()
        if rank == 0:
            states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(states, "last.pt")
        dist.barrier()

        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        states = torch.load("last.pt")
        model.module.load_state_dict(states["model"])
        optimizer.load_state_dict(states["optimizer"])
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
    """,
    proof="assert optimizer.state[model.module.weight]['step'] == 5",
    expected=Expected(ranks=(1,), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "call load_state_dict for the model, the optimizer, the scheduler and the scaler on "
            "every rank, before the first step",
        ),
    ),
    cluster="""
        It shows as a saw tooth in the loss of a job that is preempted often. A schedule that starts
        again at its warm-up is the same fault.
    """,
    apart={
        "nothing-loaded": "the weights themselves were not taken over",
        "ranks-diverged-learning-rate": "ranks were set up differently",
    },
    references=(
        Reference(
            "Saving and loading a general checkpoint",
            "https://docs.pytorch.org/tutorials/recipes/recipes/"
            "saving_and_loading_a_general_checkpoint.html",
        ),
    ),
)
