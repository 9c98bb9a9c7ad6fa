"""All ranks save to one path."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-written-by-every-rank",
    title="every rank saves to the same path at the same time",
    symptoms=("D.1.6", "C.8"),
    views=("stacks",),
    setup=SCRATCH,
    sees="""
        Usually nothing shows. Sometimes a checkpoint cannot be read, or it holds the state of
        another rank than rank 0: its random state, its part of the data, its running averages.
    """,
    why="""
        Each rank runs the whole script, so a line that saves runs on each of them. They open the
        same file, truncate it and overwrite each other's bytes; the last writer decides what
        remains.
    """,
    broken="""
        model = DDP(torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 10)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            loss = model(torch.randn(8, 1024)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            torch.save({"epoch": epoch, "model": model.module.state_dict()}, "last.pt")
    """,
    fixed="""
        import os

        model = DDP(torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 10)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            loss = model(torch.randn(8, 1024)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                torch.save({"epoch": epoch, "model": model.module.state_dict()}, "last.pt.tmp")
                os.replace("last.pt.tmp", "last.pt")
        dist.barrier()
    """,
    proof="""
        checkpoint = torch.load("last.pt")
        assert checkpoint["epoch"] == 1
        assert torch.equal(checkpoint["model"]["1.bias"], model.module[1].bias)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 8, 1: 8}),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "save on rank 0 alone (`if rank == 0:`), since DDP keeps the models equal, and let the "
            "others meet it in a barrier before they read",
        ),
        Advice(
            "fix behavior logic",
            "write what differs between the ranks into one file for each rank:"
            '`f"state_{{rank}}.pt"`, where rank is the variable',
        ),
    ),
    cluster="""
        On a shared file system with many ranks, checkpoints are unreadable at random, saving takes
        as many times longer as there are ranks, and the job resumes only from an older file.
    """,
    apart={
        "checkpoint-unreadable": "a rank reads the file while another one writes it",
        "checkpoint-read-too-early": "one rank writes, and others read without waiting",
    },
    references=(
        Reference(
            "DDP tutorial: save in one process, load in all",
            "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        ),
        Reference(
            "A repair from practice: all ranks wrote the same files",
            "https://github.com/MLI-lab/DeepDeWedge/pull/41",
        ),
    ),
)
