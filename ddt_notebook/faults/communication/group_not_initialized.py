"""The group is used before it was formed."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="group-not-initialized",
    title="the process group is used before it was formed",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        "Default process group has not been initialized, please make sure to call
        init_process_group", from a collective, from DDP, or from a DistributedSampler.
    """,
    why="""
        Every call that communicates with other ranks, or reads their number, needs the default
        group. It does not exist before init_process_group, after destroy_process_group, or in a
        process beside the ranks, such as a worker of a DataLoader.
    """,
    broken="""
        from torch.utils.data import DistributedSampler, TensorDataset

        dataset = TensorDataset(torch.arange(10.0))
        sampler = DistributedSampler(dataset, shuffle=False)

        dist.init_process_group("gloo")
        mine = list(sampler)
    """,
    fixed="""
        from torch.utils.data import DistributedSampler, TensorDataset

        dist.init_process_group("gloo")

        dataset = TensorDataset(torch.arange(10.0))
        sampler = DistributedSampler(dataset, shuffle=False)
        mine = list(sampler)
    """,
    proof="assert mine == list(range(rank, 10, world_size))",
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call init_process_group on every rank before anything that uses the group; in a "
            "session, start it with its group (without `--no-group`)",
        ),
        Advice(
            "fix behavior logic",
            "for a run on one process guard such code with `dist.is_initialized()`, or give "
            "num_replicas and rank to the sampler",
        ),
    ),
    gloo=("Default process group has not been initialized",),
    nccl=("Default process group has not been initialized",),
    cluster="""
        Every rank fails at once at the same line; or only at the very end, where a metric is
        reduced after the trainer has already destroyed the group.
    """,
    apart={
        "group-initialized-twice": "the group is formed a second time",
        "stale-group": "a group exists, and the handle belongs to an earlier one",
    },
    references=(
        Reference(
            "torch.distributed: initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
    ),
)
