"""Two modules import each other."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="circular-import",
    title="two modules of the project import each other",
    symptoms=("A.2",),
    sees="""
        `ImportError: cannot import name … from partially initialized module … (most likely due to a
        circular import)`, although the file defines the name.
    """,
    why="""
        The first module imports the second while Python is still executing the first. The second
        then needs a name that the first has not defined yet. Whether it fails depends on which of
        the two is imported first: the training script may work and the evaluation fail.
    """,
    setup=SCRATCH + "import sys\nsys.path.insert(0, shared[0])\n",
    broken="""
        from pathlib import Path

        if local_rank == 0:
            Path("nets.py").write_text(
                "import torch\\nfrom losses import penalty\\n\\n"
                "class Net(torch.nn.Linear):\\n    def loss(self, x):\\n"
                "        return self(x).mean() + penalty(self)\\n"
            )
            Path("losses.py").write_text(
                "from nets import Net\\n\\n"
                "def penalty(net: Net):\\n    return 0.01 * net.weight.square().sum()\\n"
            )
        dist.barrier()

        from nets import Net

        loss = Net(4, 1).loss(torch.ones(2, 4))
    """,
    fixed="""
        from pathlib import Path

        if local_rank == 0:
            Path("nets.py").write_text(
                "import torch\\nfrom losses import penalty\\n\\n"
                "class Net(torch.nn.Linear):\\n    def loss(self, x):\\n"
                "        return self(x).mean() + penalty(self)\\n"
            )
            Path("losses.py").write_text(
                "def penalty(net):\\n    return 0.01 * net.weight.square().sum()\\n"
            )
        dist.barrier()

        from nets import Net

        loss = Net(4, 1).loss(torch.ones(2, 4))
    """,
    proof="assert loss.ndim == 0 and torch.isfinite(loss)",
    expected=Expected(ranks=(0, 1)),
    fixes=(
        Advice(
            "fix dependency path",
            "move what both need into a third module, or import it inside the function that uses "
            "it; if one of the two files has the name of a library, rename it",
        ),
        Advice(
            "fix dependency installation/version",
            "if both files belong to a library, install another release of it",
        ),
    ),
    gloo=("(most likely due to a circular import)",),
    nccl=("(most likely due to a circular import)",),
    cluster="""
        All ranks fail alike and at once, before a group is formed. In a job that uses `spawn` the
        main process works and its children fail, because they import the modules in another order.
    """,
    apart={"module-shadowed": "one file of the project is involved: it hides a library"},
    references=(
        Reference(
            "Python: how to avoid circular imports",
            "https://docs.python.org/3/faq/programming.html"
            "#what-are-the-best-practices-for-using-import-in-a-module",
        ),
    ),
    in_source=False,
)
