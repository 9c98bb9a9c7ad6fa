"""The parameters of a checkpoint have other sizes than those of the model."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="state-dict-shape",
    title="the model is built with other sizes than the checkpoint holds",
    symptoms=("C.1", "D.1.5"),
    views=("stacks",),
    sees="""
        load_state_dict raises `size mismatch` for one or a few parameters, mostly those of the
        last layer or of the embedding; all other names and sizes fit.
    """,
    why="""
        The sizes of a layer come from the configuration: number of classes, vocabulary, width.
        Here each rank derives the number of classes from the part of the data that it sees, so a
        rank whose part lacks a class builds a smaller layer than the one that was saved.
    """,
    setup=SCRATCH,
    broken="""
        labels = [0, 1, 2, 3, 0, 1, 2, 2]
        mine = labels[rank * 4:(rank + 1) * 4]

        if rank == 0:
            torch.save(torch.nn.Linear(8, 4).state_dict(), "classifier.pt")
        dist.barrier()

        model = torch.nn.Linear(8, len(set(mine)))
        model.load_state_dict(torch.load("classifier.pt"))
        model = DDP(model)
    """,
    fixed="""
        labels = [0, 1, 2, 3, 0, 1, 2, 2]
        mine = labels[rank * 4:(rank + 1) * 4]

        if rank == 0:
            torch.save(torch.nn.Linear(8, 4).state_dict(), "classifier.pt")
        dist.barrier()

        model = torch.nn.Linear(8, len(set(labels)))
        model.load_state_dict(torch.load("classifier.pt"))
        model = DDP(model)
    """,
    proof="assert model(torch.ones(2, 8)).shape == (2, 4)",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 10, 1: 9}),
    fixes=(
        Advice(
            "fix model construction",
            "build the model with the sizes of the checkpoint, from one configuration that all "
            "ranks read; never from a rank's own part of the data",
        ),
        Advice(
            "fix distributed API usage",
            "to give a model a new head, load the body alone: leave the head's keys out and "
            "pass strict=False",
        ),
    ),
    gloo=(
        "size mismatch for weight: copying a param with shape torch.Size([4, 8]) from checkpoint",
    ),
    nccl=(
        "size mismatch for weight: copying a param with shape torch.Size([4, 8]) from checkpoint",
    ),
    cluster="""
        One rank of many prints the size mismatch and ends; the launcher then stops the others,
        whose logs show only that a peer closed the connection. With another seed or another
        number of ranks it is another rank, or none.
    """,
    apart={
        "models-differ": "no file is involved: DDP itself finds that the models differ",
        "state-dict-prefix": "names are missing, not sizes wrong",
    },
    references=(
        Reference(
            "PyTorch tutorial: saving and loading models",
            "https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
        ),
    ),
    in_source=False,
)
