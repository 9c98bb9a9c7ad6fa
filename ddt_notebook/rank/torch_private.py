"""Every private name of PyTorch that this package uses, each looked up once.

PyTorch may rename or remove a private name in any release. So each name is looked up here, on
import, and belongs to a feature of `model.torch_features`. If one of its names is missing, a
feature is off: `available` returns False, and `missing` reports it to the notebook. Importing this
module never fails. No other file of the package contains a private name of PyTorch
(tests/unit/test_house.py).

A name is written ``"module:attribute"``. To test a future PyTorch without certain names, list them
in the environment variable ``DDT_TORCH_WITHOUT``, separated by commas: they count as missing.
"""

from __future__ import annotations

import functools
import importlib
import operator
import os
import pkgutil
import sys
import weakref
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from datetime import timedelta
from types import CodeType
from typing import Any

import torch

from ..model.torch_features import (
    ACTIVATIONS,
    COALESCED,
    COMPILED_MODULES,
    DDP_BUCKETS,
    EARLY_READS,
    GROUP_NAMES,
    LIBRARY_COLLECTIVES,
    LIBRARY_LINES,
    LOADERS,
    MODELS_FOLLOW,
    OWN_CALLS,
    PARAMETER_WRITES,
    REPLAY,
    SIMULATED_GPUS,
    SPARSE_SIZES,
    SUBGROUPS,
    TIMELINE,
    UNCOMPILED_RECORDER,
    UNUSED_PARAMETERS,
    USED_MODULES,
    Feature,
    MissingFeature,
)

#: Modules that a first step of DDP imports lazily.
_LAZILY_IMPORTED = ("torch._dynamo", "torch.distributed._composable_state")

#: The feature of each name that is looked up.
NAMES: dict[str, Feature] = {}
#: Looked up once its module has been imported; before that, nothing can be compiled.
_COMPILED = "torch._dynamo:OptimizedModule"
NAMES[_COMPILED] = COMPILED_MODULES
_without = frozenset(os.environ.get("DDT_TORCH_WITHOUT", "").split(","))
_missing: dict[Feature, list[str]] = {}


def _look_up(feature: Feature, name: str, otherwise: Any = None) -> Any:
    """The object with a private name; ``otherwise`` if this PyTorch has no such name."""
    NAMES[name] = feature
    try:
        return pkgutil.resolve_name(name if name not in _without else f"{__name__}:{name}")
    except Exception:  # noqa: BLE001  (the import of a private module may fail in any way)
        give_up(feature, name)
        return otherwise


def give_up(feature: Feature, why: str) -> None:
    """Turn a feature off.

    Parameters
    ----------
    feature
        The feature.
    why
        The name that is missing, or how an object differs from what this module expects.
    """
    reasons = _missing.setdefault(feature, [])
    if why not in reasons:
        reasons.append(why)


def import_ahead() -> None:
    """Import what a first step of DDP would import; ranks start even if this fails."""
    for name in _LAZILY_IMPORTED:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  (a private module may fail in any way)
            print(f"{name} was not imported ahead: {error}", file=sys.stderr)
    if sys.modules.get("torch._dynamo") is not None:
        _look_up(COMPILED_MODULES, _COMPILED)


def available(feature: Feature) -> bool:
    """Whether this PyTorch has all names that a feature needs."""
    return feature not in _missing


def missing() -> list[MissingFeature]:
    """The features that are off in this process."""
    return [
        MissingFeature(feature=feature.id, names=tuple(why)) for feature, why in _missing.items()
    ]


# -- process groups --------------------------------------------------------------------------------

_C10D = "torch.distributed.distributed_c10d"
_look_up(LIBRARY_COLLECTIVES, f"{_C10D}:ProcessGroup._get_sequence_number_for_group")
#: Called with (include entries, only active ones): the Flight Recorder's contents as JSON. Its
#: arguments are positional, because their names have changed between versions.
dump_flight_recorder_json = _look_up(
    LIBRARY_COLLECTIVES, "torch._C._distributed_c10d:_dump_fr_trace_json"
)
#: Called with (include entries, include stacks, only active ones): the same, pickled.
dump_flight_recorder = _look_up(LIBRARY_LINES, "torch._C._distributed_c10d:_dump_fr_trace")


