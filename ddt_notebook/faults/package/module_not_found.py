"""A module of the project is not on the path of the ranks."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="module-not-found",
    title="a module is not installed, or not on the path of the ranks",
    symptoms=("A.2",),
    sees="""
        `ModuleNotFoundError: No module named …` on all ranks, or on those of one machine, although
        the module is there: the same import works in another terminal or in another folder.
    """,
    why="""
        Python looks for a module in the folder of the script (in a notebook: the working folder),
        in PYTHONPATH, and among the packages of the interpreter that runs. The ranks may have been
        started by another interpreter, from another folder, or on a machine on which the package
        was never installed.
    """,
    setup=SCRATCH
    + """
if rank == 0:
    os.mkdir("src")
    with open("src/tinynet.py", "w") as file:
        file.write("import torch\\n\\nclass TinyNet(torch.nn.Linear):\\n    pass\\n")
""",
    broken="""
        from tinynet import TinyNet

        torch.manual_seed(0)
        model = DDP(TinyNet(8, 2))
        model(torch.ones(4, 8)).sum().backward()
    """,
    fixed="""
        import os
        import sys

        sys.path.insert(0, os.path.abspath("src"))

        from tinynet import TinyNet

        torch.manual_seed(0)
        model = DDP(TinyNet(8, 2))
        model(torch.ones(4, 8)).sum().backward()
    """,
    proof="""
        assert type(model.module).__module__ == "tinynet"
        assert model.module.weight.grad is not None
    """,
    expected=Expected(ranks=(0, 1), lines={0: 1, 1: 1}),
    fixes=(
        Advice(
            "fix dependency path",
            "for a module of your own: install the project (`pip install -e .`), or put its folder "
            "into PYTHONPATH for every rank",
        ),
        Advice(
            "fix dependency installation/version",
            "for a package: install it with the interpreter that runs the ranks "
            "(`sys.executable -m pip install …`), on every machine",
        ),
        Advice(
            "fix consistency between devices",
            "if one machine lacks it, start all of them from the same image or environment file",
        ),
    ),
    gloo=("ModuleNotFoundError: No module named",),
    nccl=("ModuleNotFoundError: No module named",),
    cluster="""
        The job works where it was written and fails in the scheduler, which starts it from the home
        folder and without the environment that the shell had activated. torchrun prints the error
        once for each rank and ends with ChildFailedError.
    """,
    apart={
        "module-shadowed": "Python finds a module of that name, but the wrong one",
        "package-version": "the package is found and lacks the part that is asked for",
    },
    references=(
        Reference(
            "Python: the initialization of sys.path",
            "https://docs.python.org/3/library/sys_path_init.html",
        ),
    ),
    in_source=False,
)
