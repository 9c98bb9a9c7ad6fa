"""The ranks use different world sizes."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="world-size-differs",
    title="the ranks use different world sizes",
    symptoms=("B.2",),
    views=("stacks",),
    n=3,
    options={"group": False, "timeout": 4.0},
    sees="""
        Some ranks form a group and go on, or fail in their first collective; others wait in
        `init_process_group` until its timeout, which is thirty minutes by default.
    """,
    why="""
        Each rank waits until as many ranks have joined as its world size says. A rank with a larger
        number waits for ranks that were never started, and the others do not wait for it, or wait
        for a connection that it does not make. The numbers differ when they come from more than one
        place: in a configuration on each machine, in a launch command that was edited on one of
        them, or counted from devices that are not the same everywhere.
    """,
    broken="""
        import os

        nodes = {"node-a": 1, "node-b": 2}
        settings = {"processes": 3}
        if os.environ["LOCAL_RANK"] == "2":
            settings["processes"] = 2 * sum(nodes.values()) - 2

        dist.init_process_group(
            "gloo", rank=int(os.environ["RANK"]), world_size=settings["processes"]
        )
        count = torch.ones(1)
        dist.all_reduce(count)
    """,
    fixed="""
        import os

        dist.init_process_group(
            "gloo", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
        )
        count = torch.ones(1)
        dist.all_reduce(count)
    """,
    proof="assert count.item() == dist.get_world_size() == world_size",
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={2: 8}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "take the world size from one place for all ranks: WORLD_SIZE, which torchrun sets, "
            "or the configuration that every machine reads",
        ),
        Advice(
            "fix communication configuration",
            "give `--nnodes` and `--nproc-per-node` the same values on every machine, and pass no "
            "world_size to {op}",
        ),
    ),
    gloo=("wait timeout after 4000ms, keys: /default_pg/0//cpu//0/3",),
    nccl=("Timed out after 601 seconds waiting for clients.",),
    cluster="""
        The log of rank 0 ends with "3/4 clients joined" while other machines are already past the
        set-up, or fail with "Connection reset by peer". The first lines of the machines' logs print
        different world sizes.
    """,
    apart={
        "rank-missing-at-setup": "all ranks use the same number, and one never joins",
        "rank-number-repeated": "the number of ranks is right and two have the same rank",
    },
    references=(
        Reference(
            "torch.distributed: environment variable initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#environment-variable-initialization",
        ),
    ),
    in_source=False,
)
