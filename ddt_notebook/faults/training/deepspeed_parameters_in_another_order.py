"""An optimizer of DeepSpeed holds the parameters in another order on each rank."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="deepspeed-parameters-in-another-order",
    title="an optimizer that DeepSpeed divides has another order of parameters on each rank",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    needs=("deepspeed",),
    sees="""
        Nothing is raised, but the loss is worse than on one process or does not fall, and after the
        first step the ranks hold other parameters. Another run of the same program may be right.
    """,
    why="""
        ZeRO-1 and ZeRO-2 join all parameters of a group in the order in which the optimizer has
        them, and each rank updates one part of the result. Where a rank has another order, its part
        belongs to other parameters. A set of names has another order in each process, since Python
        hashes strings with a number drawn at the start.
    """,
    setup="""
        import os

        import deepspeed
        import torch

        deepspeed.init_distributed("gloo")

        CONFIG = {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 1,
            "zero_optimization": {"stage": 1},
        }


        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(8, 8, bias=False)
                self.second = torch.nn.Linear(8, 8, bias=False)

            def forward(self, x):
                return self.second(torch.relu(self.first(x)))
    """,
    broken="""
        torch.manual_seed(0)
        model = Net()
        parameters = dict(model.named_parameters())
        names = list(parameters)
        if rank == 1:
            names.reverse()
        optimizer = torch.optim.Adam([parameters[name] for name in names], lr=0.01)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
        torch.manual_seed(100 + rank)
        for step in range(4):
            x = torch.randn(4, 8)
            engine.backward((engine(x) - x).pow(2).mean())
            engine.step()
    """,
    fixed="""
        torch.manual_seed(0)
        model = Net()
        parameters = dict(model.named_parameters())
        names = sorted(parameters)
        optimizer = torch.optim.Adam([parameters[name] for name in names], lr=0.01)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
        torch.manual_seed(100 + rank)
        for step in range(4):
            x = torch.randn(4, 8)
            engine.backward((engine(x) - x).pow(2).mean())
            engine.step()
    """,
    proof="""
        copies = [torch.empty(8, 8) for _ in range(world_size)]
        dist.all_gather(copies, engine.module.first.weight.detach().contiguous())
        assert all(torch.equal(copy, copies[0]) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="certain"),
    fixes=(
        Advice(
            "fix consistency between devices",
            "give the optimizer the parameters in the order of model.parameters() on every rank, "
            "or sort their names; go through a list or a dict of names, and through no set",
        ),
    ),
    cluster="""
        Print the names in the order of the optimizer's groups on two ranks, before
        deepspeed.initialize, and compare them.
    """,
    apart={
        "submodules-in-another-order": "DistributedDataParallel goes by the order of the modules",
        "deepspeed-buffers-differ": "all parameters are equal, and buffers differ",
    },
    references=(
        Reference(
            "DeepSpeed: ZeRO",
            "https://deepspeed.readthedocs.io/en/latest/zero3.html",
        ),
        Reference(
            "Python: set types, and PYTHONHASHSEED",
            "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONHASHSEED",
        ),
    ),
    in_source=False,
)
