"""Ranks of Horovod that wait for the same tensors in different orders."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="horovod-order-differs",
    title="ranks of Horovod wait for the same tensors in different orders",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    options={"framework": "horovod"},
    sees="""
        Two ranks wait, each in a call for another tensor. Which tensors these are changes from run
        to run if the order comes from a set or a folder.
    """,
    why="""
        Ranks may begin operations of Horovod in any order: gradients are matched by their names.
        But a call such as `hvd.allreduce` also waits. A rank that waits for one tensor does not
        begin the next one, for which the other rank waits.
    """,
    broken="""
        import horovod.torch as hvd

        hvd.init()
        sums = {"loss": 4.0, "accuracy": 0.5}
        order = sorted(sums, reverse=hvd.rank() == 1)
        for name in order:
            mean = hvd.allreduce(torch.tensor(sums[name]), name=name)
            sums[name] = mean.item()
        print(sums)
    """,
    fixed="""
        import horovod.torch as hvd

        hvd.init()
        sums = {"loss": 4.0, "accuracy": 0.5}
        order = sorted(sums)
        for name in order:
            mean = hvd.allreduce(torch.tensor(sums[name]), name=name)
            sums[name] = mean.item()
        print(sums)
    """,
    proof="""
        assert sums == {"loss": 4.0, "accuracy": 0.5}
    """,
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}),
    fixes=(
        Advice(
            "fix behavior logic",
            "go through the tensors in one order on every rank: sort their names, use no sets",
        ),
        Advice(
            "fix distributed API usage",
            "begin all operations first, with allreduce_async or grouped_allreduce, and wait then",
        ),
    ),
    cluster="""
        The stall inspector lists two tensors, each of them missing on other ranks. The job hangs in
        one run and not in the next, if hashes of strings decide the order: PYTHONHASHSEED.
    """,
    apart={
        "horovod-names-differ": "the ranks use names that the others never use",
        "groups-in-opposite-order": "ranks of torch use two groups in opposite order",
    },
    references=(
        Reference(
            "Horovod's API: the reduction will not start until all processes are ready",
            "https://horovod.readthedocs.io/en/stable/api.html",
        ),
    ),
    in_source=False,
)
