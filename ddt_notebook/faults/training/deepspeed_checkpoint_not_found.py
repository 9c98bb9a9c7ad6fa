"""engine.load_checkpoint finds no checkpoint on some ranks, and raises nothing."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-checkpoint-not-found",
    title="engine.load_checkpoint finds no checkpoint and raises nothing",
    symptoms=("D.2.1", "D.1.6"),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        A resumed job begins with the first step again, or some of its ranks do: these wait at the
        end for the others, which have made fewer steps. Or the next line fails, because the state
        that was loaded is None.
    """,
    why="""
        Without a file "latest" in the folder, engine.load_checkpoint() logs a warning, returns
        (None, None) and leaves the engine as it is. That happens if the folder is on the disk of
        one node, or if its name differs between ranks. A program that goes on trains with other
        parameters and other steps on these ranks.
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


        folders = [__import__("tempfile").mkdtemp()]
        dist.broadcast_object_list(folders)
        shared = folders[0]
        saved = make_engine(torch.nn.Linear(16, 1))
        saved.save_checkpoint(shared, client_state={"step": 2})
    """,
    broken="""
        folder = os.path.join(shared, f"node{rank}") if rank else shared
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        _, state = engine.load_checkpoint(folder)
        first = state["step"] if state else 0
        for step in range(first, 4):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
    """,
    fixed="""
        folder = shared
        torch.manual_seed(0)
        engine = make_engine(torch.nn.Linear(16, 1))
        path, state = engine.load_checkpoint(folder)
        assert path is not None, f"no checkpoint in {folder}"
        for step in range(state["step"], 4):
            x = torch.randn(4, 16)
            engine.backward(engine(x).pow(2).mean())
            engine.step()
    """,
    proof="""
        assert engine.global_steps == 2
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 6}),
    fixes=(
        Advice(
            "fix behavior logic",
            "stop if load_checkpoint returns None where a checkpoint is expected, and let all "
            "ranks load from one folder that they share",
        ),
    ),
    cluster="""
        The log of some nodes has "Unable to find latest file at ...". Their first loss is that of
        a model that is not trained.
    """,
    apart={
        "deepspeed-batches-differ": "the ranks begin with the same step, and their data differ",
        "deepspeed-checkpoint-tags-differ": "saving itself went to several folders",
    },
    references=(
        Reference(
            "DeepSpeed: model checkpointing",
            "https://deepspeed.readthedocs.io/en/latest/model-checkpointing.html",
        ),
    ),
    in_source=False,
)