def device_recorder(name: str) -> Any:
    """The function with this name that dumps NCCL's Flight Recorder; None in builds without NCCL.

    NCCL keeps a recorder of its own (``FlightRecorder<CUDAEvent>``), of which the one above knows
    nothing. Arguments are those of the functions above.
    """
    return getattr(importlib.import_module("torch._C._distributed_c10d"), name, None)


_look_up(MODELS_FOLLOW, "torch.nn.parallel:DistributedDataParallel._update_process_group")
#: Called with (group, device, whether to return handles): a context in which collectives of one
#: kind are collected, to be issued as one at its end.
coalescing_manager = _look_up(COALESCED, f"{_C10D}:_coalescing_manager")


def replace_coalescing_manager(manager: Any) -> None:
    """Put another context manager in the place of `coalescing_manager`."""
    for module in (torch.distributed, torch.distributed.distributed_c10d):
        module._coalescing_manager = manager  # type: ignore[attr-defined]


_look_up(GROUP_NAMES, f"{_C10D}:_world.group_count")
_look_up(SUBGROUPS, f"{_C10D}:_world.pg_map")


_function_modes = _look_up(EARLY_READS, "torch._C:_len_torch_function_stack")


def function_modes() -> int:
    """How many function modes this thread has entered; -1 without `EARLY_READS`."""
    return _function_modes() if _function_modes is not None else -1


def operation_count(group: Any) -> int:
    """How many operations a process group has been given, as its backend counts them.

    Returns -1 if that is not known: for a backend without such a count, for a group that was just
    destroyed, and without `LIBRARY_COLLECTIVES`.
    """
    if _missing and LIBRARY_COLLECTIVES in _missing:
        return -1
    try:
        return group._get_sequence_number_for_group()  # type: ignore[no-any-return]
    except RuntimeError:
        return -1


def operation_counter(group: Any) -> Callable[[], int] | None:
    """A function that returns what `operation_count` does, in less time; None without a group.

    Like torch's own function, it raises RuntimeError where the count is not known.
    """
    if group is None or (_missing and LIBRARY_COLLECTIVES in _missing):
        return None
    return group._get_sequence_number_for_group  # type: ignore[no-any-return]


def use_group(model: Any, group: Any) -> None:
    """Make a DDP model use another process group (`MODELS_FOLLOW`)."""
    model._update_process_group(group)


def restart_group_names() -> None:
    """Let the next process group be named "0".

    After a failed attempt to form a group, the counter is higher on some ranks than on others, and
    the ranks would look for each other under different keys.
    """
    if available(GROUP_NAMES):
        torch.distributed.distributed_c10d._world.group_count = 0


def set_timeouts(timeout: timedelta, besides: Container[object]) -> None:
    """Give every other process group of this rank a time limit."""
    for group in process_groups():
        if group not in besides:
            group.set_timeout(timeout)


def process_groups() -> list[Any]:
    """The process groups of this rank; only the default one without `SUBGROUPS`."""
    if available(SUBGROUPS):
        return list(torch.distributed.distributed_c10d._world.pg_map)
    return [torch.distributed.group.WORLD]


# -- DDP -------------------------------------------------------------------------------------------

_look_up(DDP_BUCKETS, "torch.nn.parallel:DistributedDataParallel._get_ddp_logging_data")
_look_up(UNUSED_PARAMETERS, "torch.distributed:Reducer._get_local_used_map")


def bucket_sizes(model: Any) -> tuple[int, ...]:
    """Bytes of each gradient bucket of a DDP model, in the order in which DDP reduces them.

    Empty before the first backward pass, and without `DDP_BUCKETS`.
    """
    if not available(DDP_BUCKETS):
        return ()
    try:
        described = model._get_ddp_logging_data()
    except RuntimeError:
        return ()
    text = described.get("rebuilt_bucket_sizes") or described.get("bucket_sizes") or ""
    return tuple(int(size) for size in str(text).split(",") if size.strip().isdigit())


def used_map(model: Any) -> torch.Tensor:
    """For each parameter of a DDP model, whether the last step used it (`UNUSED_PARAMETERS`)."""
    used: torch.Tensor = model.reducer._get_local_used_map()
    return used


# -- modules and tensors ---------------------------------------------------------------------------

