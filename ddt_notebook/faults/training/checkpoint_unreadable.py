"""A checkpoint is read while it is being written."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-unreadable",
    title="a checkpoint is read before it is complete",
    symptoms=("D.1.6", "C.1"),
    setup=SCRATCH,
    sees="""
        torch.load fails on some ranks with an EOFError without a text, or with `failed finding
        central directory`. A moment later, the file is complete.
    """,
    why="""
        A file exists from the moment it is opened, long before its last byte is written; and two
        ranks that write to one path overwrite each other's bytes. A rank that reads too early finds
        an incomplete file, because an existing file need not be complete.
    """,
    broken="""
        import os, time

        def validate(model):
            time.sleep(0.5)
            return {"accuracy": 0.9}

        model = torch.nn.Linear(64, 64)
        if rank == 0:
            with open("best.pt", "wb") as file:
                torch.save({"model": model.state_dict(), **validate(model)}, file)
        while not os.path.exists("best.pt"):
            time.sleep(0.02)
        checkpoint = torch.load("best.pt")
        model.load_state_dict(checkpoint["model"])
    """,
    fixed="""
        import os, time

        def validate(model):
            time.sleep(0.5)
            return {"accuracy": 0.9}

        model = torch.nn.Linear(64, 64)
        if rank == 0:
            torch.save({"model": model.state_dict(), **validate(model)}, "best.pt.tmp")
            os.replace("best.pt.tmp", "best.pt")
        dist.barrier()
        checkpoint = torch.load("best.pt")
        model.load_state_dict(checkpoint["model"])
    """,
    proof="""
        assert checkpoint["accuracy"] == 0.9
        total = torch.tensor([model.weight.sum().item()])
        gathered = [torch.empty(1) for _ in range(world_size)]
        dist.all_gather(gathered, total)
        assert torch.equal(gathered[0], gathered[1])
    """,
    expected=Expected(ranks=(1,), lines={1: 13}),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "write on rank 0 alone to a temporary file, rename it with os.replace, and let all "
            "ranks meet in a barrier before they read",
        ),
        Advice(
            "fix behavior logic",
            "for sharded models use torch.distributed.checkpoint, which gives each rank its own "
            "file and marks a checkpoint as complete at the end",
        ),
    ),
    gloo=("EOFError", "PytorchStreamReader failed reading zip archive"),
    nccl=("PytorchStreamReader failed reading zip archive: failed finding central directory",),
    cluster="""
        It comes and goes with the load of the shared file system, and is rare with two ranks and
        certain with a hundred. After a crash in the middle of saving, the last checkpoint stays
        broken for good.
    """,
    apart={
        "path-missing": "the file is not there at all",
        "weights-only": "the file is whole and holds a class that is not allowed",
    },
    references=(
        Reference(
            "PyTorch issue 103895: `failed finding central directory` on some ranks",
            "https://github.com/pytorch/pytorch/issues/103895",
        ),
        Reference(
            "torch.distributed.checkpoint",
            "https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",
        ),
    ),
)
