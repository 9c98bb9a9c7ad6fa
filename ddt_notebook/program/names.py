"""Names with a meaning in a distributed program: the rank, the world, what every rank calls.

Names of ``torch.distributed`` are derived from `ddt_notebook.model.operations`. Names of other
libraries and common names in programs are listed here, once.
"""

from __future__ import annotations

import re
from typing import Final

from ddt_notebook.model.operations import COLLECTIVES, MESSAGES, OPERATIONS, SETUP, SUBGROUPS

# -- the rank and the number of ranks ------------------------------------------------------------

#: Variables and attributes that hold the rank in programs.
RANK_NAMES: Final = frozenset(
    {"rank", "local_rank", "global_rank", "RANK", "LOCAL_RANK", "ddp_rank", "ddp_local_rank",
     "world_rank", "dist_rank", "process_index", "local_process_index"}
)  # fmt: skip
#: Functions that return the rank.
RANK_CALLS: Final = frozenset({"get_rank", "get_node_local_rank", "local_rank", "get_local_rank"})
#: What returns the place of a rank in a group, in Megatron-core, DeepSpeed and torch's meshes:
#: ``get_tensor_model_parallel_rank``, ``is_pipeline_last_stage``.
_IN_GROUP = re.compile(r"get_(\w+_)?rank|is_(\w+_)?(first|last)_stage|get_coordinate")
#: What returns the rank of somebody else: ``get_pipeline_model_parallel_next_rank``.
_OF_OTHERS = re.compile(r"get_(\w+_)?(global|src|source|next|prev|first|last|root)_rank")
#: Usual names of a place in a group.
GROUP_RANK_NAMES: Final = frozenset(
    {"tp_rank", "pp_rank", "dp_rank", "cp_rank", "ep_rank", "sp_rank", "mp_rank", "stage_id"}
)
#: Environment variables that hold the rank.
RANK_VARIABLES: Final = frozenset(
    {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"}
)  # fmt: skip
#: Attributes and functions, of libraries and of programs, that are true on rank 0 alone.
FIRST_RANK: Final = frozenset(
    {"is_main_process", "is_local_main_process", "is_global_zero", "is_world_process_zero",
     "is_local_process_zero", "is_master", "is_main", "is_rank_zero", "is_rank_0",
     "is_master_process", "is_main_rank", "is_chief", "is_master_ordinal", "is_first_rank",
     "should_save", "should_log"}
)  # fmt: skip
#: Decorators of functions that run on rank 0 alone.
FIRST_RANK_DECORATORS: Final = frozenset(
    {"rank_zero_only", "master_only", "main_process_only", "on_main_process", "rank0_only",
     "on_local_main_process"}
)  # fmt: skip
WORLD_NAMES: Final = frozenset({"world_size", "WORLD_SIZE", "ddp_world_size", "num_processes"})
WORLD_CALLS: Final = frozenset({"get_world_size"})
WORLD_VARIABLES: Final = frozenset(
    {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "LOCAL_WORLD_SIZE"}
)
#: Environment variables that torchrun sets for every rank.
LAUNCHER_VARIABLES: Final = frozenset(
    {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
)
#: Functions whose result is the same on every rank.
AGREED_CALLS: Final = frozenset({"is_initialized", "is_available", "is_torchelastic_launched"})
#: Objects whose attributes are the same on every rank: a ``TrainerControl`` of transformers has
#: ``should_save``, too, but means the step.
AGREED_OBJECTS: Final = frozenset({"control"})

# -- what every rank has to call -----------------------------------------------------------------

DIST: Final = "torch.distributed."
DDP: Final = "torch.nn.parallel.DistributedDataParallel"
#: Modules and classes that the session imports for its cells, or that an earlier cell has most
#: likely imported, by their usual names.
GIVEN: Final = {
    "torch": "torch",
    "dist": "torch.distributed",
    "DDP": DDP,
    "nn": "torch.nn",
    "F": "torch.nn.functional",
    "os": "os",
    "sys": "sys",
    "time": "time",
}
#: Wrappers that average a model's gradients over the ranks.
WRAPPERS: Final = frozenset({"DistributedDataParallel", "FullyShardedDataParallel"})
#: Functions of ``torch.distributed`` that every member of a group has to call.
CALLED_TOGETHER: Final = frozenset(COLLECTIVES) | frozenset(SETUP) | frozenset(SUBGROUPS)
#: Functions of ``torch.distributed`` in which ranks communicate, and those that form groups.
COMMUNICATING: Final = frozenset(OPERATIONS) - {"destroy_process_group"}
#: What every rank has to call in other libraries, by the last two parts of its name.
OTHER_COLLECTIVES: Final = frozenset(
    {"hvd.allreduce", "hvd.allgather", "hvd.broadcast", "hvd.alltoall", "hvd.barrier",
     "hvd.broadcast_parameters", "hvd.broadcast_optimizer_state", "hvd.broadcast_object",
     "hvd.allgather_object", "checkpoint.save", "checkpoint.load", "checkpoint.async_save",
     "state_dict.get_model_state_dict", "state_dict.get_optimizer_state_dict",
     "state_dict.get_state_dict"}
)  # fmt: skip
#: Methods that every rank has to call, whatever object they belong to.
COLLECTIVE_METHODS: Final = frozenset({"wait_for_everyone", "gather_for_metrics", "full_tensor"})
#: Methods that every rank has to call, by the class of their object.
METHODS_OF: Final[dict[str, frozenset[str]]] = {
    "DeepSpeedEngine": frozenset(
        {"save_checkpoint", "load_checkpoint", "save_16bit_model", "backward", "step"}
    ),
    "Accelerator": frozenset(
        {"gather", "reduce", "save_state", "load_state", "pad_across_processes", "backward"}
    ),
    "Fabric": frozenset({"barrier", "all_gather", "all_reduce", "broadcast", "backward", "save"}),
    "FullyShardedDataParallel": frozenset({"state_dict", "clip_grad_norm_"}),
}
#: Functions of Horovod that carry values from rank to rank.
_OF_HOROVOD: Final = frozenset(
    {f"{group}{name}{form}"
     for group in ("", "grouped_")
     for name in ("allreduce", "allgather", "reducescatter", "alltoall")
     for form in ("", "_", "_async", "_async_")}
    | {"allgather_object", "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
       "broadcast_optimizer_state", "broadcast_parameters"}
)  # fmt: skip
#: Calls that carry values from rank to rank, including those of torchmetrics (``sync``,
#: ``compute``), Accelerate and Horovod.
CARRYING: Final = frozenset(
    {name for name, op in (COLLECTIVES | MESSAGES).items() if op.payload is not None}
    | {"gather_for_metrics", "sync", "compute"}
    | _OF_HOROVOD
)
#: Methods of libraries that return the mean of all ranks: the loss of DeepSpeed's pipelines.
AVERAGING_METHODS: Final = frozenset({"train_batch", "eval_batch"})
#: Calls that may return before their first argument holds the result.
DELIVERING_LATE: Final = frozenset(
    name
    for name, op in (COLLECTIVES | MESSAGES).items()
    if op.may_be_asynchronous and op.result is not None and op.position(op.result) == 0
)

# -- what differs between processes --------------------------------------------------------------

#: Functions that read a clock.
CLOCKS: Final = frozenset(
    {"time.time", "time.monotonic", "time.perf_counter", "time.process_time", "time.time_ns",
     "time.monotonic_ns", "time.perf_counter_ns", "datetime.datetime.now", "datetime.now",
     "timeit.default_timer", "datetime.datetime.utcnow"}
)  # fmt: skip
#: Functions whose result differs between processes.
OWN: Final = frozenset(
    {"os.getpid", "random.random", "random.randint", "random.choice", "socket.gethostname",
     "psutil.virtual_memory", "torch.cuda.memory_allocated", "torch.cuda.memory_reserved",
     "torch.cuda.mem_get_info"}
)  # fmt: skip

# -- what does not show a tensor's content -------------------------------------------------------

#: Attributes of a tensor.
METADATA: Final = frozenset({"shape", "dtype", "device", "ndim", "is_cuda", "requires_grad"})
#: Methods of a tensor, and functions that take a tensor.
METADATA_CALLS: Final = frozenset(
    {
        "size",
        "dim",
        "numel",
        "get_device",
        "element_size",
        "len",
        "isinstance",
        "type",
        "id",
        "record_stream",
    }
)


def is_place_in_group(name: str) -> bool:
    """Whether a function, by its name, returns the place of a rank in a group or a pipeline."""
    return bool(_IN_GROUP.fullmatch(name)) and not _OF_OTHERS.fullmatch(name)
