"""A module beside the trained model is not updated alike on all ranks."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="teacher-differs",
    title="a teacher, target network or averaged copy is not updated alike on all ranks",
    symptoms=("D.2.5", "D.2.4"),
    views=("parity",),
    n=2,
    sees="""
        Nothing fails, and the ranks' copies of the trained model agree. But training is worse than
        on one process, an evaluation of the averaged copy is a mean of different models, and its
        checkpoint depends on the rank that saves it.
    """,
    why="""
        A mean teacher, a target network or an average of the weights has no gradients, so it is
        outside of DDP, and nothing keeps its copies equal. If one rank alone updates it, or it was
        copied before DDP made the model equal, every rank learns from or evaluates another one; DDP
        averages the difference away in the student.
    """,
    broken="""
        import copy

        torch.manual_seed(0)
        student = DDP(torch.nn.Linear(6, 3))
        teacher = copy.deepcopy(student.module).requires_grad_(False)

        def update_teacher():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast.detach(), 0.1)

        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = torch.randn(16, 6, generator=generator)
            loss = (student(x + 0.1) - teacher(x)).square().mean() + student(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                update_teacher()
    """,
    fixed="""
        import copy

        torch.manual_seed(0)
        student = DDP(torch.nn.Linear(6, 3))
        teacher = copy.deepcopy(student.module).requires_grad_(False)

        def update_teacher():
            for slow, fast in zip(teacher.parameters(), student.parameters()):
                slow.lerp_(fast.detach(), 0.1)

        optimizer = torch.optim.SGD(student.parameters(), lr=0.1)
        generator = torch.Generator().manual_seed(rank)
        for step in range(12):
            x = torch.randn(16, 6, generator=generator)
            loss = (student(x + 0.1) - teacher(x)).square().mean() + student(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            update_teacher()
    """,
    proof="""
        weight = teacher.weight.detach()
        copies = [torch.empty_like(weight) for _ in range(world_size)]
        dist.all_gather(copies, weight)
        assert all(torch.equal(copy, weight) for copy in copies)
        assert not torch.equal(weight, student.module.weight)
    """,
    expected=Expected(ranks=(1,), lines={0: 15, 1: 15}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "update the module on every rank, in the same step and from the same parameters: "
            "the copies in DDP are equal, so nothing has to be sent",
        ),
        Advice(
            "fix distributed API usage",
            "or broadcast its parameters from the rank that updates them, before the next step",
        ),
    ),
    cluster="""
        The curve of the loss is noisier with more ranks, and an evaluation of the teacher on rank 0
        looks better than what the other ranks have learned from.
    """,
    apart={
        "model-reset-on-one-rank": "the copies in DDP differ",
        "model-not-wrapped": "an optimizer trains the module",
        "module-called-past-ddp": "the module in DDP itself is called past DDP",
    },
    references=(
        Reference(
            "Mean teachers are better role models (the teacher is an average of the student)",
            "https://arxiv.org/abs/1703.01780",
        ),
    ),
    in_source=False,
)
