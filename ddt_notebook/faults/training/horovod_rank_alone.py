"""A rank of Horovod that alone calls what all ranks have to call."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="horovod-rank-alone",
    title="only some ranks of Horovod average a metric, or evaluate",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    options={"framework": "horovod"},
    sees="""
        Rank 0 stands at a metric, a checkpoint or an evaluation. The other ranks have ended, or
        wait in the next step, for a gradient that rank 0 does not send.
    """,
    why="""
        Averages, broadcasts and barriers of Horovod wait until every rank has called them with the
        same name. Under `if hvd.rank() == 0:` only one rank does.
    """,
    broken="""
        import horovod.torch as hvd

        hvd.init()


        def metric_average(value, name):
            return hvd.allreduce(torch.tensor(value), name=name).item()


        accuracy = 0.25 + 0.5 * hvd.rank()
        if hvd.rank() == 0:
            mean = metric_average(accuracy, "accuracy")
            print(f"accuracy {mean:.2f}")
    """,
    fixed="""
        import horovod.torch as hvd

        hvd.init()


        def metric_average(value, name):
            return hvd.allreduce(torch.tensor(value), name=name).item()


        accuracy = 0.25 + 0.5 * hvd.rank()
        mean = metric_average(accuracy, "accuracy")
        if hvd.rank() == 0:
            print(f"accuracy {mean:.2f}")
    """,
    proof="""
        assert mean == 0.5
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 7, 1: 11}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call it on every rank, outside of the condition on the rank; only printing and saving "
            "stay inside",
        ),
    ),
    cluster="""
        The log ends where rank 0 would print. With HOROVOD_STALL_CHECK_TIME_SECONDS, rank 0 may
        list all other ranks as missing for one tensor.
    """,
    apart={
        "collective-under-rank-condition": "a rank of torch is alone in a collective",
        "horovod-steps-differ": "the ranks have other numbers of batches",
    },
    references=(
        Reference(
            "Horovod with PyTorch: save checkpoints on rank 0 only",
            "https://horovod.readthedocs.io/en/stable/pytorch.html",
        ),
        Reference(
            "Horovod: stalled ranks",
            "https://github.com/horovod/horovod/issues/100",
        ),
    ),
    in_source=False,
)