#: Prefix of the attributes in which an autograd node keeps values; `_Square` has such attributes.
_SAVED = "torch.autograd.graph:Node._saved_"
_Square = type(torch.zeros((), requires_grad=True).square().grad_fn)
NAMES[_SAVED] = ACTIVATIONS
if not hasattr(_Square, "_saved_self") or _SAVED in _without:
    give_up(ACTIVATIONS, _SAVED)


def saved_by(node: Any, name: str) -> Any:
    """What an autograd node has kept under a name, such as ``other``; None if it has not."""
    try:
        return getattr(node, f"_saved_{name}", None) if available(ACTIVATIONS) else None
    except RuntimeError:  # freed by an earlier backward pass
        return None


_look_up(PARAMETER_WRITES, "torch:Tensor._version")
for _part in ("_indices", "_values"):
    _look_up(SPARSE_SIZES, f"torch:Tensor.{_part}")


def _unknown_version(tensor: torch.Tensor) -> int:
    raise RuntimeError("this PyTorch does not count how often a tensor is written to")


#: How often a tensor was written to in place. Raises RuntimeError without `PARAMETER_WRITES`, and
#: for a tensor that was made in inference mode. It is not a Python function, because it is called
#: for every parameter in every step.
version = operator.attrgetter("_version") if available(PARAMETER_WRITES) else _unknown_version


def saved_values(node: Any) -> Iterator[Any]:
    """The values that a node of an autograd graph keeps for its backward pass.

    It yields what hooks have packed: to unpack a checkpointed value would compute it.
    """
    names = []
    if available(ACTIVATIONS):
        names = [name for name in dir(type(node)) if name.startswith("_saved_")]
    for name in (*names, "saved_tensors"):
        try:
            raw = getattr(node, f"_raw_{name.removeprefix('_')}", None)
            if isinstance(raw, (list, tuple)):
                yield [getattr(one, "data", None) for one in raw]
            else:
                # before `data` was added to it, there was no way to ask without unpacking
                yield raw.data if hasattr(raw, "data") else getattr(node, name, None)
        except RuntimeError:  # freed already, or changed in place: backward itself will raise
            continue


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Indices and values of a sparse COO tensor, not coalesced; empty without `SPARSE_SIZES`."""
    return (tensor._indices(), tensor._values()) if available(SPARSE_SIZES) else ()


def flat_shards(module: Any) -> Iterator[tuple[int, tuple[int, int], int, int]]:
    """The parts of the flat parameters of FSDP1 that this rank holds, in the order of its units.

    Size, first element and the one behind the last, their number, and the bytes of each; nothing
    if a future FSDP1 keeps them in another way.
    """
    fsdp = sys.modules.get("torch.distributed.fsdp")
    for unit in fsdp.FullyShardedDataParallel.fsdp_modules(module) if fsdp is not None else ():
        handle = getattr(unit, "_handle", None)  # of instances, so they are read with a default
        if handle is None:  # its parameters belong to other units
            continue
        flat = handle.flat_param
        whole = getattr(flat, "_unpadded_unsharded_size", None)
        part = getattr(flat, "_sharded_size", None)
        if whole is None or part is None:
            return
        size = whole.numel()
        length = part.numel() if handle.uses_sharded_strategy else size
        begin = min(size, length * handle.rank if handle.uses_sharded_strategy else 0)
        end = min(size, begin + length)
        yield size, (begin, end), end - begin, flat.element_size()


def inside_compiled(module: Any) -> Any:
    """The module that ``torch.compile`` has wrapped; None for any other module."""
    dynamo = sys.modules.get("torch._dynamo")
    wrapper = getattr(dynamo, "OptimizedModule", None)
    if wrapper is None or not available(COMPILED_MODULES) or not isinstance(module, wrapper):
        return None
    return next(module.children(), None)


_EVAL_FRAME = "torch._C._dynamo.eval_frame"
_set_strategy = _look_up(UNCOMPILED_RECORDER, f"{_EVAL_FRAME}:set_code_exec_strategy")
_Strategy = _look_up(UNCOMPILED_RECORDER, f"{_EVAL_FRAME}:_FrameExecStrategy")
_Action = _look_up(UNCOMPILED_RECORDER, f"{_EVAL_FRAME}:_FrameAction")


def leave_uncompiled(code: CodeType, *, callees: bool) -> None:
    """Let ``torch.compile`` run a function as it is (`UNCOMPILED_RECORDER`).

    Parameters
    ----------
    code
        Its code.
    callees
        Whether this holds for all that it calls, too.
    """
    if available(UNCOMPILED_RECORDER):
        _set_strategy(code, _Strategy(_Action.SKIP, _Action.SKIP if callees else _Action.DEFAULT))


# -- DataLoader ------------------------------------------------------------------------------------

_DATALOADER = "torch.utils.data.dataloader:_BaseDataLoaderIter"
#: The class of the iterators of all DataLoaders.
LoaderIterator = _look_up(LOADERS, _DATALOADER)
#: Draws the indices of the next batch from the sampler.
next_index = _look_up(LOADERS, f"{_DATALOADER}._next_index")
#: Begins a new epoch with the workers of the previous one.
reset_iterator = _look_up(LOADERS, f"{_DATALOADER}._reset")


def workers_of(iterator: Any) -> tuple[Any, ...]:
    """The worker processes of a DataLoader's iterator; none if torch keeps them elsewhere."""
    return tuple(getattr(iterator, "_workers", ()))


