"""A state dict of the wrapper, loaded into the bare model."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="state-dict-prefix",
    title="the checkpoint has the names of the DDP wrapper, the model has its own",
    symptoms=("C.1", "D.1.6", "C.8"),
    views=("stacks",),
    sees="""
        Loading fails with a long list: every parameter is missing under its own name, and an
        unexpected one is there under the same name with `module.` before it, or the other way
        round.
    """,
    why="""
        DistributedDataParallel keeps your model as its submodule `module`, so the keys of the
        wrapper's state dict all begin with `module.`. A model that is not wrapped knows the keys
        only without it. The tensors are right; only their names differ.
    """,
    setup=SCRATCH,
    broken="""
        def build():
            return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))

        model = DDP(build())
        if rank == 0:
            torch.save(model.state_dict(), "model.pt")
        dist.barrier()

        evaluated = build()
        evaluated.load_state_dict(torch.load("model.pt"))
    """,
    fixed="""
        def build():
            return torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))

        model = DDP(build())
        if rank == 0:
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()

        evaluated = build()
        evaluated.load_state_dict(torch.load("model.pt"))
    """,
    proof="""
        x = torch.ones(3, 8)
        assert torch.equal(evaluated(x), model.module(x))
    """,
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "save `ddp.module.state_dict()` and load into the bare model; keys that are already "
            "written lose their prefix with "
            "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present",
        ),
        Advice(
            "save single-device model/weights only",
            "keep in checkpoints what does not depend on the number of ranks: the state of the "
            "bare model and of the optimizer, not the wrapper",
        ),
    ),
    gloo=(
        'Missing key(s) in state_dict: "0.weight", "0.bias"',
        'Unexpected key(s) in state_dict: "module.0.weight", "module.0.bias"',
    ),
    nccl=('Unexpected key(s) in state_dict: "module.0.weight", "module.0.bias"',),
    cluster="""
        Training on many GPUs ends well; the failure comes hours later, in the job that evaluates
        or serves the model on a single device. All ranks of that job print the same list of keys.
    """,
    apart={
        "state-dict-shape": "the names agree and the sizes of the tensors do not",
        "state-dict": "the names differ in more than the prefix",
    },
    references=(
        Reference(
            "PyTorch issue 3805: unexpected keys with the prefix of the wrapper",
            "https://github.com/pytorch/pytorch/issues/3805",
        ),
        Reference(
            "DDP tutorial: save and load checkpoints",
            "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html",
        ),
    ),
)
