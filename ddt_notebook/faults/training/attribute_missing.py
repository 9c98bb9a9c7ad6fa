"""A function that this version of a package does not have."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="attribute-missing",
    title="the installed version of a package has no such name",
    symptoms=("D.1.8",),
    views=("stacks",),
    sees="""
        `module 'torch.distributed' has no attribute …` on every rank, in code that was copied from
        a page or runs on another machine.
    """,
    why="""
        Versions add, move and remove functions. Those for several GPUs in one process, such as
        all_reduce_multigpu, were removed; others got new names or moved to another module; the code
        was written for another version than the one that is installed.
    """,
    broken="""
        correct = torch.tensor([3.0 + rank])
        seen = torch.tensor([8.0])
        for part in (correct, seen):
            dist.all_reduce_multigpu([part])
        if rank == 0:
            print("accuracy", (correct / seen).item())
    """,
    fixed="""
        correct = torch.tensor([3.0 + rank])
        seen = torch.tensor([8.0])
        for part in (correct, seen):
            dist.all_reduce(part)
        if rank == 0:
            print("accuracy", (correct / seen).item())
    """,
    proof="assert (correct.item(), seen.item()) == (7.0, 16.0)",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix framework installation/version",
            "see which version of the package has the name (its documentation has a page for "
            "each), and install it for the ranks' interpreter",
        ),
        Advice(
            "fix distributed API usage",
            "call what this version has instead, such as all_reduce with one process for each GPU",
        ),
        Advice(
            "fix dependency installation/version",
            "if the line is in a library: match its version with that of torch",
        ),
    ),
    gloo=("module 'torch.distributed' has no attribute 'all_reduce_multigpu'",),
    nccl=("module 'torch.distributed' has no attribute 'all_reduce_multigpu'",),
    cluster="""
        All ranks of the nodes with one image fail, those with another image wait for them: compare
        `torch.__version__` over the ranks first.
    """,
    apart={"wrapped-by-ddp": "the name belongs to the model behind the wrapper"},
    references=(
        Reference(
            "torch.distributed: collective functions",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
)