def replace_iterator_methods(next_index: Any, reset: Any) -> None:
    """Let all DataLoaders draw indices and begin epochs through these functions (`LOADERS`)."""
    LoaderIterator._next_index = next_index
    LoaderIterator._reset = reset


# -- profiler --------------------------------------------------------------------------------------

_ProfilerConfig = _look_up(TIMELINE, "torch._C._profiler:ProfilerConfig")
_ProfilerState = _look_up(TIMELINE, "torch._C._profiler:ProfilerState")
_RecordScope = _look_up(TIMELINE, "torch._C._profiler:RecordScope")
_ExperimentalConfig = _look_up(TIMELINE, "torch._C._profiler:_ExperimentalConfig")
_prepare_profiler = _look_up(TIMELINE, "torch.autograd:_prepare_profiler")
_enable_profiler = _look_up(TIMELINE, "torch.autograd:_enable_profiler")
_look_up(TIMELINE, "torch.autograd.profiler:_prepare_profiler")
#: Whether a profiler runs in this process, the user's own or ours.
profiler_enabled = _look_up(TIMELINE, "torch.autograd:_profiler_enabled")
#: Ends the profiler; returns what it recorded.
disable_profiler = _look_up(TIMELINE, "torch.autograd:_disable_profiler")


def enable_profiler() -> None:
    """Record ranges marked by users and libraries, and nodes of backward passes (`TIMELINE`)."""
    config = _ProfilerConfig(
        _ProfilerState.KINETO, False, False, False, False, False, _ExperimentalConfig()
    )
    activities = {torch.autograd.ProfilerActivity.CPU}
    _prepare_profiler(config, activities)
    scopes = {_RecordScope.USER_SCOPE, _RecordScope.BACKWARD_FUNCTION}
    _enable_profiler(config, activities, scopes)


def scope_of(event: Any) -> str:
    """The kind of event that the profiler recorded: ``"user"``, ``"backward"`` or empty."""
    if event.scope() == _RecordScope.BACKWARD_FUNCTION.value:
        return "backward"
    return "user" if event.scope() == _RecordScope.USER_SCOPE.value else ""


class BeforeUsersProfiler:
    """Calls a function whenever the user's code starts a profiler, until `remove`."""

    def __init__(self, call: Any) -> None:
        profiler = torch.autograd.profiler
        prepare = self._original = profiler._prepare_profiler

        def replaced(*args: Any, **kwargs: Any) -> Any:
            call()
            return prepare(*args, **kwargs)

        profiler._prepare_profiler = replaced

    def remove(self) -> None:
        """Restore the profiler."""
        torch.autograd.profiler._prepare_profiler = self._original


# -- modes -----------------------------------------------------------------------------------------

_dispatch_modes = _look_up(
    USED_MODULES, "torch.utils._python_dispatch:_get_current_dispatch_mode_stack", list
)


def is_in_dispatch_mode() -> bool:
    """Whether the user's code runs in a mode that sees each operation, as ``make_fx`` has one."""
    own = __name__.partition(".")[0]
    return any(type(mode).__module__.partition(".")[0] != own for mode in _dispatch_modes())


# -- calls of one module -------------------------------------------------------------------------

