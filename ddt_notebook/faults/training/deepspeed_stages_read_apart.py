"""Stages of a pipeline read different batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-stages-read-apart",
    title="the first and the last stage of a pipeline read different batches",
    symptoms=("D.2.2",),
    views=("collectives",),
    needs=("deepspeed",),
    sees="""
        Training runs to its end, and the loss stays at that of a guess, as if the labels had been
        shuffled. On one stage the same model learns.
    """,
    why="""
        The first stage of a pipeline takes the inputs of a batch, and the last one its labels. Each
        reads them from its own iterator. Stages with another seed, or with a sampler that divides
        the data among all ranks instead of among pipelines, join the inputs of one batch with the
        labels of another.
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
        inputs = torch.randn(64, 4, 16)
        batches = [(x, x.sum(1, keepdim=True)) for x in inputs]
        mine = iter(batches[rank::world_size])
        for step in range(3):
            loss = engine.train_batch(data_iter=mine)
    """,
    fixed="""
        from deepspeed.pipe import PipelineModule

        torch.manual_seed(0)
        layers = [torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1)]
        net = PipelineModule(layers=layers, num_stages=2, loss_fn=torch.nn.functional.mse_loss)
        engine = make_engine(net, zero_optimization={"stage": 0}, gradient_accumulation_steps=2)
        inputs = torch.randn(64, 4, 16)
        batches = [(x, x.sum(1, keepdim=True)) for x in inputs]
        pipelines, pipeline = engine.dp_world_size, engine.grid.get_data_parallel_rank()
        mine = iter(batches[pipeline::pipelines])
        for step in range(3):
            loss = engine.train_batch(data_iter=mine)
    """,
    proof="""
        assert (pipelines, pipeline) == (1, 0)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let all stages of a pipeline read the same batches in the same order: divide the data "
            "by engine.grid.get_data_parallel_rank() of engine.dp_world_size parts, and shuffle by "
            "one seed",
        ),
    ),
    cluster="""
        Print a sum of the inputs and labels that each stage reads in its first steps.
    """,
    apart={
        "deepspeed-pipeline-batches-differ": "stages train other numbers of batches, and wait",
        "no-distributed-sampler": "ranks of data parallelism read the same samples",
    },
    references=(
        Reference(
            "DeepSpeed: pipeline parallelism", "https://www.deepspeed.ai/tutorials/pipeline/"
        ),
    ),
    in_source=False,
)
