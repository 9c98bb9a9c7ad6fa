"""A file of the user has the name of a library and is imported in its place."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="module-shadowed",
    title="a local file has the name of a library and is imported in its place",
    symptoms=("A.2",),
    sees="""
        An import that works everywhere else fails with "is not a package", or with "cannot import
        name" for a name that the library has. The path in the message is in the project.
    """,
    why="""
        The folder of the script, or of the notebook, comes first when Python looks for a module. A
        file there with the name of the library, often a first experiment with it, hides the library
        from every program that starts in that folder.
    """,
    setup=SCRATCH
    + """
import sys

if rank == 0:
    os.makedirs("lib/site-packages/fastreduce")
    open("lib/site-packages/fastreduce/__init__.py", "w").close()
    with open("lib/site-packages/fastreduce/ops.py", "w") as file:
        file.write("def total(x):\\n    import torch.distributed as dist\\n")
        file.write("    dist.all_reduce(x)\\n    return x\\n")
    with open("fastreduce.py", "w") as file:
        file.write("print('first steps with fastreduce')\\n")
sys.path[:0] = [shared[0], os.path.abspath("lib/site-packages")]
""",
    broken="""
        from fastreduce.ops import total

        ranks = total(torch.ones(1))
    """,
    fixed="""
        import importlib
        import os

        if local_rank == 0:
            os.rename("fastreduce.py", "first_steps.py")
        dist.barrier()
        importlib.invalidate_caches()

        from fastreduce.ops import total

        ranks = total(torch.ones(1))
    """,
    proof="assert ranks.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 1, 1: 1}),
    fixes=(
        Advice(
            "fix dependency path",
            "rename your file and delete its `__pycache__`; then restart, because the wrong module "
            "stays loaded",
        ),
        Advice(
            "fix build/install configuration",
            "keep experiments out of the folder from which the ranks start, or make the project a "
            "package with another name",
        ),
    ),
    gloo=("is not a package",),
    nccl=("is not a package",),
    cluster="""
        All ranks fail at the same import. Started from another folder, the same script runs.
    """,
    apart={
        "circular-import": "two modules of the project import each other",
        "package-version": "the path in the message leads to the library itself",
    },
    references=(
        Reference(
            "Python: the module search path",
            "https://docs.python.org/3/tutorial/modules.html#the-module-search-path",
        ),
    ),
    in_source=False,
)
