"""Stages of a pipeline train different numbers of batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-pipeline-batches-differ",
    title="stages of a pipeline train different numbers of batches",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        Training stands still in engine.train_batch(). The ranks of one stage send activations
        that nobody receives, and those of another stage have finished.
    """,
    why="""
        train_batch() sends activations and gradients between neighbouring stages, for each micro-
        batch. A stage that trains fewer batches than its neighbour never receives what that one
        sends.
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
        from deepspeed.pipe import PipelineModule

        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
        engine = make_engine(net, zero_optimization={"stage": 0}, gradient_accumulation_steps=2)
        batches = iter([(torch.randn(4, 16), torch.randn(4, 1))] * 100)
        for step in range(3 - rank):
            loss = engine.train_batch(data_iter=batches)
    """,
    fixed="""
        from deepspeed.pipe import PipelineModule

        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
        engine = make_engine(net, zero_optimization={"stage": 0}, gradient_accumulation_steps=2)
        batches = iter([(torch.randn(4, 16), torch.randn(4, 1))] * 100)
        for step in range(3):
            loss = engine.train_batch(data_iter=batches)
    """,
    proof="""
        assert engine.global_steps == 3
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 9}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call train_batch() equally often on every stage: compute the number from what all "
            "ranks know, not from the data, which only the first and the last stage read",
        ),
    ),
    cluster="""
        The log of the last stage ends with its loop. The first stage stands in a send, and
        reports nothing.
    """,
    apart={
        "message-without-partner": "the program itself calls send and recv",
        "deepspeed-batches-differ": "each rank holds the whole model",
    },
    references=(
        Reference(
            "DeepSpeed: pipeline parallelism", "https://www.deepspeed.ai/tutorials/pipeline/"
        ),
    ),
    in_source=False,
)
