"""Only some ranks find a file."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="path-missing",
    title="ranks open a file that another rank has not made yet, or made elsewhere",
    symptoms=("D.1.9", "D.1.6"),
    n=3,
    setup=SCRATCH,
    sees="""
        FileNotFoundError on some ranks, for a file that exists when you look. The ranks that found
        it wait in the next collective.
    """,
    why="""
        One rank downloads, unpacks or writes, and the others do not wait for it. Or the path is
        relative and the ranks have different working directories; or it lies on a disk that only
        one of the machines has.
    """,
    broken="""
        import json, time

        if rank == 0:
            time.sleep(0.6)
            with open("vocabulary.json", "w") as file:
                json.dump(["the", "cat", "sat"], file)

        with open("vocabulary.json") as file:
            vocabulary = json.load(file)
        model = DDP(torch.nn.Linear(len(vocabulary), 4))
    """,
    fixed="""
        import json, time

        if rank == 0:
            time.sleep(0.6)
            with open("vocabulary.json", "w") as file:
                json.dump(["the", "cat", "sat"], file)
        dist.barrier()

        with open("vocabulary.json") as file:
            vocabulary = json.load(file)
        model = DDP(torch.nn.Linear(len(vocabulary), 4))
    """,
    proof="assert vocabulary == ['the', 'cat', 'sat']",
    expected=Expected(ranks=(1, 2), waiting=(0,), lines={0: 10, 1: 8, 2: 8}),
    fixes=(
        Advice(
            "fix behavior logic",
            "make the file on rank 0, let all ranks meet in a barrier, then open it",
        ),
        Advice(
            "fix consistency between devices",
            "use an absolute path on a disk that every rank sees, with the same files for all",
        ),
        Advice(
            "fix distributed API usage",
            "where the machines share no disk, make the file once per machine (on local_rank 0), "
            "or send its content with broadcast_object_list",
        ),
    ),
    gloo=("[Errno 2] No such file or directory: 'vocabulary.json'",),
    nccl=("[Errno 2] No such file or directory: 'vocabulary.json'",),
    cluster="""
        The first start fails and the second works, because by then the file is there; or all ranks
        of the second machine fail, always, because the path exists on the first only.
    """,
    apart={
        "folder-made-by-every-rank": "too many ranks make the same folder",
        "checkpoint-unreadable": "the file is there, but not complete",
    },
    references=(
        Reference(
            "torch.distributed.barrier",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
        Reference(
            "PyTorch issue 194614: a checkpoint that is deleted before another rank opens it",
            "https://github.com/pytorch/pytorch/pull/194614",
        ),
    ),
)
