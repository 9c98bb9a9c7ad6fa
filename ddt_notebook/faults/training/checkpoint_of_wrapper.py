"""A checkpoint that can only be loaded by a wrapped model."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-of-wrapper",
    title="the checkpoint keeps the names of the DDP wrapper",
    symptoms=("D.1.6", "C.8"),
    setup=SCRATCH,
    sees="""
        Training and resuming work. Loading the file later into the model without DDP, to test or to
        serve it, raises an error: every key is missing.
    """,
    why="""
        The state dict of the wrapper has `module.` before each name, because the model is its
        submodule of that name. The file then depends on how the training was distributed.
    """,
    broken="""
        model = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save({"step": step, "model": model.state_dict()}, "model.pt")
        dist.barrier()
    """,
    fixed="""
        model = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save({"step": step, "model": model.module.state_dict()}, "model.pt")
        dist.barrier()
    """,
    proof="""
        single = torch.nn.Linear(8, 2)
        single.load_state_dict(torch.load("model.pt")["model"])
        assert torch.equal(single.weight, model.module.weight)
    """,
    expected=Expected(ranks=(0,), lines={0: 8}, confidence="possible"),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "save `ddp.module.state_dict()`, the state of the bare model, which loads with any "
            "number of ranks",
        ),
    ),
    cluster="""
        The training job shows nothing. The first evaluation on one GPU prints a page of missing and
        unexpected keys, all the same but for `module.`.
    """,
    apart={
        "state-dict-prefix": "the file was loaded into a model without the wrapper, and that failed"
    },
    references=(
        Reference(
            "apex issue 647: the keys of a wrapped model carry a prefix",
            "https://github.com/NVIDIA/apex/issues/647",
        ),
        Reference(
            "PyTorch tutorial: saving and loading models",
            "https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
        ),
    ),
)
