"""The file in which the ranks meet still holds what an earlier run wrote."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

_LEAVE_A_FILE = f"""
dist.init_process_group("gloo")
{SCRATCH}
dist.destroy_process_group()

from pathlib import Path

meeting = os.path.abspath("rendezvous")
dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world_size)
dist.barrier()  # until every rank has connected to the others
written = Path(meeting).read_bytes()
dist.destroy_process_group()
if rank == 0:  # what a run leaves behind that is killed while it writes
    Path(meeting).write_bytes(written[: len(written) * 2 // 3])
"""

CARD = FaultCard(
    id="rendezvous-file-left-over",
    title="the rendezvous file of an earlier run is used again",
    symptoms=("B.2",),
    views=("stacks",),
    options={"group": False, "timeout": 5.0},
    sees="""
        The first start of the script worked. The start after a crash hangs in `init_process_group`,
        or fails with "connection refused", although nothing was changed.
    """,
    why="""
        With `init_method="file://…"` the ranks write their addresses to a file and count in it how
        many have joined. The last rank that destroys the group removes the file, unless two ranks
        destroy it at the same moment: then each can take the other for the last. After a crash it
        remains too, perhaps incomplete. The next ranks read addresses of processes that no longer
        exist, or wait for the rest of a record.
    """,
    setup=_LEAVE_A_FILE,
    broken="""
        from datetime import timedelta

        dist.init_process_group(
            "gloo",
            init_method=f"file://{meeting}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=3),
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    fixed="""
        from datetime import timedelta

        dist.init_process_group(
            "gloo",
            init_method=f"file://{meeting}-{os.environ['TORCHELASTIC_RUN_ID']}-{os.getppid()}",
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=3),
        )
        total = torch.ones(1)
        dist.all_reduce(total)
    """,
    proof="assert total.item() == world_size",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix communication configuration",
            "give each run another file, named after the job, on a file system that all ranks "
            "share; or meet over TCP (`env://`), which leaves nothing behind",
        ),
        Advice(
            "fix consistency between devices",
            "delete the file before the ranks start, in the launcher and not in the script, where "
            "one rank could delete what another has just written",
        ),
    ),
    gloo=("Gloo connectFullMesh failed with", "wait timeout after"),
    nccl=("Timed out after 601 seconds waiting for clients.",),
    cluster="""
        The job that was resubmitted after a crash hangs at its start, and runs again once somebody
        has cleared the shared directory. The file is older than the job.
    """,
    apart={
        "rendezvous-differs": "the ranks name different places",
        "rank-missing-at-setup": "a rank never joins",
    },
    references=(
        Reference(
            "torch.distributed: shared file-system initialization",
            "https://docs.pytorch.org/docs/stable/distributed.html#shared-file-system-initialization",
        ),
    ),
    in_source=False,
)
