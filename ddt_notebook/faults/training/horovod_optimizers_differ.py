"""Ranks of Horovod whose optimizers exchange gradients in other ways."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

_BROKEN = """
        import horovod.torch as hvd

        hvd.init()
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        passes = 1 + hvd.rank()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        optimizer = hvd.DistributedOptimizer(
            optimizer, model.named_parameters(), backward_passes_per_step=passes
        )
        for number, batch in enumerate(torch.randn(8, 8, 4), 1):
            model(batch).square().mean().backward()
            if number % passes == 0:
                optimizer.step()
                optimizer.zero_grad()
"""

CARD = FaultCard(
    id="horovod-optimizers-differ",
    title="ranks of Horovod give their DistributedOptimizer other settings",
    symptoms=("D.2.1", "D.1.1"),
    views=("stacks", "collectives"),
    options={"framework": "horovod"},
    sees="""
        A rank waits in `optimizer.step()`, or in the first operation after training, while others
        make fewer steps; or a step raises that ranks sent other data types. The traceback names
        the step only.
    """,
    why="""
        A DistributedOptimizer begins to average a gradient after `backward_passes_per_step`
        backward passes, in the data type of its compression. If these come from the memory or the
        kind of each rank's card, ranks exchange other numbers of gradients, or other tensors.
    """,
    broken=_BROKEN,
    fixed=_BROKEN.replace("1 + hvd.rank()", "2"),
    proof="""
        weights = hvd.allgather(model.weight.detach(), name="weights")
        assert torch.equal(weights[0], weights[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 8, 1: 8}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give every rank the same settings: those that the weakest card allows, or those of "
            "rank 0, by hvd.broadcast_object()",
        ),
    ),
    cluster="""
        After 60 s, rank 0 warns that gradients were submitted by a subset of ranks, and lists the
        ranks that accumulate longer as missing.
    """,
    apart={
        "horovod-steps-differ": "the settings are alike, but ranks have other numbers of batches",
        "trainer-arguments-differ": "they are the arguments of a library's Trainer",
    },
    references=(
        Reference(
            "Horovod with PyTorch: DistributedOptimizer",
            "https://horovod.readthedocs.io/en/stable/api.html#horovod.torch.DistributedOptimizer",
        ),
    ),
    in_source=False,
)
