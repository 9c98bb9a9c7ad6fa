"""Two processes join with the same rank number, so another number never joins."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-number-repeated",
    title="two processes join the group under the same rank number",
    symptoms=("B.2", "B.1"),
    views=("stacks",),
    options={"group": False, "timeout": 4.0},
    sees="""
        `init_process_group` does not return on any process, and raises a timeout minutes later; or
        the second of the two fails at once, because the address is already in use.
    """,
    why="""
        Every process registers with its rank number, and the group is complete when all numbers
        from 0 to world size - 1 have joined. If two processes use one number, another number never
        joins. If both use rank 0, both try to open the port of the store. Typical sources: a rank
        fixed in the script or in a launch command that was copied to the next machine, or the local
        rank taken for the global one.
    """,
    broken="""
        import argparse

        parser = argparse.ArgumentParser()
        parser.add_argument("--rank", type=int, default=0)
        parser.add_argument("--world-size", type=int, default=2)
        args = parser.parse_args([])

        dist.init_process_group("gloo", rank=args.rank, world_size=args.world_size)

        total = torch.tensor([1.0])
        dist.all_reduce(total)
    """,
    fixed="""
        import argparse
        import os

        parser = argparse.ArgumentParser()
        parser.add_argument("--rank", type=int, default=int(os.environ["RANK"]))
        parser.add_argument("--world-size", type=int, default=int(os.environ["WORLD_SIZE"]))
        args = parser.parse_args([])

        dist.init_process_group("gloo", rank=args.rank, world_size=args.world_size)

        total = torch.tensor([1.0])
        dist.all_reduce(total)
    """,
    proof="""
        assert dist.get_rank() == rank
        assert total.item() == world_size
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 8, 1: 8}),
    fixes=(
        Advice(
            "fix communication configuration",
            "take the rank from the launcher (RANK under torchrun), one number for each process; "
            "LOCAL_RANK repeats on every machine",
        ),
        Advice(
            "fix consistency between devices",
            "start every machine with its own node rank (`torchrun --node-rank`), and all with the "
            "same number of machines",
        ),
        Advice(
            "fix network setting",
            "if the address is in use although the numbers differ, end what is left of the last "
            "run or take another port",
        ),
    ),
    gloo=("Failed to recv, got 0 bytes. Connection was likely closed.", "EADDRINUSE"),
    nccl=("Timed out after 601 seconds waiting for clients.",),
    cluster="""
        The job hangs before its first step. The logs of two machines name the same global ranks, or
        the log of rank 0 counts fewer clients than there are processes until it gives up.
    """,
    apart={
        "rank-missing-at-setup": "all numbers differ and one process was never started",
        "port-in-use": "a program outside the job holds the port",
    },
    references=(
        Reference(
            "torch.distributed: initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
        Reference(
            "torchrun: the environment variables that it sets",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
    in_source=False,
)
