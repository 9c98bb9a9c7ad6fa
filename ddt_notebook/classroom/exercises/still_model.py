"""The optimizer holds the parameters of another copy."""

from __future__ import annotations

from ddt_notebook.classroom.behaviours import TRAINING
from ddt_notebook.classroom.exercise import Exercise

EXERCISE = Exercise(
    name="still-model",
    title="let the model learn",
    level=2,
    minutes=8,
    story="""
    The loss does not change on any rank, whatever the learning rate is. Nothing fails, and the
    parameters have gradients. The cell should leave the trained `model`.
    """,
    faults=("optimizer-on-another-copy",),
    start="""
    import copy

    network = exercise.model()
    optimizer = torch.optim.SGD(network.parameters(), lr=exercise.learning_rate)
    model = DDP(copy.deepcopy(network))  # network is kept to start again from it
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    solution="""
    import copy

    network = exercise.model()
    model = DDP(copy.deepcopy(network))  # network is kept to start again from it
    optimizer = torch.optim.SGD(model.parameters(), lr=exercise.learning_rate)
    loss_function = torch.nn.CrossEntropyLoss()

    x, y = exercise.dataset.take(range(rank, len(exercise.dataset), world_size))
    for epoch in range(exercise.epochs):
        optimizer.zero_grad()
        loss_function(model(x), y).backward()
        optimizer.step()
    """,
    hints=(
        "Compare a parameter before and after optimizer.step().",
        "Which objects does the optimizer change, and which ones get gradients in backward()?",
        "Build the optimizer from the parameters of the trained model, after DDP has wrapped it.",
    ),
    behaviours=TRAINING,
)
