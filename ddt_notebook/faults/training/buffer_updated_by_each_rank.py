"""A codebook, a centre or a memory bank follows each rank's own batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="buffer-updated-by-each-rank",
    title="a buffer that the loss depends on is updated from each rank's own batches",
    symptoms=("D.2.5", "D.2.4"),
    views=("parity",),
    n=2,
    sees="""
        Nothing fails, and weights are equal on all ranks. But training is worse than on one
        process, more so with more ranks, and a checkpoint loaded later gives another loss than the
        run that saved it.
    """,
    why="""
        A codebook, the centre of a teacher's outputs, class centres, a queue and a memory bank are
        buffers: code in the forward pass updates them, not an optimizer. DDP averages gradients
        only. It copies rank 0's buffers before a forward pass if they are in its own model and
        broadcast_buffers is on, which discards what the other ranks added; otherwise each rank
        trains with a buffer that has seen its own samples only.
    """,
    broken="""
        class Loss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("centre", torch.zeros(3))

            def forward(self, out, goal):
                loss = (out - (goal - self.centre)).square().mean()
                self.centre.lerp_(goal.mean(0), 0.1)
                return loss

        torch.manual_seed(0)
        model, criterion = DDP(torch.nn.Linear(6, 3)), Loss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = torch.randn(16, 6, generator=generator)
            loss = criterion(model(x), x[:, :3] + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Loss(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("centre", torch.zeros(3))

            def forward(self, out, goal):
                loss = (out - (goal - self.centre)).square().mean()
                mean = goal.mean(0)
                dist.all_reduce(mean)
                self.centre.lerp_(mean / world_size, 0.1)
                return loss

        torch.manual_seed(0)
        model, criterion = DDP(torch.nn.Linear(6, 3)), Loss()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = torch.randn(16, 6, generator=generator)
            loss = criterion(model(x), x[:, :3] + 1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        copies = [torch.empty(3) for _ in range(world_size)]
        dist.all_gather(copies, criterion.centre)
        assert all(torch.equal(copy, criterion.centre) for copy in copies)
        assert bool(criterion.centre.abs().sum() > 0)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 8, 1: 8}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "all_reduce what the buffer is updated with, such as sums and counts, or all_gather "
            "the samples, so that each rank makes the same update",
        ),
        Advice(
            "fix model construction",
            "or make it a parameter of the model in DDP and train it with the gradient",
        ),
    ),
    cluster="""
        Codes of a codebook die sooner with more GPUs, or the loss of a resumed run jumps: all ranks
        now begin with the buffer that rank 0 saved.
    """,
    apart={
        "batch-norm-statistics-apart": "running statistics are used in evaluation only",
        "teacher-differs": "parameters of a module beside the trained one differ, not buffers",
    },
    references=(
        Reference(
            "Distributed Data Parallel: how buffers are synchronised",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
        Reference(
            "Neural Discrete Representation Learning (a codebook updated by moving averages)",
            "https://arxiv.org/abs/1711.00937",
        ),
    ),
    in_source=False,
)
