"""Ranks accumulate gradients over different numbers of micro-batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="uneven-backward-passes",
    title="ranks accumulate gradients over different numbers of micro-batches",
    symptoms=("D.2.4", "D.2.5", "D.2.1"),
    views=("stacks",),
    sees="""
        Nothing fails, and replicas stay equal. The loss curve differs from a run on one rank with
        the same samples in a batch, and some samples seem to count more than others. Where the
        total number of passes is the same, ranks exchange gradients unequally often: one of them
        ends, and another one hangs in its last backward passes.
    """,
    why="""
        DDP sends gradients once in a step, after all micro-batches but the last one were
        accumulated inside no_sync(). So ranks may accumulate over unequal numbers of them and
        nothing waits. DDP then divides the sum by the number of ranks, as if each rank had given
        as much: a rank with more micro-batches pulls harder, or, if each divides by its own number,
        its samples count less.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        accumulate = 4 if rank == 0 else 6

        for step in range(5):
            optimizer.zero_grad()
            for micro in range(accumulate):
                model.require_backward_grad_sync = micro == accumulate - 1
                loss = model(torch.randn(16, 8)).square().mean() / accumulate
                loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        accumulate = 5
        passes = 0

        for step in range(5):
            optimizer.zero_grad()
            for micro in range(accumulate):
                model.require_backward_grad_sync = micro == accumulate - 1
                loss = model(torch.randn(16, 8)).square().mean() / accumulate
                loss.backward()
                passes += 1
            optimizer.step()
    """,
    proof="""
        total = torch.tensor(float(passes))
        dist.all_reduce(total)
        assert total.item() == passes * world_size == 50
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "accumulate over the same number of micro-batches on every rank; if their sizes "
            "differ, all_reduce the number of samples and divide the summed loss by it",
        ),
        Advice(
            "fix batch size/data partition",
            "compute the number from the global batch size, the batch of one rank and the number "
            "of ranks, and check that it is a whole number",
        ),
    ),
    cluster="""
        It occurs where the number of micro-batches is chosen for each kind of GPU, or from the
        length of each rank's own data. The faster ranks wait in the last micro-batch of each step,
        so that they look like victims of a straggler.
    """,
    apart={
        "steps-skipped-on-some-ranks": "the passes are equal and a step is left out",
        "no-sync-left-on": "no pass before the step averages the gradients",
        "uneven-iterations": "ranks make unequal numbers of steps, and one waits for ever",
    },
    references=(
        Reference(
            "DistributedDataParallel.no_sync",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
