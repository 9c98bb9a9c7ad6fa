"""The ranks of a tensor-parallel group are given different inputs."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensor-parallel-inputs-differ",
    title="the ranks of a tensor-parallel group are given different inputs",
    symptoms=("D.2.4",),
    sees="""
        Training runs and the loss falls, but it is not the loss of any batch. With the same seed,
        the result changes with the size of the tensor-parallel group.
    """,
    why="""
        The ranks of a tensor-parallel group hold parts of one model. They must compute the same
        batch, and each layer adds up what its parts make of it. Layers take their input as equal on
        all ranks and do not check it. With another batch on each rank, the sums mix the batches. A
        sampler that divides the data among all ranks does this, and so does a seed with the rank.
    """,
    broken="""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import parallel as tp

        mesh = init_device_mesh("cpu", (world_size,))
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        model = tp.parallelize_module(
            model, mesh, {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        for step in range(4):
            torch.manual_seed(10 * step + rank)
            x = torch.randn(16, 6)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    fixed="""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import parallel as tp

        mesh = init_device_mesh("cpu", (world_size,))
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        model = tp.parallelize_module(
            model, mesh, {"0": tp.ColwiseParallel(), "2": tp.RowwiseParallel()}
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        for step in range(4):
            torch.manual_seed(10 * step)
            x = torch.randn(16, 6)
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    """,
    proof="""
        inputs = [torch.empty_like(x) for _ in range(world_size)]
        dist.all_gather(inputs, x)
        assert all(torch.equal(one, x) for one in inputs)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 14, 1: 14}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give all ranks of a tensor-parallel group the same batch: divide the data by the "
            "data-parallel dimension of the mesh only, "
            "`DistributedSampler(data, mesh['dp'].size(), mesh['dp'].get_local_rank())`",
        ),
        Advice(
            "fix behavior logic",
            "or let one rank of the group load the batch and broadcast it: "
            "`dist.broadcast(x, group_src=0, group=mesh['tp'].get_group())`",
        ),
    ),
    cluster="""
        It appears when tensor parallelism is added to a job that had data parallelism only: the
        sampler still divides the data among all ranks. Nothing fails, on any backend.
    """,
    apart={
        "model-not-wrapped": "each rank holds a whole model",
        "shape-differs": "the inputs have other sizes, and a collective shows it",
    },
    references=(
        Reference(
            "DTensor.from_local: the caller has to see that the local tensors are replicated",
            "https://docs.pytorch.org/docs/stable/distributed.tensor.html#torch.distributed.tensor.DTensor.from_local",
        ),
        Reference(
            "Tutorial: large scale training with tensor parallel",
            "https://docs.pytorch.org/tutorials/intermediate/TP_tutorial.html",
        ),
    ),
    in_source=False,
)
