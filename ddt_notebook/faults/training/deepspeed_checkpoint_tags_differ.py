"""Ranks give engine.save_checkpoint different tags."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-checkpoint-tags-differ",
    title="ranks save one DeepSpeed checkpoint under different tags",
    symptoms=("D.1.6",),
    views=("collectives",),
    needs=("deepspeed",),
    sees="""
        Saving ends well, with a warning that the tag is not consistent across all ranks. The folder
        of the checkpoint has one subfolder for each rank, and load_checkpoint() finds no file for
        some ranks, or loads a model without the optimizer's state.
    """,
    why="""
        With ZeRO, each rank writes its part of the optimizer's state into the folder named by the
        tag. A tag made of a rank's own loss, clock or number differs, so the parts lie in different
        folders. The file latest has the tag of rank 0 only. By default DeepSpeed warns and goes on.
        Different tags in load_checkpoint() give the ranks different states, without a warning.
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

        folders = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folders)
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        torch.manual_seed(100 + rank)
        for step in range(2):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folders[0], loss.item())
    """,
    fixed="""
        import tempfile

        folders = [tempfile.mkdtemp()]
        dist.broadcast_object_list(folders)
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        torch.manual_seed(100 + rank)
        for step in range(2):
            x = torch.randn(4, 16)
            loss = engine(x).pow(2).mean()
            engine.backward(loss)
            engine.step()
        engine.save_checkpoint(folders[0], f"step{step}")
    """,
    proof="""
        assert engine.load_checkpoint(folders[0])[0] is not None
    """,
    expected=Expected(ranks=(0, 1), lines={0: 13, 1: 13}),
    fixes=(
        Advice(
            "fix behavior logic",
            "build the tag from what all ranks have alike, such as the step or the epoch, or "
            "leave it out: DeepSpeed then takes the number of the step. With "
            "checkpoint.tag_validation = Fail it raises instead of a warning",
        ),
    ),
    cluster="""
        The log has "The checkpoint tag name ... is not consistent across all ranks" for each save.
    """,
    apart={
        "deepspeed-checkpoint-on-some-ranks": "some ranks do not save at all, and the others wait",
    },
    references=(
        Reference(
            "DeepSpeed: model checkpointing",
            "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
        ),
    ),
    in_source=False,
)
