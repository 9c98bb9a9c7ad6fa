"""Each rank changes the averaged gradients in another way before the step."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="gradients-changed-after-averaging",
    title="ranks change the averaged gradients differently before the step",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    n=3,
    sees="""
        Nothing fails, and the loss goes down on every rank. But the ranks' models are no longer
        the same, and an evaluation or a checkpoint depends on the rank that makes it.
    """,
    why="""
        After the backward pass all ranks hold the same gradients, and DDP does nothing more. What
        is done to them between there and the step has to be the same everywhere. Noise from
        random states that differ by rank, a scale from the local loss, or a clip by a norm of local
        values makes them different, and with them the replicas.
    """,
    broken="""
        def add_noise(parameters, scale):
            for p in parameters:
                p.grad.add_(torch.randn_like(p.grad), alpha=scale)

        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        torch.manual_seed(100 + rank)
        for step in range(6):
            loss = model(torch.randn(16, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            add_noise(model.parameters(), 0.1)
            optimizer.step()
    """,
    fixed="""
        def add_noise(parameters, scale, shared):
            for p in parameters:
                p.grad.add_(torch.randn(p.shape, generator=shared), alpha=scale)

        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(6, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        torch.manual_seed(100 + rank)
        shared = torch.Generator().manual_seed(7)
        for step in range(6):
            loss = model(torch.randn(16, 6)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            add_noise(model.parameters(), 0.1, shared)
            optimizer.step()
    """,
    proof="""
        mine = torch.cat([p.detach().flatten() for p in model.parameters()])
        everyone = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(everyone, mine)
        assert all(torch.equal(mine, other) for other in everyone)
    """,
    expected=Expected(ranks=(0, 1, 2), lines={0: 15, 1: 15, 2: 15}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "change gradients in the same way on every rank: clip by a norm that all share, draw "
            "noise from a generator with one seed, reduce what the change depends on",
        ),
    ),
    cluster="""
        Checksums of the parameters differ between ranks although the gradients that NCCL delivered
        are equal; the distance grows slowly with the number of steps, so that only long runs show
        it, often after a private optimizer wrapper or a new kind of clipping was added.
    """,
    apart={
        "gradients-not-reduced": "gradients were never the same on all ranks",
        "steps-skipped-on-some-ranks": "the gradients are used as they are, or not at all",
        "ranks-diverged-learning-rate": "the optimizers' settings differ",
    },
    references=(
        Reference(
            "DistributedDataParallel: gradients are averaged in backward, replicas stay equal",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
