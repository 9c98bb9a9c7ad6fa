"""Ranks of Horovod that give one tensor different names."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="horovod-names-differ",
    title="ranks of Horovod give one tensor different names",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    options={"framework": "horovod"},
    sees="""
        All ranks stand in the same line, and nothing goes on. Horovod's warning of stalled tensors,
        if it comes, lists two tensors, each submitted by a part of the ranks only.
    """,
    why="""
        Ranks of Horovod meet by the name of a tensor. If names contain the rank, a time or a type,
        each rank waits for the others under a name of its own. `broadcast_object` without a name
        takes the type of the object: a dict on rank 0 and None elsewhere never meet. Calls without
        a name get the number of the call, which differs after `hvd.join()`.
    """,
    broken="""
        import horovod.torch as hvd

        hvd.init()
        settings = {"epochs": 3, "lr": 0.1} if hvd.rank() == 0 else None
        settings = hvd.broadcast_object(settings, root_rank=0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    """,
    fixed="""
        import horovod.torch as hvd

        hvd.init()
        settings = {"epochs": 3, "lr": 0.1} if hvd.rank() == 0 else None
        settings = hvd.broadcast_object(settings, root_rank=0, name="settings")
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=settings["lr"])
    """,
    proof="""
        assert settings == {"epochs": 3, "lr": 0.1}
    """,
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix distributed API usage",
            'give the call the same name on every rank: name="loss", without the rank in it',
        ),
        Advice(
            "fix consistency between devices",
            "pass an object of the same type on every rank, or a name: broadcast_object takes the "
            "type for a name",
        ),
    ),
    cluster="""
        The job stands in its start or at the first metric. HOROVOD_LOG_LEVEL=debug shows the names
        that each rank submits; they have the same shapes and differ in their names.
    """,
    apart={
        "horovod-order-differs": "the names are the same, and each rank waits for them in turn",
        "different-groups": "ranks of torch pass different groups",
    },
    references=(
        Reference(
            "Horovod's API: the reduction operation is keyed by the name",
            "https://horovod.readthedocs.io/en/stable/api.html",
        ),
    ),
    in_source=False,
)
