"""Gradients are clipped before the gradient scaler has unscaled them."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="clipped-while-scaled",
    title="gradients are clipped while a gradient scaler's factor is in them",
    symptoms=("D.2.4", "D.2.5"),
    n=2,
    sees="""
        Training in mixed precision is much slower than in single precision, or does not learn at
        all; without clipping both are alike. Nothing is printed.
    """,
    why="""
        The scaler multiplies the loss by a large factor, and so the gradients, too. Their norm is
        far above any limit, and clipping brings it down to the limit; then `scaler.step` divides by
        the factor. What is left are gradients of the size of the limit divided by the factor.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        torch.manual_seed(rank)
        for step in range(3):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        torch.manual_seed(rank)
        for step in range(3):
            x = torch.randn(8, 4)
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer)
            scaler.update()
    """,
    proof="assert norm < 100.0",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "call `scaler.unscale_(optimizer)` after the last backward pass of a step and before "
            "the gradients are clipped",
        ),
    ),
    cluster="""
        The factor grows during a long run, so the clipped gradients shrink the longer it lasts.
    """,
    apart={
        "clipped-before-average": "the gradients of each rank are clipped before they are averaged",
        "scaler-skips-on-some-ranks": "the scaler leaves out steps, on some ranks only",
    },
    references=(
        Reference(
            "Automatic mixed precision examples: gradient clipping",
            "https://docs.pytorch.org/docs/stable/notes/amp_examples.html#gradient-clipping",
        ),
    ),
)
