"""Gradients are clipped while they are still scaled."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import (
    ENDS,
    OWN_SHARE,
    PARITY,
    READS_ONCE,
    WORKS,
    accuracy,
    as_one,
)
from ddt_notebook.classroom.exercise import Exercise
from ddt_notebook.classroom.exercise_data import Setting

EXERCISE = Exercise(
    name="scaled-loss",
    title="train in float16 as well as in float32",
    level=2,
    minutes=12,
    story="""
    The cell trains with autocast and a gradient scaler. The largest norm for clipping is so high
    that no gradient should be clipped. Nothing fails, and all ranks agree, but the model hardly
    learns. The result should be that of training in float32, up to a few per cent. Keep the scaler
    and the clipping. The cell leaves the trained `model`.
    """,
    faults=("clipped-while-scaled",),
    lesson="E.6",
    start="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_function(model(x), y)
        scaler.scale(loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        scaler.step(optimizer)
        scaler.update()
    """,
    solution="""
    model = DDP(exercise.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12)

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_function(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 100.0)
        scaler.step(optimizer)
        scaler.update()
    """,
    hints=(
        "clip_grad_norm_ returns the norm before clipping. Print it. Is it below 100?",
        "The loss was multiplied by 4,096, and so are the gradients. When are they divided again?",
        "Call scaler.unscale_(optimizer) before clip_grad_norm_.",
    ),
    behaviours=(ENDS, READS_ONCE, OWN_SHARE, WORKS, PARITY, as_one(within=0.05), accuracy()),
    setting=Setting(epochs=12),
)
