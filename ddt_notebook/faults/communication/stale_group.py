"""A group is used after it was destroyed."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="stale-group",
    title="a group is used that was created before the default group was formed again",
    symptoms=("B.1",),
    views=("stacks", "collectives"),
    options={"group": False},
    sees="""
        A collective, or a DDP model, fails because its group is not registered or is gone, although
        a group exists and `is_initialized` returns True.
    """,
    why="""
        destroy_process_group ends the default group and all groups that were created from it.
        Variables, DDP models and samplers still hold the objects, but their connections are closed.
        They do not belong to a group that is formed afterwards.
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
            "after the default group was formed again, create the other groups and the DDP models "
            "again; in a session, run the cell again that created the group, because a failure "
            "ends all groups",
        ),
        Advice(
            "fix behavior logic",
            "destroy the group once, at the very end of the program",
        ),
    ),
    gloo=("is not registered", "process group is gone", "Could not resolve the process group"),
    nccl=("NCCL communicator was aborted",),
    cluster="""
        An elastic job goes on after a machine was replaced and fails in the first step, because the
        model was not wrapped again.
    """,
    apart={"group-not-initialized": "no default group exists"},
    references=(
        Reference(
            "torch.distributed: destroy_process_group",
            "https://docs.pytorch.org/docs/stable/distributed.html#shutdown",
        ),
    ),
    in_source=False,
)
