"""A gradient scaler finds infinite gradients on one rank, which alone leaves out the step."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="scaler-skips-on-some-ranks",
    title="a gradient scaler leaves out a step on some ranks only",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    sees="""
        With mixed precision the ranks' losses drift apart after an overflow. The scale that each
        rank prints differs. Nothing fails.
    """,
    why="""
        GradScaler looks for infinite gradients when it unscales them, and leaves out the step if
        there are any. If it looks before the gradients are averaged, only the rank with the
        overflow leaves out the step and halves its scale; the others step.
    """,
    broken="""
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8) * (1e38 if rank == 1 and step == 3 else 1.0)
            optimizer.zero_grad()
            scaler.scale(model(x).abs().mean()).backward()
            scaler.unscale_(optimizer)
            for p in model.parameters():
                p.grad.nan_to_num_()
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            scaler.step(optimizer)
            scaler.update()
    """,
    fixed="""
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8) * (1e38 if rank == 1 and step == 3 else 1.0)
            optimizer.zero_grad()
            scaler.scale(model(x).abs().mean()).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    """,
    proof="""
        everyone = [torch.empty_like(model.weight) for _ in range(world_size)]
        dist.all_gather(everyone, model.weight.detach())
        assert torch.equal(everyone[0], everyone[1])
    """,
    expected=Expected(ranks=(1,), lines={1: 14}),
    fixes=(
        Advice(
            "fix behavior logic",
            "average the scaled gradients first, then call scaler.unscale_ and scaler.step: an "
            "infinite gradient of one rank is then infinite on all",
        ),
        Advice(
            "fix distributed API usage",
            "let DDP average, or use the scaler of the library that shards the model "
            "(ShardedGradScaler for FSDP): it agrees on overflows among the ranks",
        ),
    ),
    cluster="""
        The scale is a number that every rank can log; it has to be equal on all of them.
    """,
    apart={
        "steps-skipped-on-some-ranks": "the code itself leaves out the step",
        "nan-from-one-rank": "nothing stops the infinite value",
    },
    references=(
        Reference(
            "torch.amp.GradScaler",
            "https://docs.pytorch.org/docs/stable/amp.html#gradient-scaling",
        ),
    ),
)
