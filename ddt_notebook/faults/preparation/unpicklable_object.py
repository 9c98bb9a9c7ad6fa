"""An object that pickle does not support is sent to other ranks."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="unpicklable-object",
    title="an object that cannot be pickled is sent to other ranks",
    symptoms=("C.3",),
    n=2,
    sees="""
        Sharing the configuration fails on rank 0 with a message about pickling; the other ranks
        wait for the configuration or report a closed connection.
    """,
    why="""
        The object collectives turn objects into bytes with pickle. A lambda, a function defined
        inside another one, an open file, a generator or a lock cannot be pickled. The sender raises
        before it has sent anything.
    """,
    broken="""
        def make_config():
            warmup = 100
            return {"lr": 0.1, "schedule": lambda step: min(1.0, step / warmup)}

        shared = [make_config()] if rank == 0 else [None]
        dist.broadcast_object_list(shared, src=0)
        config = shared[0]
        print(config["lr"])
    """,
    fixed="""
        def make_config():
            return {"lr": 0.1, "warmup": 100}

        shared = [make_config()] if rank == 0 else [None]
        dist.broadcast_object_list(shared, src=0)
        config = shared[0]
        schedule = lambda step: min(1.0, step / config["warmup"])
        print(config["lr"])
    """,
    proof="assert schedule(50) == 0.5",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 6, 1: 6}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "send only objects that pickle supports: no lambda, no local function, no handle",
        ),
    ),
    gloo=("Can't pickle local object", "Can't get local object"),
    nccl=("Can't pickle local object", "Can't get local object"),
    cluster="""
        It happens with every backend, and also with processes that are started by spawn, where the
        arguments of the worker function have to be pickled as well.
    """,
    apart={"collective-arguments": "a collective refuses other arguments"},
    references=(
        Reference(
            "Lambdas inside a library and distributed training do not go together",
            "https://github.com/KevinMusgrave/pytorch-metric-learning/issues/5",
        ),
        Reference(
            "torch.distributed: broadcast_object_list",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.broadcast_object_list",
        ),
    ),
    in_source=False,
)
