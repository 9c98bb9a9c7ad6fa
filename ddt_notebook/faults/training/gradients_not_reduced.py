"""A hand-written averaging of gradients that leaves some out."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="gradients-not-reduced",
    title="gradients are averaged by hand, and some of them are not",
    symptoms=("D.2.2", "D.2.5"),
    views=("parity",),
    n=2,
    sees="""
        A training loop without DDP averages gradients itself. The loss falls, yet the ranks' models
        are not equal: some layers are the same everywhere, others are not.
    """,
    why="""
        Nothing checks a hand-written loop. Gradients that a filter skips (biases, one part of the
        model, parameters of one dimension), or whose average is written into a copy, stay local,
        and the optimizer applies them as if they were the mean of all ranks.
    """,
    broken="""
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def average_gradients(model):
            for name, parameter in model.named_parameters():
                if name.endswith("weight"):
                    dist.all_reduce(parameter.grad)
                    parameter.grad /= world_size

        torch.manual_seed(rank)
        for step in range(8):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            average_gradients(model)
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def average_gradients(model):
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world_size

        torch.manual_seed(rank)
        for step in range(8):
            x, y = torch.randn(16, 6), torch.randn(16, 2)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            average_gradients(model)
            optimizer.step()
    """,
    proof="""
        for parameter in model.parameters():
            copies = [torch.empty_like(parameter) for _ in range(world_size)]
            dist.all_gather(copies, parameter.detach())
            assert all(torch.equal(copy, parameter) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "average the gradient of every parameter that the optimizer holds, in place, between "
            "backward() and step()",
        ),
        Advice(
            "fix distributed API usage",
            "let DistributedDataParallel average them: it also overlaps this with the backward "
            "pass",
        ),
    ),
    cluster="""
        The number of all-reduces in a step is smaller than the number of parameters. Evaluation on
        rank 0 looks fair; another rank's weights give other results.
    """,
    apart={"model-not-wrapped": "no gradient is averaged at all"},
    references=(
        Reference(
            "Writing distributed applications with PyTorch: averaging gradients by hand",
            "https://docs.pytorch.org/tutorials/intermediate/dist_tuto.html",
        ),
    ),
    in_source=False,
)
