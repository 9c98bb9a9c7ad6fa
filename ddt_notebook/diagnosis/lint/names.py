"""Names from outside that mean something: the rank, collectives, and their parameters."""

from __future__ import annotations

from typing import Final

from .values import Symbol

#: What cells and scripts call the number of this process.
RANKS: Final = frozenset(
    {"rank", "local_rank", "global_rank", "RANK", "LOCAL_RANK", "ddp_rank", "ddp_local_rank",
     "world_rank", "dist_rank", "process_index", "local_process_index"}
)  # fmt: skip
RANK_CALLS: Final = frozenset({"get_rank", "get_node_local_rank", "local_rank", "get_local_rank"})
WORLDS: Final = frozenset({"world_size", "WORLD_SIZE", "ddp_world_size", "num_processes"})
WORLD_CALLS: Final = frozenset({"get_world_size"})
#: True on rank 0 alone, as attribute or as function of somebody else.
FIRST: Final = frozenset(
    {"is_main_process", "is_local_main_process", "is_global_zero", "is_world_process_zero",
     "is_local_process_zero", "is_master", "is_main", "is_rank_zero", "is_rank_0",
     "is_master_process", "is_main_rank", "is_chief", "is_master_ordinal", "is_first_rank"}
)  # fmt: skip
#: Decorators of functions that run on rank 0 alone.
FIRST_ONLY: Final = frozenset(
    {"rank_zero_only", "master_only", "main_process_only", "on_main_process", "rank0_only",
     "on_local_main_process"}
)  # fmt: skip
ENVIRONMENT: Final = frozenset(
    {"RANK", "LOCAL_RANK", "SLURM_PROCID", "SLURM_LOCALID", "OMPI_COMM_WORLD_RANK",
     "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK"}
)  # fmt: skip
ENVIRONMENT_WORLD: Final = frozenset({"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE",
                                      "LOCAL_WORLD_SIZE"})  # fmt: skip

DIST: Final = "torch.distributed."
DDP: Final = "torch.nn.parallel.DistributedDataParallel"
#: What a cell of a session finds already there, or has most likely imported before.
GIVEN: Final = {
    "torch": Symbol("torch"),
    "dist": Symbol("torch.distributed"),
    "DDP": Symbol(DDP),
    "nn": Symbol("torch.nn"),
    "F": Symbol("torch.nn.functional"),
    "os": Symbol("os"),
    "sys": Symbol("sys"),
    "time": Symbol("time"),
}

#: The parameters of each collective, in order.
COLLECTIVES: Final[dict[str, tuple[str, ...]]] = {
    "all_reduce": ("tensor", "op", "group", "async_op"),
    "all_reduce_coalesced": ("tensor", "op", "group", "async_op"),
    "broadcast": ("tensor", "src", "group", "async_op"),
    "reduce": ("tensor", "dst", "op", "group", "async_op"),
    "all_gather": ("output", "tensor", "group", "async_op"),
    "all_gather_into_tensor": ("output", "tensor", "group", "async_op"),
    "gather": ("tensor", "output", "dst", "group", "async_op"),
    "scatter": ("tensor", "scatter_list", "src", "group", "async_op"),
    "reduce_scatter": ("output", "tensor", "op", "group", "async_op"),
    "reduce_scatter_tensor": ("output", "tensor", "op", "group", "async_op"),
    "all_to_all": ("output", "tensor", "group", "async_op"),
    "all_to_all_single": ("output", "tensor", "out", "in", "group", "async_op"),
    "barrier": ("group", "async_op"),
    "monitored_barrier": ("group", "timeout"),
    "all_gather_object": ("output", "tensor", "group"),
    "gather_object": ("tensor", "output", "dst", "group"),
    "broadcast_object_list": ("tensor", "src", "group"),
    "scatter_object_list": ("tensor", "scatter_list", "src", "group"),
    "new_group": ("ranks", "timeout", "backend"),
    "new_subgroups": ("group_size",),
    "new_subgroups_by_enumeration": ("ranks",),
    "init_device_mesh": ("device", "shape"),
    "init_process_group": ("backend", "init_method"),
}
MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "send": ("tensor", "dst", "group", "tag"),
    "recv": ("tensor", "src", "group", "tag"),
    "isend": ("tensor", "dst", "group", "tag"),
    "irecv": ("tensor", "src", "group", "tag"),
    "send_object_list": ("tensor", "dst", "group"),
    "recv_object_list": ("tensor", "src", "group"),
}
#: What of other libraries every rank has to call, by the last two parts of the name.
FOREIGN: Final = frozenset(
    {"hvd.allreduce", "hvd.allgather", "hvd.broadcast", "hvd.alltoall", "hvd.barrier",
     "hvd.broadcast_parameters", "hvd.broadcast_optimizer_state", "hvd.broadcast_object",
     "hvd.allgather_object", "checkpoint.save", "checkpoint.load", "checkpoint.async_save",
     "state_dict.get_model_state_dict", "state_dict.get_optimizer_state_dict",
     "state_dict.get_state_dict"}
)  # fmt: skip
#: Methods with the same duty, on an accelerator or fabric object.
FOREIGN_METHODS: Final = frozenset({"wait_for_everyone", "gather_for_metrics", "full_tensor"})
#: Methods of the objects of other libraries that every rank has to call.
ENGINES: Final[dict[str, frozenset[str]]] = {
    "DeepSpeedEngine": frozenset(
        {"save_checkpoint", "load_checkpoint", "save_16bit_model", "backward", "step"}
    ),
    "Accelerator": frozenset(
        {"gather", "reduce", "save_state", "load_state", "pad_across_processes", "backward"}
    ),
    "Fabric": frozenset({"barrier", "all_gather", "all_reduce", "broadcast", "backward", "save"}),
    "FullyShardedDataParallel": frozenset({"state_dict", "clip_grad_norm_"}),
}
#: Collectives after which a tensor holds the same on every rank.
AGREEING: Final = frozenset(
    {"all_reduce", "all_reduce_coalesced", "broadcast", "broadcast_object_list", "all_gather",
     "all_gather_object", "all_gather_into_tensor"}
)  # fmt: skip
CLOCKS: Final = frozenset(
    {"time.time", "time.monotonic", "time.perf_counter", "time.process_time", "time.time_ns",
     "time.monotonic_ns", "time.perf_counter_ns", "datetime.datetime.now", "datetime.now",
     "timeit.default_timer", "datetime.datetime.utcnow"}
)  # fmt: skip
#: What differs from process to process.
OWN: Final = frozenset(
    {"os.getpid", "random.random", "random.randint", "random.choice", "socket.gethostname",
     "psutil.virtual_memory", "torch.cuda.memory_allocated", "torch.cuda.memory_reserved",
     "torch.cuda.mem_get_info"}
)  # fmt: skip
