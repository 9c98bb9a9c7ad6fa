"""One host has another environment than the others."""

from ddt_notebook.faults.card import Advice, Reference
from ddt_notebook.faults.host_card import HostCard

CARD = HostCard(
    id="environment-differs-by-host",
    title="one host has other versions or another environment",
    symptoms=("A.1", "B.1", "D.1.1"),
    sees="""
        The same script behaves differently on one host: it is slower, prints other logs, raises in
        the first collective, or ranks wait for a check that only some of them make.
    """,
    why="""
        A launcher starts the processes with what each host has: its own installation, its own
        shell files, its own container. Nothing compares them, and a version or a variable that
        changes what is sent must be the same everywhere.
    """,
    agent="env TORCH_NCCL_BLOCKING_WAIT=1",
    check="TORCH_NCCL_BLOCKING_WAIT",
    fixes=(
        Advice(
            "fix consistency between devices",
            "install the same versions from one lock file or one image on all hosts, and let the "
            "launcher set the variables (`mpirun -x`, `srun --export`)",
        ),
    ),
    cluster="""
        One node was installed again or was down during an update. Most often a few ranks only, all
        of one node, raise or are slow.
    """,
    apart={"slow-host": "versions and variables are the same"},
    references=(
        Reference(
            "PyTorch: environment variables of torch.distributed with NCCL",
            "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
        ),
    ),
)
