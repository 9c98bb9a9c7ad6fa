"""torch does not know the name of the backend."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="backend-unknown",
    title="torch does not know the backend",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        `init_process_group` fails on every rank with "Unknown backend type", or "Unknown c10d
        backend type", and the name that was given.
    """,
    why="""
        A backend is named by a word (gloo, nccl, mpi, ucc), or by one for each kind of device in
        the form device:backend. Old tutorials name "tcp", which PyTorch removed long ago; a list
        without devices ("gloo,nccl") or with the two words exchanged ("gloo:cpu") is read as one
        word.
    """,
    broken="""
        config = {"backend": "tcp", "lr": 0.1}

        dist.init_process_group(config["backend"])
        model = DDP(torch.nn.Linear(4, 1))
    """,
    fixed="""
        config = {"backend": "gloo", "lr": 0.1}

        dist.init_process_group(config["backend"])
        model = DDP(torch.nn.Linear(4, 1))
    """,
    proof="assert dist.get_backend() == 'gloo' and isinstance(model, DDP)",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix communication configuration",
            "name a backend that torch has: gloo on CPU, nccl on GPUs, or both as "
            "`cpu:gloo,cuda:nccl`",
        ),
        Advice(
            "fix dependency installation/version",
            "a backend of another package (ccl, hccl, ucc) is known once that package is installed "
            "and imported",
        ),
        Advice(
            "fix framework installation/version",
            "a backend of an old tutorial may have been removed: follow the documentation of your "
            "version",
        ),
    ),
    gloo=("Unknown backend type", "Unknown c10d backend type"),
    nccl=("Unknown backend type",),
    cluster="""
        All ranks end in the first second. With an accelerator of another vendor, the image lacks
        its plug-in, or the script does not import it.
    """,
    apart={"backend-not-available": "torch knows the backend and was built without it"},
    references=(
        Reference(
            "torch.distributed: backends",
            "https://docs.pytorch.org/docs/stable/distributed.html#backends",
        ),
    ),
)
