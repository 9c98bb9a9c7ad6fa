"""Ranks train, but no process group connects them."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="group-never-formed",
    title="several processes train, but no process group connects them",
    symptoms=("D.2.2", "D.2.5"),
    views=("collectives",),
    n=2,
    options={"group": False},
    sees="""
        The launcher starts one process for each GPU, every process prints its epochs, and the
        loss falls. The run takes as long as on one GPU, and the result is no better.
    """,
    why="""
        A launcher only starts processes and sets RANK and WORLD_SIZE. The processes are connected
        when each of them calls `init_process_group`, or when a library is configured to do so.
        Without a group nothing is divided and nothing is averaged: each process trains the whole
        model on all of the data, and the last one to write a checkpoint wins.
    """,
    broken="""
        torch.manual_seed(0)
        data = torch.randn(64, 4)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        for x in data.split(16):
            optimizer.zero_grad()
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        data = torch.randn(64, 4)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * world_size)

        for x in data[rank::world_size].split(16):
            optimizer.zero_grad()
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert dist.get_world_size() == world_size
        copies = [torch.empty_like(model.module.weight) for _ in range(world_size)]
        dist.all_gather(copies, model.module.weight.detach())
        assert all(torch.equal(copy, copies[0]) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}, confidence="possible"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call init_process_group on every rank before the model is built, wrap the model in "
            "DistributedDataParallel, and divide the data with a DistributedSampler",
        ),
        Advice(
            "fix communication configuration",
            "if a library starts the training, configure it for several processes, for "
            'example Fabric(strategy="ddp")',
        ),
        Advice(
            "fix dependency installation/version",
            "if the library reports a world size of 1, the launcher (torchrun, mpirun) belongs to "
            "another installation: install both from one place",
        ),
    ),
    cluster="""
        All GPUs are busy, each prints the same number of steps for an epoch, and the log shows no
        line of NCCL. Throughput per GPU is exactly that of one GPU.
    """,
    apart={
        "model-not-wrapped": "a group exists, but the model does not use it",
        "no-distributed-sampler": "gradients are averaged, but over the same samples",
    },
    references=(
        Reference(
            "torch.distributed: initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
        Reference(
            "torchrun: what it sets for each process",
            "https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables",
        ),
    ),
    in_source=False,
)
