"""A loss is divided by the steps of accumulation, and DeepSpeed divides it again."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-loss-divided-twice",
    title="a loss is divided by the steps of accumulation before DeepSpeed divides it",
    symptoms=("D.2.4",),
    views=("collectives",),
    needs=("deepspeed",),
    sees="""
        With gradient_accumulation_steps = k in the configuration, gradients are k times smaller
        than expected. SGD learns k times more slowly, and clipping has no effect.
    """,
    why="""
        engine.backward() divides the loss by the configured steps of accumulation. A loop that was
        written for an optimizer of torch divides it, too.
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
        accumulation_steps = 2
        model = torch.nn.Linear(16, 1)
        engine = make_engine(model, gradient_accumulation_steps=accumulation_steps)
        torch.manual_seed(100 + rank)
        for micro in range(8):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss / accumulation_steps)
            engine.step()
    """,
    fixed="""
        torch.manual_seed(0)
        accumulation_steps = 2
        model = torch.nn.Linear(16, 1)
        engine = make_engine(model, gradient_accumulation_steps=accumulation_steps)
        torch.manual_seed(100 + rank)
        for micro in range(8):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
    """,
    proof="""
        assert engine.global_steps == 4
    """,
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "pass the undivided loss to engine.backward(), or call it with scale_wrt_gas=False",
        ),
    ),
    cluster="""
        Compare the norm of the gradients with that of one batch of the whole size.
    """,
    apart={
        "deepspeed-accumulated-twice": "step() is called only after the passes of accumulation",
        "accumulated-loss-not-divided": "an optimizer of torch steps, and nothing divides the loss",
    },
    references=(
        Reference(
            "DeepSpeed: training API",
            "https://deepspeed.readthedocs.io/en/latest/training.html",
        ),
    ),
    in_source=False,
)
