"""Horovod, whose ranks meet by the name of a tensor."""

from __future__ import annotations

from ..named_tensors import JOIN
from ..operations import Operation
from .description import AloneBegin, Description, JobRecording, Preparation

#: Its initialisation.
INIT = "hvd.init"
#: Its end by the program, which ends it on all ranks.
SHUTDOWN = "hvd.shutdown"
#: The call that decides when gradients are exchanged, and how; a rank records the settings.
OPTIMIZER = "hvd.DistributedOptimizer"
#: Attributes of its result that have to be equal on all ranks.
SETTINGS = ("backward_passes_per_step", "compression", "op", "gradient_predivide_factor")
_REDUCED = Operation(
    parameters=("tensor", "name", "op", "process_set"),
    tensors="tensor",
    result="tensor",
    reduces=True,
    agrees=True,
)
_GATHERED = Operation(
    parameters=("tensor", "name", "process_set"), tensors="tensor", agrees=True, uneven=True
)

FRAMEWORK = Description(
    name="horovod",
    title="Horovod",
    in_ranks="ddt_notebook.rank.frameworks.horovod:Horovod",
    preparation=Preparation(
        modules=("horovod", "horovod.torch"),
        install="run tools/build_horovod.py of this package's repository, which builds it",
        environment={"HOROVOD_LOG_LEVEL": "fatal"},
        alone=AloneBegin(
            module="horovod.common.basics",
            method="HorovodBasics.init",
            variable="HOROVOD_SIZE",
        ),
    ),
    in_jobs=JobRecording(
        after="horovod.torch", in_ranks="ddt_notebook.rank.frameworks.horovod_job:HorovodJob"
    ),
    operations={
        "allreduce": _REDUCED,
        "grouped_allreduce": _REDUCED,
        "allgather": _GATHERED,
        "grouped_allgather": _GATHERED,
        "alltoall": Operation(
            parameters=("tensor", "splits", "name", "process_set"), tensors="tensor", uneven=True
        ),
        "reducescatter": Operation(
            parameters=("tensor", "name", "op", "process_set"), tensors="tensor", reduces=True
        ),
        "grouped_reducescatter": Operation(
            parameters=("tensors", "name", "op", "process_set"), tensors="tensors", reduces=True
        ),
        JOIN: Operation(parameters=("device",)),
    },
    by_tensor=True,
    ends=frozenset({SHUTDOWN}),
    waits_in={
        "horovod/torch/mpi_ops.py": frozenset(
            {"allreduce", "allreduce_", "grouped_allreduce", "grouped_allreduce_", "allgather"}
            | {"grouped_allgather", "broadcast", "broadcast_", "alltoall", "reducescatter"}
            | {"grouped_reducescatter", "barrier", "join", "synchronize"}
        ),
        "horovod/torch/functions.py": frozenset(
            {"broadcast_parameters", "broadcast_optimizer_state", "broadcast_object"}
            | {"allgather_object"}
        ),
        "horovod/common/basics.py": frozenset({"init"}),
    },
    failures=frozenset({"HorovodInternalError"}),
    settings_calls=(OPTIMIZER,),
    settings_of="training",
    causes=dict.fromkeys(SETTINGS, "horovod-optimizers-differ"),
    stand_ins={
        "collective-under-rank-condition": "horovod-rank-alone",
        "different-groups": "horovod-names-differ",
        "groups-in-opposite-order": "horovod-order-differs",
        "no-distributed-sampler": "horovod-data-undivided",
        "replicas-start-apart": "horovod-not-broadcast",
        "sampler-for-wrong-rank": "horovod-data-undivided",
        "uneven-iterations": "horovod-steps-differ",
    },
)
