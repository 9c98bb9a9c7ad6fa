"""Buffers differ on ranks that DeepSpeed trains together."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-buffers-differ",
    title="a buffer has other values on each rank of a DeepSpeed engine",
    symptoms=("D.2.4",),
    views=("parity",),
    needs=("deepspeed",),
    sees="""
        Training works, and all parameters are equal on all ranks. But the loss is worse than on one
        process, and a checkpoint gives another loss on the ranks that did not write the model.
    """,
    why="""
        deepspeed.initialize sends the parameters of one rank to all others, and no buffers. Random
        features, a fixed projection or a table that each rank draws itself stay different, so one
        set of parameters is trained for several different models. DistributedDataParallel sends
        buffers, too.
    """,
    setup="""
        import os

        import deepspeed
        import torch

        deepspeed.init_distributed("gloo")


        def make_engine(model, **changes):
            config = {
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 1,
                "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
                "zero_optimization": {"stage": 1},
            }
            parameters = [p for p in model.parameters() if p.requires_grad]
            return deepspeed.initialize(
                model=model, model_parameters=parameters, config=config | changes
            )[0]
    """,
    broken="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("frequencies", torch.randn(4, 8))
                self.last = torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.last(torch.sin(x @ self.frequencies))

        torch.manual_seed(100 + rank)
        engine = make_engine(Net())
        for step in range(4):
            x = torch.randn(4, 4)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
    """,
    fixed="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("frequencies", torch.randn(4, 8))
                self.last = torch.nn.Linear(8, 1)

            def forward(self, x):
                return self.last(torch.sin(x @ self.frequencies))

        torch.manual_seed(100)
        engine = make_engine(Net())
        torch.manual_seed(100 + rank)
        for step in range(4):
            x = torch.randn(4, 4)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
    """,
    proof="""
        copies = [torch.empty(4, 8) for _ in range(world_size)]
        dist.all_gather(copies, engine.module.frequencies)
        assert all(torch.equal(copy, copies[0]) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}, confidence="likely"),
    fixes=(
        Advice(
            "fix consistency between devices",
            "build the model with one seed on all ranks, or broadcast its buffers before "
            "deepspeed.initialize; give each rank its own seed only afterwards",
        ),
    ),
    cluster="""
        Compare the buffers of the ranks' models after the start: all_gather their sums.
    """,
    apart={
        "buffer-updated-by-each-rank": "the buffers start equal, and each rank changes its own",
        "replicas-start-apart": "parameters differ, and no library makes them equal",
    },
    references=(
        Reference(
            "DeepSpeed: training API",
            "https://deepspeed.readthedocs.io/en/latest/training.html",
        ),
    ),
    in_source=False,
)
