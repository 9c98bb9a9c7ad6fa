"""An option of the set-up is of the wrong type."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="setup-options",
    title="an option of init_process_group is of the wrong kind",
    symptoms=("B.1",),
    options={"group": False},
    sees="""
        `init_process_group` or `new_group` fails with a TypeError or ValueError about an option:
        "Expected timeout argument to be of type datetime.timedelta, got 60".
    """,
    why="""
        Each option has its own type: the timeout is a timedelta, pg_options an object of the
        backend's Options class, device_id a torch.device with an index. A plain number or a dict,
        perhaps from a configuration file, has the wrong type.
    """,
    broken="""
        settings = {"backend": "gloo", "timeout": 60}

        dist.init_process_group(**settings)

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        from datetime import timedelta

        settings = {"backend": "gloo", "timeout": 60}
        settings["timeout"] = timedelta(seconds=settings["timeout"])

        dist.init_process_group(**settings)

        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix communication configuration",
            "give the option the type that the message names: `timeout=timedelta(seconds=60)`, "
            "`pg_options=dist.ProcessGroupNCCL.Options()`",
        ),
        Advice(
            "fix framework installation/version",
            "an option that this version does not know has another name there, or was added later: "
            "see the documentation of the installed version",
        ),
    ),
    gloo=("Expected timeout argument to be of type datetime.timedelta",),
    nccl=("Expected timeout argument to be of type datetime.timedelta",),
    cluster="""
        All ranks end in the first second, at the same line, often after the configuration moved
        from code into a file.
    """,
    apart={
        "backend-unknown": "it is the name of the backend that is wrong",
        "init-method-incomplete": "the address is wrong",
    },
    references=(
        Reference("A study of faults in distributed training", "https://arxiv.org/abs/2112.06222"),
        Reference(
            "torch.distributed: init_process_group",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",
        ),
    ),
)
