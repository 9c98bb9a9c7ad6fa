"""Ranks with different numbers of batches: those with more wait for the others."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="uneven-iterations",
    title="more steps on some ranks than on others",
    symptoms=("D.2.1", "C.7"),
    views=("partition", "stacks"),
    n=3,
    sees="""
        Training runs well until the end of the first epoch and then hangs. Some ranks have
        finished the epoch and gone on; the others stand in a backward pass that never ends.
    """,
    why="""
        In each backward pass DDP averages gradients with all ranks. A rank with fewer batches does
        fewer backward passes. When it is done, the ranks that have one more batch wait for a
        contribution that never comes.
    """,
    broken="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.randn(40, 8))
        shards = [range(0, 16), range(16, 32), range(32, 40)]
        loader = DataLoader(Subset(data, shards[rank]), batch_size=4)
        model = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            steps += 1
    """,
    fixed="""
        from torch.utils.data import DataLoader, Subset, TensorDataset

        data = TensorDataset(torch.randn(40, 8))
        shards = [range(0, 16), range(16, 32), range(32, 40)]
        loader = DataLoader(Subset(data, shards[rank]), batch_size=4)
        model = DDP(torch.nn.Linear(8, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        with model.join():
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                steps += 1
    """,
    proof="assert steps == (2 if rank == 2 else 4)",
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 11, 1: 11}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give every rank the same number of batches (DistributedSampler, drop_last=True), or "
            "train inside `with model.join():`",
        ),
        Advice(
            "fix behavior logic",
            "let the ranks agree on the number of steps first: all_reduce len(loader) with "
            "ReduceOp.MIN, and stop all of them there",
        ),
    ),
    gloo=("Connection closed by peer", "Timed out waiting 1800000ms for recv operation"),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        The hang comes at the same step in every run, near the end of an epoch. One rank's log has
        already reached the evaluation or the checkpoint; ten minutes later the watchdog of NCCL
        ends the others in an ALLREDUCE. If that rank meets another collective next, ranks may
        exchange gradients for something else, and fail with a size mismatch.
    """,
    apart={
        "early-exit-on-rank-condition": "a rank leaves the loop by a condition in the code",
        "loop-ends-by-clock": "each rank ends its loop by its own clock",
        "no-batches-on-a-rank": "a rank has no batch at all",
    },
    references=(
        Reference(
            "Support uneven DDP inputs",
            "https://github.com/pytorch/pytorch/issues/33148",
        ),
        Reference(
            "Join: distributed training with uneven inputs",
            "https://docs.pytorch.org/tutorials/advanced/generic_join.html",
        ),
    ),
)
