"""Only some ranks call engine.save_checkpoint."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-checkpoint-on-some-ranks",
    title="only some ranks call engine.save_checkpoint",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        Training ends well. Then rank 0 stands in engine.save_checkpoint() and does not return,
        while the other ranks go on or have finished.
    """,
    why="""
        With ZeRO, each rank writes the part of the optimizer state that it holds, so
        save_checkpoint contains barriers for all ranks. The habit of saving on rank 0 only makes
        it wait without end.
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
        import tempfile

        folder = tempfile.mkdtemp()
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        for step in range(2):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
        if rank == 0:
            engine.save_checkpoint(folder)
    """,
    fixed="""
        import tempfile

        folder = tempfile.mkdtemp()
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        for step in range(2):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
        engine.save_checkpoint(folder)
    """,
    proof="""
        assert os.listdir(folder)
    """,
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 11, 1: 10}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call engine.save_checkpoint() on every rank, with one folder for all of them",
        ),
    ),
    cluster="""
        The log ends with the last step. The folder of the checkpoint exists and has files of one
        rank only.
    """,
    apart={
        "collective-under-rank-condition": "a rank of torch alone calls a collective",
    },
    references=(
        Reference(
            "DeepSpeed: model checkpointing",
            "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
        ),
    ),
    in_source=False,
)
