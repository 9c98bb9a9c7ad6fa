"""The step is taken on gradients that were only accumulated locally."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="no-sync-left-on",
    title="no_sync() covers the last micro-batch before the step too",
    symptoms=("D.2.2", "D.2.5"),
    views=("parity",),
    n=2,
    sees="""
        Gradient accumulation runs without error and faster than before, but validation gets worse
        with the number of ranks, and the weights of the ranks differ at the end.
    """,
    why="""
        Inside no_sync() DDP leaves gradients as they are; what was accumulated is averaged by the
        first backward pass outside of it. If the condition is off by one, or the whole loop stands
        inside, no such pass comes before optimizer.step(), and every rank steps by its own sum.
    """,
    broken="""
        from contextlib import nullcontext

        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        accumulate = 4

        for step in range(16):
            x, y = torch.randn(8, 4), torch.randn(8, 1)
            with model.no_sync() if step % accumulate else nullcontext():
                loss = torch.nn.functional.mse_loss(model(x), y) / accumulate
                loss.backward()
            if (step + 1) % accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
    """,
    fixed="""
        from contextlib import nullcontext

        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        accumulate = 4

        for step in range(16):
            x, y = torch.randn(8, 4), torch.randn(8, 1)
            last = (step + 1) % accumulate == 0
            with nullcontext() if last else model.no_sync():
                loss = torch.nn.functional.mse_loss(model(x), y) / accumulate
                loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
    """,
    proof="""
        weight = model.module.weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "leave no_sync() for the last micro-batch before each step, so that its backward pass "
            "averages all that was accumulated",
        ),
        Advice(
            "fix behavior logic",
            "decide once per micro-batch whether it is the last one, and use that for both the "
            "synchronisation and the step",
        ),
    ),
    cluster="""
        The profile shows fewer all-reduces than optimizer steps, or none. No message appears; runs
        with more ranks converge like a small batch, and only rank 0's weights reach the checkpoint.
    """,
    apart={
        "module-called-past-ddp": "the forward pass does not go through DDP at all",
        "model-not-wrapped": "the model is not wrapped in DDP",
    },
    references=(
        Reference(
            "A condition that synchronised the first micro-batch instead of the last one",
            "https://github.com/modelscope/FunASR/pull/3472",
        ),
        Reference(
            "How gradients that were accumulated in no_sync() are averaged",
            "https://github.com/pytorch/pytorch/issues/53443",
        ),
    ),
)
