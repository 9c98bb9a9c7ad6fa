"""A rank decides by its own loss to leave out an optimizer step."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="steps-skipped-on-some-ranks",
    title="some ranks leave out an optimizer step that the others take",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    n=3,
    sees="""
        Nothing fails. From some step on the ranks' losses and parameters differ, evaluation gives
        another result on each rank, and a checkpoint of rank 0 is worse than the training curve
        suggests.
    """,
    why="""
        DDP keeps replicas equal by giving every rank the same gradients; it expects every rank to
        use them. Each rank here judges its own batch, and the one with an outlier skips the step,
        although the gradients that all ranks hold already contain that outlier. From then on the
        replicas are different models that share gradients.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = torch.randn(world_size, 8, 16, 8)
        batches[2, 5, 0] = 30.0

        for x in batches[rank]:
            loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            if loss.item() > 5.0:
                print("outlier, step left out")
                continue
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batches = torch.randn(world_size, 8, 16, 8)
        batches[2, 5, 0] = 30.0

        for x in batches[rank]:
            loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            worst = loss.detach().clone()
            dist.all_reduce(worst, op=dist.ReduceOp.MAX)
            if worst.item() > 5.0:
                continue
            optimizer.step()
    """,
    proof="""
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        everyone = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(everyone, mine)
        assert all(torch.equal(mine, other) for other in everyone)
    """,
    expected=Expected(ranks=(2,), lines={0: 14, 1: 14, 2: 14}),
    fixes=(
        Advice(
            "fix behavior logic",
            "let the ranks decide together: all_reduce the flag or the loss with MAX, and skip the "
            "step on all of them or on none",
        ),
        Advice(
            "fix distributed API usage",
            "judge the gradients instead of the local loss: after DDP has averaged them they are "
            "the same on every rank, and so is the decision",
        ),
    ),
    cluster="""
        It occurs in long runs with a guard against spikes or with gradients that overflow now and
        then: the metrics of the ranks drift apart after the first skipped step, and resuming from a
        checkpoint of one rank makes a jump in the loss.
    """,
    apart={
        "ranks-diverged-learning-rate": "all ranks take all steps, of different size",
        "model-reset-on-one-rank": "something else than the optimizer writes parameters",
        "collective-under-local-condition": "a rank leaves out a collective, and the others hang",
    },
    references=(
        Reference(
            "DistributedDataParallel: replicas start equal and get the same gradients",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
