"""The ranks of a machine use more threads than it has processors."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="oversubscribed-threads",
    title="more threads than processors",
    symptoms=("D.2.3",),
    sees="""
        All processors show full use, yet a step takes longer than with a single thread for each
        rank, and step times vary a lot.
    """,
    why="""
        torch splits an operation over a number of threads, by default one for each processor.
        Several ranks on one machine each do so. The threads compete for the processors, and an
        operation ends only when the last of its threads has had its turn.
    """,
    broken="""
        import os

        torch.set_num_threads(2 * os.cpu_count())

        model = DDP(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(2048, 256)
        for step in range(12):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    """,
    fixed="""
        import os

        here = len(os.sched_getaffinity(0))
        torch.set_num_threads(max(1, here // world_size))

        model = DDP(torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.Linear(512, 256)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(2048, 256)
        for step in range(12):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
    """,
    proof="assert torch.get_num_threads() * world_size <= max(here, world_size)",
    expected=Expected(ranks=(0, 1), confidence="possible"),
    fixes=(
        Advice(
            "fix memory/core setting",
            "start each rank with OMP_NUM_THREADS set to the processors of the machine divided by "
            "its ranks (torchrun sets 1), or call torch.set_num_threads",
        ),
        Advice(
            "fix framework installation/version",
            "start with torchrun: launchers of older versions left the number of threads at that "
            "of the processors",
        ),
        Advice(
            "change hardware",
            "run fewer ranks on the machine, or ask the scheduler for more processors for each",
        ),
        Advice(
            "fix memory/core setting",
            "count the workers of the loaders, too: num_workers times ranks should not exceed the "
            "processors",
        ),
    ),
    cluster="""
        The load average of the node is a multiple of its processors. It is often noticed when a
        job moves from one process per node to one per GPU, or starts without torchrun, which
        would have set one thread for each process.
    """,
    apart={"straggler-compute": "one rank is slow, not all of them"},
    references=(
        Reference(
            "One OpenMP thread for each process as the launcher's default",
            "https://github.com/pytorch/pytorch/pull/22501",
        ),
        Reference(
            "torch.set_num_threads",
            "https://docs.pytorch.org/docs/stable/generated/torch.set_num_threads.html",
        ),
    ),
    in_source=False,
)
