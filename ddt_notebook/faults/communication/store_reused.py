"""The store in which the ranks meet still holds the addresses of an earlier group."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="store-reused",
    title="a group is formed in a store that still holds the addresses of an earlier group",
    symptoms=("B.2",),
    views=("stacks",),
    options={"group": False, "timeout": 15.0},
    sees="""
        The ranks form a group and work. After torchrun has restarted them, `init_process_group`
        hangs, or fails with "Gloo connectFullMesh failed" and "Connection refused", in most of the
        restarts and not in all.
    """,
    why="""
        Each rank writes its address to the store and reads those of the others. If an earlier group
        used the same store under the same names, a rank reads the address of a process that has
        ended, unless the other rank has overwritten it by then. Of two ranks, the one with the
        larger address opens the connection: if the other one is to do it and has the right address,
        the group forms all the same. torchrun of torch 2.13 uses a store in this way: it keeps one
        for all attempts, and gloo's names in it do not hold the number of the attempt.
    """,
    setup="""
        import os

        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = dist.TCPStore(host, port, is_master=False)  # torchrun's own, as its ranks use it
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
        dist.barrier()
        dist.destroy_process_group()
    """,
    broken="""
        import time
        from datetime import timedelta

        limit = timedelta(seconds=4)
        for attempt in range(10):  # now and then, a group forms
            time.sleep(rank / 5)
            dist.init_process_group(
                "gloo", store=store, rank=rank, world_size=world_size, timeout=limit
            )
            total = torch.ones(1)
            dist.all_reduce(total)
            dist.destroy_process_group()
    """,
    fixed="""
        import time
        from datetime import timedelta

        limit = timedelta(seconds=4)
        for attempt in range(10):
            time.sleep(rank / 5)
            own = dist.PrefixStore(f"attempt {attempt}", store)
            dist.init_process_group(
                "gloo", store=own, rank=rank, world_size=world_size, timeout=limit
            )
            total = torch.ones(1)
            dist.all_reduce(total)
            dist.destroy_process_group()
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix communication configuration",
            "with torchrun, set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, so that each attempt gets a "
            "store of its own",
        ),
        Advice(
            "fix distributed API usage",
            "give each group its own part of the store: `dist.PrefixStore(name, store)` with a "
            "name that no earlier group had, such as the number of the attempt",
        ),
    ),
    cluster="""
        A job with `--max-restarts` loses one rank, torchrun starts all ranks again, and they stand
        in init_process_group until the time limit. Of six restarts with torch 2.13.0 and gloo, five
        hung or failed; one with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 succeeded.
    """,
    apart={
        "rendezvous-file-left-over": "the ranks meet in a file that an earlier run has left",
        "port-in-use": "no store can be opened at all",
        "stale-group": "the new group has formed, and an object of the old one is used",
    },
    references=(
        Reference(
            "torch.distributed: PrefixStore",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.PrefixStore",
        ),
        Reference(
            "torchrun: the store that agent and workers share",
            "https://docs.pytorch.org/docs/stable/elastic/rendezvous.html",
        ),
    ),
    in_source=False,
)