#: torch calls this attribute instead of the module if it is set, and leaves it out of copies.
_look_up(OWN_CALLS, "torch.nn:Module._compiled_call_impl", None)
_look_up(OWN_CALLS, "torch.nn:Module._call_impl", None)


def observe_calls(module: torch.nn.Module, observer: Callable[[Any], None] | None) -> None:
    """Let a function see the result of each call of a module, or none any more."""
    attributes = vars(module)
    known = attributes.get("_compiled_call_impl")
    if observer is None:
        if getattr(known, "observes", False):
            del attributes["_compiled_call_impl"]
        return
    if known is not None:
        return  # compiled
    reference = weakref.ref(module)

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        called = reference()
        assert called is not None
        result = called._call_impl(*args, **kwargs)
        observer(result)
        return result

    call.observes = True  # type: ignore[attr-defined]
    attributes["_compiled_call_impl"] = call


# -- simulated GPUs --------------------------------------------------------------------------------

DisableTorchFunction = _look_up(SIMULATED_GPUS, "torch._C:DisableTorchFunction")
DisableTorchDispatch = _look_up(SIMULATED_GPUS, "torch._C:_DisableTorchDispatch")
TorchDispatchMode: Any = _look_up(
    SIMULATED_GPUS, "torch.utils._python_dispatch:TorchDispatchMode", object
)
tree_flatten = _look_up(SIMULATED_GPUS, "torch.utils._pytree:tree_flatten")
tree_map_only = _look_up(SIMULATED_GPUS, "torch.utils._pytree:tree_map_only")
#: Number of the backward pass that runs on this thread; -1 if none runs.
backward_pass = _look_up(SIMULATED_GPUS, "torch._C:_current_graph_task_id")
_find_builtin = _look_up(SIMULATED_GPUS, "torch.jit._builtins:_find_builtin")
_register_builtin = _look_up(SIMULATED_GPUS, "torch.jit._builtins:_register_builtin")
#: Parses the arguments of ``Tensor.to``: device, dtype, non-blocking, memory format.
parse_to = _look_up(SIMULATED_GPUS, "torch._C._nn:_parse_to")
_broadcast_coalesced = _look_up(SIMULATED_GPUS, "torch.distributed:_broadcast_coalesced")
_look_up(SIMULATED_GPUS, "torch.distributed:Reducer._rebuild_buckets")
_look_up(SIMULATED_GPUS, "torch:UntypedStorage._cdata")
_look_up(SIMULATED_GPUS, "torch:Tensor._make_wrapper_subclass")
for _part in ("_exchange_device", "_maybe_exchange_device", "_lazy_init"):
    _look_up(SIMULATED_GPUS, f"torch.cuda:{_part}")
FakeTensor = _look_up(SIMULATED_GPUS, "torch._subclasses.fake_tensor:FakeTensor")
FakeTensorMode = _look_up(SIMULATED_GPUS, "torch._subclasses.fake_tensor:FakeTensorMode")


def compile_like(replacement: Any, original: Any) -> None:
    """Let ``torch.jit.script`` compile a call of the replacement like one of the original."""
    operation = _find_builtin(original)
    if operation is not None:
        _register_builtin(replacement, operation)


def argument_names(operation: Any) -> list[str]:
    """The names of an operation's arguments, in order; empty if torch does not show them."""
    schema = getattr(operation, "_schema", None)
    return [argument.name for argument in schema.arguments] if schema is not None else []


def storage_identity(tensor: torch.Tensor) -> int | None:
    """The same number for tensors that share their memory; None for a sparse tensor."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):
        return None


def untyped(storage: Any) -> Any:
    """The storage inside a deprecated typed one."""
    return getattr(storage, "_untyped_storage", storage)


def replace_cuda_internals(exchange_device: Callable[[int], int]) -> None:
    """Let libraries choose the current GPU through a function, and initialize nothing."""
    cuda: Any = torch.cuda
    cuda._exchange_device = cuda._maybe_exchange_device = exchange_device
    for module in (cuda, cuda.random):
        module._lazy_init = lambda: None
        module._lazy_call = lambda act, **_: act()


_ENGINE = "_engine_run_backward"
_look_up(SIMULATED_GPUS, f"torch.autograd.graph:{_ENGINE}")


def let_backward_passes_run_within(within: Callable[[], AbstractContextManager[object]]) -> None:
    """Let backward passes run inside a context: torch leaves its modes before it runs one."""
    original = getattr(torch.autograd.graph, _ENGINE, None)
    if original is None:
        return

    @functools.wraps(original)
    def run(*args: Any, **kwargs: Any) -> Any:
        with within():
            return original(*args, **kwargs)

    for module in (torch.autograd, torch.autograd.graph):
        setattr(module, _ENGINE, run)


def make_wrappers_by(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function that makes tensors which only wrap others and have no storage."""
    kind: Any = torch.Tensor
    kind._make_wrapper_subclass = staticmethod(make(kind._make_wrapper_subclass))


