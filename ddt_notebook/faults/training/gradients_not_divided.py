"""Gradients averaged by hand are summed over the ranks and not divided."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="gradients-not-divided",
    title="gradients are summed over the ranks and never divided by their number",
    symptoms=("D.2.4", "D.2.5"),
    views=("collectives",),
    sees="""
        Replicas stay equal and the loss falls, or jumps. With more ranks training becomes unstable,
        and a learning rate that worked on one GPU is too large.
    """,
    why="""
        all_reduce sums by default. Each rank's loss is a mean over its own samples, so the sum of
        the gradients is as many times too large as there are ranks. DistributedDataParallel divides
        by itself; a loop that reduces gradients has to do so, too. Adam hides most of it, since it
        scales gradients anyway; clipping and weight decay do not.
    """,
    broken="""
        def average_gradients(model):
            for p in model.parameters():
                dist.all_reduce(p.grad)

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            (model(x) - x.mean(1, keepdim=True)).square().mean().backward()
            average_gradients(model)
            optimizer.step()
    """,
    fixed="""
        def average_gradients(model):
            for p in model.parameters():
                dist.all_reduce(p.grad)
                p.grad /= world_size

        torch.manual_seed(0)
        model = torch.nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            x = torch.randn(16, 8)
            optimizer.zero_grad()
            (model(x) - x.mean(1, keepdim=True)).square().mean().backward()
            own = model.bias.grad.clone()
            average_gradients(model)
            optimizer.step()
    """,
    proof="""
        everyone = [torch.empty_like(own) for _ in range(world_size)]
        dist.all_gather(everyone, own)
        assert torch.allclose(model.bias.grad, torch.stack(everyone).mean(0))
    """,
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "divide each gradient by the number of ranks after the all_reduce",
        ),
        Advice(
            "fix distributed API usage",
            "wrap the model in DistributedDataParallel, which averages while the backward pass "
            "still runs",
        ),
    ),
    cluster="""
        A job that ran on 8 GPUs diverges on 64. What helps is a learning rate 8 times smaller,
        which hides the missing division.
    """,
    apart={
        "averaged-twice": "the mean is divided once more",
        "gradients-not-reduced": "gradients differ on the ranks when the optimizer steps",
        "sum-shown-as-mean": "a printed number lacks the division",
    },
    references=(
        Reference(
            "Writing Distributed Applications with PyTorch: average_gradients",
            "https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html",
        ),
    ),
)
