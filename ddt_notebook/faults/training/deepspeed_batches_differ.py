"""Ranks of DeepSpeed make different numbers of steps."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-batches-differ",
    title="ranks of DeepSpeed make different numbers of steps",
    symptoms=("D.2.1", "C.7"),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        Some steps before the end of an epoch, training stands still in engine.backward() or
        engine.step(). One rank has finished its loop, and the others wait.
    """,
    why="""
        Each step of an engine contains collectives for all ranks. A rank with fewer batches
        leaves the others waiting. DDP's join() does not exist for engines.
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
        engine = make_engine(torch.nn.Linear(16, 1))
        for step in range(4 + rank):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
    """,
    fixed="""
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        for step in range(4):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
    """,
    proof="""
        assert engine.global_steps == 4
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={1: 6}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let every rank make the same number of steps: pass training_data to "
            "deepspeed.initialize, or divide the data evenly and drop the rest",
        ),
        Advice(
            "fix behavior logic",
            "compute the number of steps from what all ranks know, and stop there",
        ),
    ),
    cluster="""
        The logs of some ranks end with the epoch, those of others one step before it.
    """,
    apart={
        "uneven-iterations": "the model is not an engine of DeepSpeed",
        "deepspeed-pipeline-batches-differ": "the ranks are stages of a pipeline",
    },
    references=(
        Reference(
            "DeepSpeed: training API", "https://deepspeed.readthedocs.io/en/latest/training.html"
        ),
    ),
    in_source=False,
)
