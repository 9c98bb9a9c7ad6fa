"""Ranks give deepspeed.initialize other configurations."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-config-differs",
    title="ranks give deepspeed.initialize other configurations",
    symptoms=("D.2.1", "D.1.1", "D.2.2"),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        The first steps fail: a rank waits in engine.step() or engine.backward(), or gloo ends a
        process because messages have other sizes. The traceback names functions of DeepSpeed
        only. With another clipping, or with stages 1 and 2, nothing fails.
    """,
    why="""
        The configuration decides which collectives an engine issues and when: the stage of ZeRO,
        the steps of accumulation, the batch size and clipping. Ranks with other values issue
        other collectives.
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
        engine = make_engine(torch.nn.Linear(16, 1), gradient_accumulation_steps=1 + rank)
        for step in range(4):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
    """,
    fixed="""
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1), gradient_accumulation_steps=2)
        for step in range(4):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
    """,
    proof="""
        assert engine.gradient_accumulation_steps() == 2
        assert engine.global_steps == 2
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 6}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give every rank the same configuration: read it from one file, and change it only "
            "by what all ranks know",
        ),
    ),
    cluster="""
        The log stops in the first steps. Compare the configurations that DeepSpeed prints at the
        start of each rank.
    """,
    apart={
        "shape-differs": "ranks pass tensors of other shapes to one collective",
    },
    references=(
        Reference("DeepSpeed: configuration", "https://www.deepspeed.ai/docs/config-json/"),
    ),
    in_source=False,
)
