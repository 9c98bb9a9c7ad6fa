"""A list of losses that keeps every graph alive."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="loss-keeps-graph",
    title="losses are collected with their graphs until memory is full",
    symptoms=("D.1.2",),
    views=("memory",),
    options={"memory": "400M"},
    sees="""
        Memory grows by the same amount in every step. After a while one rank, mostly the one that
        logs, cannot allocate; the batch is small, and the first steps ran well.
    """,
    why="""
        A loss is not only a number: as long as the tensor exists, its graph keeps the activations
        of that step. A list or a running sum of such tensors keeps the activations of all steps.
    """,
    broken="""
        model = DDP(torch.nn.Sequential(
            torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)
        ))
        if rank == 0:
            total = 0.0
            for step in range(40):
                batch = torch.randn(1024, 64)
                loss = model.module(batch).square().mean()
                total += loss
            print("validation loss", float(total) / 40)
        dist.barrier()
    """,
    fixed="""
        model = DDP(torch.nn.Sequential(
            torch.nn.Linear(64, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 10)
        ))
        if rank == 0:
            total = 0.0
            for step in range(40):
                batch = torch.randn(1024, 64)
                with torch.no_grad():
                    loss = model.module(batch).square().mean()
                total += loss.item()
            print("validation loss", total / 40)
        dist.barrier()
    """,
    proof="assert rank != 0 or isinstance(total, float)",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 8, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "keep numbers, not graphs: add up `loss.item()` or `loss.detach()`, and evaluate "
            "inside torch.no_grad()",
        ),
        Advice(
            "fix dependency installation/version",
            "if your code keeps nothing and memory still grows, try another version of torch and "
            "of the library: releases fix leaks",
        ),
    ),
    gloo=("DefaultCPUAllocator: can't allocate memory",),
    nccl=("CUDA out of memory. Tried to allocate",),
    cluster="""
        The first rank dies of memory after hours, always at about the same step, while the others
        use a constant amount; a larger GPU only moves the step.
    """,
    apart={"out-of-memory": "a single step does not fit"},
    references=(
        Reference(
            "PyTorch FAQ: don't accumulate history across your training loop",
            "https://docs.pytorch.org/docs/stable/notes/faq.html",
        ),
    ),
)
