"""A loop accumulates gradients that DeepSpeed's engine accumulates already."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-accumulated-twice",
    title="a loop accumulates what DeepSpeed's engine accumulates already",
    symptoms=("D.2.4",),
    views=("collectives",),
    needs=("deepspeed",),
    sees="""
        With gradient_accumulation_steps = k in the configuration, the model learns more slowly than
        expected: it changes k times less often than the loop calls engine.step(), and a schedule of
        the learning rate is late.
    """,
    why="""
        engine.step() belongs after every backward pass. The engine counts these calls, divides each
        loss by k, and updates the model at each k-th call. A loop that itself calls step() only
        after k passes, as with an optimizer of torch, accumulates k times k passes. Each update
        then has k times the mean gradient.
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
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 1)
        engine = make_engine(model, gradient_accumulation_steps=2)
        torch.manual_seed(100 + rank)
        for micro in range(8):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            if (micro + 1) % 2 == 0:
                engine.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = torch.nn.Linear(16, 1)
        engine = make_engine(model, gradient_accumulation_steps=2)
        torch.manual_seed(100 + rank)
        for micro in range(8):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
    """,
    proof="""
        assert engine.global_steps == 4
    """,
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "call engine.step() after each backward pass, without a condition, or set "
            "gradient_accumulation_steps to 1 and divide the loss yourself",
        ),
    ),
    cluster="""
        engine.global_steps is k times smaller than the number of the loop's own steps.
    """,
    apart={
        "accumulated-loss-not-divided": "an optimizer of torch steps, and no engine counts",
    },
    references=(
        Reference(
            "DeepSpeed: training API",
            "https://deepspeed.readthedocs.io/en/latest/training.html",
        ),
    ),
    in_source=False,
)
