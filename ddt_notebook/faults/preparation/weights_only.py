"""A checkpoint holds an object of a user's class."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="weights-only",
    title="the checkpoint holds more than tensors, and torch.load accepts only tensors",
    symptoms=("C.1", "C.8"),
    sees="""
        torch.load raises an UnpicklingError, `Weights only load failed`, and names a class that is
        not allowed. The very same file could be read with an older PyTorch.
    """,
    why="""
        Since version 2.6 torch.load reads only tensors and plain containers by default, because a
        pickle may run any code. A configuration object, a namespace of arguments or a numpy scalar
        in the checkpoint is neither.
    """,
    setup=SCRATCH,
    broken="""
        class Settings:
            def __init__(self, hidden, lr):
                self.hidden, self.lr = hidden, lr

        settings = Settings(hidden=4, lr=0.1)
        model = DDP(torch.nn.Linear(8, settings.hidden))
        if rank == 0:
            state = model.module.state_dict()
            torch.save({"model": state, "settings": settings}, "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt", map_location="cpu")
        model.module.load_state_dict(checkpoint["model"])
    """,
    fixed="""
        class Settings:
            def __init__(self, hidden, lr):
                self.hidden, self.lr = hidden, lr

        settings = Settings(hidden=4, lr=0.1)
        model = DDP(torch.nn.Linear(8, settings.hidden))
        if rank == 0:
            state = model.module.state_dict()
            torch.save({"model": state, "settings": vars(settings)}, "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt", map_location="cpu")
        model.module.load_state_dict(checkpoint["model"])
    """,
    proof='assert checkpoint["settings"] == {"hidden": 4, "lr": 0.1}',
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}),
    fixes=(
        Advice(
            "fix behavior logic",
            "put only tensors, numbers, strings, lists and dicts into the checkpoint: "
            "`vars(settings)` instead of `settings`",
        ),
        Advice(
            "fix framework installation/version",
            "a file written for an older PyTorch: allow its class with "
            "torch.serialization.add_safe_globals, or pass weights_only=False if you trust it",
        ),
        Advice(
            "save single-device model/weights only",
            "save the weights alone and the settings beside them, as JSON",
        ),
    ),
    gloo=("Weights only load failed", "was not an allowed global by default"),
    nccl=("Weights only load failed", "was not an allowed global by default"),
    cluster="""
        A job that was resumed for months stops at its start on all ranks after the image got a
        newer PyTorch. Jobs on nodes with the old image still run.
    """,
    apart={"checkpoint-unreadable": "the file itself is cut off or overwritten"},
    references=(
        Reference(
            "PyTorch notes on serialization: torch.load with weights_only=True",
            "https://docs.pytorch.org/docs/stable/notes/serialization.html",
        ),
    ),
    in_source=False,
)
