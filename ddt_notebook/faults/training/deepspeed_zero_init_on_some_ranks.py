"""Only some ranks build the model inside deepspeed.zero.Init."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-zero-init-on-some-ranks",
    title="only some ranks build the model inside deepspeed.zero.Init",
    symptoms=("D.2.1", "D.1.1", "B.2"),
    views=("stacks", "collectives"),
    needs=("deepspeed",),
    sees="""
        The job stands still before the first step: some ranks wait at the line that makes the
        model, in a broadcast, and others in deepspeed.initialize().
    """,
    why="""
        Inside of deepspeed.zero.Init, each layer is divided as soon as it is made: it broadcasts
        its parameters, so all ranks have to make it there. A rank that builds the model without
        this context, because it loads the model in another way or because a variable of its node
        says so, goes on to deepspeed.initialize(), which forms groups first.
    """,
    setup="""
        import deepspeed
        import torch

        deepspeed.init_distributed("gloo")
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": 3},
        }
    """,
    broken="""
        in_cache = rank == 0
        torch.manual_seed(0)
        with deepspeed.zero.Init(config_dict_or_path=config, enabled=not in_cache):
            model = torch.nn.Linear(16, 1)
        engine = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )[0]
        for step in range(2):
            engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
            engine.step()
    """,
    fixed="""
        in_cache = [rank == 0]
        dist.broadcast_object_list(in_cache)
        torch.manual_seed(0)
        with deepspeed.zero.Init(config_dict_or_path=config, enabled=not in_cache[0]):
            model = torch.nn.Linear(16, 1)
        engine = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )[0]
        for step in range(2):
            engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
            engine.step()
    """,
    proof="""
        assert engine.global_steps == 2
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 5, 1: 4}),
    fixes=(
        Advice(
            "fix consistency between devices",
            "let rank 0 decide whether the model is built inside deepspeed.zero.Init, and "
            "broadcast that, or always build it there",
        ),
    ),
    cluster="""
        The stacks (py-spy dump) show the constructor of the model on some ranks, and
        deepspeed.initialize on others.
    """,
    apart={
        "wait-cycle": "the ranks wait for each other in two collectives of the program itself",
        "deepspeed-config-differs": "the ranks give deepspeed.initialize other settings",
    },
    references=(
        Reference(
            "DeepSpeed: constructing massive models",
            "https://deepspeed.readthedocs.io/en/latest/zero3.html",
        ),
    ),
    in_source=False,
)
