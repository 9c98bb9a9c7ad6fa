"""A rank never joins the set-up of the group."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="rank-missing-at-setup",
    title="a rank that belongs to the group never joins its set-up",
    symptoms=("B.2",),
    views=("stacks",),
    n=3,
    options={"group": False, "timeout": 6.0},
    sees="""
        All ranks but one wait in `init_process_group`. After the timeout rank 0 reports how many
        ranks joined ("2/3 clients joined"), but not which one did not.
    """,
    why="""
        The group is complete when as many ranks have joined as the world size says. If a rank was
        never started, ended before, or took a path through the program without the call, all others
        wait for it.
    """,
    broken="""
        nodes = ["worker", "worker", "spare"]

        def start(node):
            if node == "spare":
                print("not needed")
                return
            dist.init_process_group("gloo")

        start(nodes[rank])
    """,
    fixed="""
        nodes = ["worker", "worker", "spare"]

        def start(node):
            dist.init_process_group("gloo")
            return dist.new_group([n for n, kind in enumerate(nodes) if kind == "worker"])

        workers = start(nodes[rank])
    """,
    proof="""
        assert dist.get_world_size() == world_size
        assert (workers is not dist.GroupMember.NON_GROUP_MEMBER) == (rank < 2)
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 7, 1: 7}),
    fixes=(
        Advice(
            "fix communication configuration",
            "start as many ranks as world_size says (`--nnodes` times `--nproc-per-node`), and let "
            "each of them call {op}; make smaller groups afterwards, with new_group",
        ),
        Advice(
            "fix network setting",
            "if the rank was started, look at its own log: it may wait at another address, or be "
            "kept off the port by a firewall",
        ),
        Advice(
            "fix dependency installation/version",
            "if it ended before the set-up, by an import for instance, compare its environment "
            "with that of the others",
        ),
        Advice(
            "fix consistency between devices",
            "give every machine the same number of processes and the same script",
        ),
    ),
    gloo=("waiting for clients. 2/3 clients joined.", "wait timeout after"),
    nccl=("Timed out after 601 seconds waiting for clients. 7/8 clients joined.",),
    cluster="""
        The scheduler has started the job on fewer machines than it was asked for, or one machine
        still pulls its image. The logs of all others end with the same line.
    """,
    apart={
        "world-size-differs": "all ranks joined, with different world sizes",
        "rank-number-repeated": "all ranks joined, two of them with the same number",
        "rendezvous-differs": "the rank is in the set-up, at another address",
    },
    references=(
        Reference(
            "A set-up that waits for a rank that was never started",
            "https://github.com/pytorch/pytorch/issues/49846",
        ),
        Reference(
            "torch.distributed: initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#initialization",
        ),
    ),
    in_source=False,
)
