"""A training loop that ends when its rank's own time is over."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="loop-ends-by-clock",
    title="a loop with collectives ends by each rank's own clock",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    n=3,
    sees="""
        A run that trains for a fixed time does not end: one process has printed its result, the
        others hang in their last step. Now and then the same script does finish.
    """,
    why="""
        No two ranks read the clock at the same moment, and they have not started at the same
        moment either. Near the limit one rank sees that its time is over and leaves, while
        another has just begun the next step and waits for it in a collective.
    """,
    broken="""
        import time

        start = time.time() - (0.3 if rank == 2 else 0.0)
        model = DDP(torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        while time.time() - start < 0.8:
            optimizer.zero_grad()
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            steps += 1
            time.sleep(0.02)
        print("trained", steps, "steps")
    """,
    fixed="""
        import time

        start = time.time() - (0.3 if rank == 2 else 0.0)
        model = DDP(torch.nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        steps = 0
        while True:
            over = torch.tensor(float(time.time() - start >= 0.8))
            dist.all_reduce(over, op=dist.ReduceOp.MAX)
            if over:
                break
            optimizer.zero_grad()
            model(torch.randn(8, 16)).sum().backward()
            optimizer.step()
            steps += 1
            time.sleep(0.02)
        print("trained", steps, "steps")
    """,
    proof="""
        counts = [None] * world_size
        dist.all_gather_object(counts, steps)
        assert steps > 0 and len(set(counts)) == 1
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 9, 1: 9, 2: 7}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let the ranks agree when to stop: all_reduce a stop flag in every round, or run a "
            "fixed number of steps",
        ),
    ),
    gloo=("Timed out waiting 1800000ms for recv operation to complete",),
    nccl=("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=",),
    cluster="""
        Jobs with a time budget end with a timeout instead of a result. The more ranks there are,
        the more often one of them reads its clock just before the end, and another one just after
        it. If all ranks compare with one time of day, the clocks of the machines also differ.
    """,
    apart={"uneven-iterations": "the loop ends by the number of batches, not by time"},
    references=(
        Reference(
            "Liu et al., Rise of Distributed Deep Learning Training in the Big Model Era",
            "https://arxiv.org/abs/2112.06222",
        ),
    ),
)
