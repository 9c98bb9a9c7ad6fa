"""Parameters of ZeRO-3 are changed where the change is lost."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-gathered-change-lost",
    title="parameters are changed in GatheredParameters without a modifier_rank",
    symptoms=("D.2.4",),
    views=("placement",),
    needs=("deepspeed",),
    sees="""
        Training runs, but starts from other weights than expected: an initialisation, a resized
        embedding or loaded rows have no effect.
    """,
    why="""
        With ZeRO-3, each rank holds a part of each parameter. GatheredParameters brings the parts
        together for a while. When it ends without a modifier_rank, each rank takes up its own part
        as it was before; with modifier_rank=0, rank 0 broadcasts what it has written.
    """,
    setup="""
        import deepspeed
        import torch

        deepspeed.init_distributed("gloo")
        config = {
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
        }
    """,
    broken="""
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = torch.nn.Linear(16, 1)
        with deepspeed.zero.GatheredParameters(model.weight):
            model.weight.data.fill_(0.5)
        engine = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )[0]
    """,
    fixed="""
        with deepspeed.zero.Init(config_dict_or_path=config):
            model = torch.nn.Linear(16, 1)
        with deepspeed.zero.GatheredParameters(model.weight, modifier_rank=0):
            if rank == 0:
                model.weight.data.fill_(0.5)
        engine = deepspeed.initialize(
            model=model, model_parameters=model.parameters(), config=config
        )[0]
    """,
    proof="""
        with deepspeed.zero.GatheredParameters(model.weight):
            assert model.weight.eq(0.5).all()
    """,
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "write `deepspeed.zero.GatheredParameters(parameters, modifier_rank=0)`, and change "
            "them on rank 0, which broadcasts them at the end",
        ),
    ),
    cluster="""
        Print a parameter in a second GatheredParameters after the first one: it has its old
        values. With enable_sanity_checks in zero_optimization, DeepSpeed raises for some changes.
    """,
    apart={
        "deepspeed-zero-init-on-some-ranks": "the ranks do not even build the model alike",
    },
    references=(
        Reference(
            "DeepSpeed: manual parameter coordination",
            "https://deepspeed.readthedocs.io/en/latest/zero3.html",
        ),
    ),
    in_source=False,
)
