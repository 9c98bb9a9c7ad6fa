"""Gradients are accumulated over micro-batches, and no loss is divided by their number."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="accumulated-loss-not-divided",
    title="the loss is not divided by the number of accumulated micro-batches",
    symptoms=("D.2.4", "D.2.5"),
    sees="""
        With gradient accumulation training is less stable than with one large batch, as if the
        learning rate were several times higher, and clipping begins to act in every step.
    """,
    why="""
        backward() adds gradients. Each micro-batch has a mean loss, so the sum over k of them is k
        times the gradient of the whole batch. DDP divides by the number of ranks, but not by the
        number of micro-batches.
    """,
    broken="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            optimizer.zero_grad()
            for micro in range(4):
                model.require_backward_grad_sync = micro == 3
                x = torch.randn(16, 8)
                loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
                loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = DDP(torch.nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        torch.manual_seed(100 + rank)
        for step in range(6):
            optimizer.zero_grad()
            total = 0.0
            for micro in range(4):
                model.require_backward_grad_sync = micro == 3
                x = torch.randn(16, 8)
                loss = (model(x) - x.mean(1, keepdim=True)).square().mean() / 4
                loss.backward()
                total += loss.item()
            optimizer.step()
    """,
    proof="assert abs(total - 4 * loss.item()) < total",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "divide each loss by the number of micro-batches before backward(), or the gradients "
            "before the step",
        ),
    ),
    cluster="""
        A configuration with more accumulation and fewer GPUs should give the same curve; here it
        does not.
    """,
    apart={
        "uneven-backward-passes": "the number of micro-batches differs between ranks",
        "gradients-not-divided": "the division by the number of ranks is missing",
    },
    references=(
        Reference(
            "CUDA Automatic Mixed Precision examples: gradient accumulation",
            "https://docs.pytorch.org/docs/stable/notes/amp_examples.html",
        ),
    ),
)
