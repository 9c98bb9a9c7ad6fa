"""A group is used after it was destroyed."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="stale-group",
    title="a group is used that was made before the default group was formed anew",
    symptoms=("B.1",),
    views=("stacks", "collectives"),
    options={"group": False},
    sees="""
        A collective, or a DDP model, fails because its group is not registered or is gone, although
        a group is there and `is_initialized` says so.
    """,
    why="""
        destroy_process_group ends the default group and all that were made from it. The objects are
        still in variables, in DDP models and in samplers, but their connections are closed. A group
        that is formed afterwards is another one, and they do not belong to it.
    """,
    broken="""
        dist.init_process_group("gloo")
        everyone = dist.new_group(list(range(world_size)))
        total = torch.ones(1)
        dist.all_reduce(total, group=everyone)

        dist.destroy_process_group()
        dist.init_process_group("gloo")
        dist.all_reduce(total, group=everyone)
    """,
    fixed="""
        def form():
            dist.init_process_group("gloo")
            return dist.new_group(list(range(world_size)))

        everyone = form()
        total = torch.ones(1)
        dist.all_reduce(total, group=everyone)

        dist.destroy_process_group()
        everyone = form()
        dist.all_reduce(total, group=everyone)
    """,
    proof="assert total.item() == world_size**2",
    expected=Expected(ranks=(0, 1), lines={0: 8, 1: 8}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "make groups, and DDP models on them, anew after the default group was formed anew; in "
            "a session, run the cell again that made the group: a failure ends all groups",
        ),
        Advice(
            "fix behavior logic",
            "destroy the group once, at the very end of the program",
        ),
    ),
    gloo=("is not registered", "process group is gone"),
    nccl=("NCCL communicator was aborted",),
    cluster="""
        An elastic job goes on after a machine was replaced and fails in the first step, because the
        model was not wrapped again.
    """,
    apart={"group-not-initialized": "there, no default group exists at all"},
    references=(
        Reference(
            "torch.distributed: destroy_process_group",
            "https://docs.pytorch.org/docs/stable/distributed.html#shutdown",
        ),
    ),
    in_source=False,
)
