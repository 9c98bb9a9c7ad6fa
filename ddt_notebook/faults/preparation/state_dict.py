"""A checkpoint whose keys are not those of the model."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="state-dict",
    title="the checkpoint is of a model with other parts or other names",
    symptoms=("C.1",),
    views=("stacks",),
    sees="""
        load_state_dict raises on every rank and lists keys that the model expects and the file
        does not have, and keys of the file that the model does not know.
    """,
    why="""
        A state dict maps the path of each parameter through the modules to its tensor. Renaming a
        submodule, moving it one level deeper, adding a layer or wrapping the model (as
        torch.compile does) changes those paths, and the file keeps the old ones.
    """,
    setup=SCRATCH,
    broken="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = torch.nn.Linear(8, 4)
                self.head = torch.nn.Linear(4, 2)
            def forward(self, x):
                return self.head(self.encoder(x).relu())

        if rank == 0:
            pretrained = torch.nn.ModuleDict({"backbone": torch.nn.Linear(8, 4)})
            torch.save(pretrained.state_dict(), "pretrained.pt")
        dist.barrier()

        model = Classifier()
        model.load_state_dict(torch.load("pretrained.pt"))
        model = DDP(model)
    """,
    fixed="""
        class Classifier(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.encoder = torch.nn.Linear(8, 4)
                self.head = torch.nn.Linear(4, 2)
            def forward(self, x):
                return self.head(self.encoder(x).relu())

        if rank == 0:
            pretrained = torch.nn.ModuleDict({"backbone": torch.nn.Linear(8, 4)})
            torch.save(pretrained.state_dict(), "pretrained.pt")
        dist.barrier()

        model = Classifier()
        state = torch.load("pretrained.pt")
        model.encoder.load_state_dict({k.removeprefix("backbone."): v for k, v in state.items()})
        model = DDP(model)
    """,
    proof="""
        assert torch.equal(model.module.encoder.weight, state["backbone.weight"])
        assert model(torch.ones(3, 8)).shape == (3, 2)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 15, 1: 15}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "load a state dict of the same model, wrapped the same way; or load the part that is "
            "shared into the submodule that it belongs to, with its keys renamed",
        ),
        Advice(
            "fix dependency installation/version",
            "use the version of the model's library with which the checkpoint was written, or "
            "its own loading function, which renames old keys",
        ),
    ),
    gloo=('Missing key(s) in state_dict: "encoder.weight"',),
    nccl=('Missing key(s) in state_dict: "encoder.weight"',),
    cluster="""
        Every rank of the job stops before its first step with the same list of keys. With
        `strict=False` nothing is raised, the layers keep their random values, and the only trace
        is a loss that starts too high.
    """,
    apart={"state-dict-prefix": "the names differ only by the wrapper's `module.`"},
    references=(
        Reference(
            "PyTorch tutorial: saving and loading models",
            "https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
        ),
    ),
    in_source=False,
)