def let_ddp_work_within(within: Callable[[Any], AbstractContextManager[None]]) -> None:
    """Let DDP make its buckets, and broadcast the model, inside a context.

    Parameters
    ----------
    within
        Returns the context for a tensor of the model; called with None if there is no tensor.
    """

    class Reducer(torch.distributed.Reducer):  # type: ignore[misc]
        def __init__(self, parameters: Any, *args: Any, **kwargs: Any) -> None:
            self._example = next(iter(parameters))
            with within(self._example):
                super().__init__(parameters, *args, **kwargs)

        def _rebuild_buckets(self) -> Any:
            with within(self._example):
                return super()._rebuild_buckets()

    def broadcast_coalesced(group: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        with within(tensors[0] if tensors else None):
            return _broadcast_coalesced(group, tensors, *args, **kwargs)

    distributed: Any = torch.distributed
    distributed.Reducer = Reducer
    distributed._broadcast_coalesced = broadcast_coalesced


# -- replay ----------------------------------------------------------------------------------------

_look_up(REPLAY, "torch.distributed:_verify_params_across_processes")
_FakeGroup = _look_up(REPLAY, "torch._C._distributed_c10d:FakeProcessGroup")
_look_up(REPLAY, "torch._C._distributed_c10d:FakeProcessGroup._create_internal")
_look_up(REPLAY, "torch._C._distributed_c10d:FakeProcessGroup.Options.error_on_collective")
_look_up(REPLAY, f"{_C10D}:_store_based_barrier")
#: Makes the handle of a collective that ends with a future.
work_of_future = _look_up(REPLAY, "torch._C._distributed_c10d:_create_work_from_future")


def replace_groups_of_ddp(with_group: Callable[[Any], Any]) -> Callable[[], None]:
    """Let DDP's C++ use another group in place of each that it is given.

    Returns
    -------
    callable
        Puts everything back; models that were made meanwhile keep their group.
    """
    distributed: Any = torch.distributed
    reducer = distributed.Reducer
    # Simulated GPUs need it, too; a DDP that does not call it has nothing to be replaced there.
    broadcast = getattr(distributed, "_broadcast_coalesced", None)
    verified = distributed._verify_params_across_processes

    class Reducer(reducer):  # type: ignore[misc,valid-type]
        def __init__(
            self, parameters: Any, buckets: Any, limits: Any, group: Any, *args: Any, **kwargs: Any
        ) -> None:
            super().__init__(parameters, buckets, limits, with_group(group), *args, **kwargs)

    def broadcast_coalesced(group: Any, *args: Any, **kwargs: Any) -> Any:
        return broadcast(with_group(group), *args, **kwargs)

    def verify(group: Any, *args: Any, **kwargs: Any) -> Any:
        return verified(with_group(group), *args, **kwargs)

    def restore() -> None:
        distributed.Reducer, distributed._broadcast_coalesced = reducer, broadcast
        distributed._verify_params_across_processes = verified

    distributed.Reducer = Reducer
    distributed._broadcast_coalesced = broadcast_coalesced
    distributed._verify_params_across_processes = verify
    return restore


def lonely_backend() -> Any:
    """Makes the backend of a group without other ranks, in which every collective is an error."""

    def make(common: Any, options: Any) -> Any:
        options = _FakeGroup.Options()
        options.error_on_collective = True
        return _FakeGroup._create_internal(common.group_rank, common.group_size, options)

    return make


def replace_store_barrier() -> Callable[[], None]:
    """Let groups form without waiting for other ranks; returns what puts the wait back."""
    module: Any = torch.distributed.distributed_c10d
    before = module._store_based_barrier
    module._store_based_barrier = lambda *_, **__: None

    def restore() -> None:
        module._store_based_barrier = before

    return restore
