"""What Megatron-core needs to be equal on the ranks of its groups, and what it keeps of them.

Its collectives pass through ``torch.distributed``. What it was given is recorded, because many
differences raise nothing: a tensor-parallel group with other seeds or other tokens computes on.

Checked with Megatron-core 0.16. Every attribute is looked up with a default: with a version that
lacks one, the rank works as without this module.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch

from ...model import Observation, Position
from ...model.agreements import Given, RankAgreements
from ...model.frameworks.megatron import GROUP_SIZES, MODEL_INPUTS, NORM, WHOLE_BATCH
from ...wire.records import CallRecord
from ..after_import import AfterImport
from ..probes import training
from ..probes.fingerprints import fingerprint
from ..probes.frames import model_call, user_line
from ..probes.objects import buffers, local, local_bytes
from ..probes.optimizers import visible
from ..probes.pieces import Piece
from ..probes.simulated import UNSIMULATED, simulated_gpus
from .framework import Framework
from .megatron_groups import STATE, Mesh, in_words, ranks_of, state
from .megatron_parts import Parts, is_divided

if TYPE_CHECKING:
    from ..probes.calls import CallLog

#: What `Megatron.forget_groups` says if there were groups.
GROUPS_ENDED = (
    "the process group was formed again, and Megatron-core's groups have ended: call "
    "initialize_model_parallel() again and make the model again"
)
#: Functions that run a step; `get_forward_backward_func` returns one of them.
_SCHEDULES = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_without_interleaving",
    "forward_backward_pipelining_with_interleaving",
)
#: Arguments of a step that all ranks of one model have to be given alike.
_ALIKE = ("num_microbatches", "seq_length", "micro_batch_size")
#: Steps, micro-batches and clipped gradients of a run that are recorded; more of them would only
#: repeat the same.
_MOST_STEPS, _MOST_TOKENS, _MOST_CLIPPED, _MOST_INPUTS = 1000, 4, 4, 4
#: How the descriptions of its groups end.
_GROUP_ENDS = ("_GROUP", "_GROUP_WITH_CP", "_GROUP_GLOO", "_WITH_CP_GLOO")
#: With more bytes of parameters than this, fingerprints would delay a step.
_MOST_BYTES = 1 << 30
#: The same for an activation, of which there are several in a step.
_MOST_INPUT_BYTES = 1 << 26
#: Attributes of a configuration with the share of elements that dropout drops.
_DROPOUT = ("hidden_dropout", "attention_dropout")
#: Megatron-core's class of all data-parallel models.
_REPLICA = "_BaseDataParallel"


class Megatron(Framework):
    """Megatron-core."""

    def __init__(self) -> None:
        self._given: list[Given] = []
        #: What the last step that is in `_given` was given, and what stands there of it.
        self._last_step: tuple[object, ...] = ()
        self._of_last_step: list[Given] = []
        #: By their place in `_given`: such a step, and the number of one that was like it.
        self._alike: dict[int, list[tuple[list[Given], int]]] = {}
        self._counts: Counter[str] = Counter()
        self._seed: tuple[str, Position | None] | None = None  # the last one, maybe of another cell
        #: Of this run: the parts of the first model that was given to a step, of the second one, ….
        self._models: list[list[weakref.ref[Any]]] = []
        #: Optimizers of a program without schedules, what each rank holds whole, and how it began.
        self._trained: list[tuple[Any, dict[str, torch.Tensor], list[Given]]] = []
        self._groups: dict[str, str] = {}
        self._last: Position | None = None  # the line of the last step
        self._calls: CallLog | None = None
        self._mesh = Mesh()
        self._parts = Parts(self._mesh)

    def watch(self, calls: CallLog) -> None:
        """Watch Megatron-core once it is imported."""
        self._calls = calls
        calls.broadcast_hook = self._parts.broadcasts
        pipelines = "megatron.core.pipeline_parallel.schedules"
        AfterImport(pipelines, self._watch_schedules).install()
        AfterImport(STATE, self._watch_groups).install()
        AfterImport("megatron.core.tensor_parallel.random", self._watch_seeds).install()
        AfterImport("megatron.core.tensor_parallel.layers", self._watch_tokens).install()
        for module, function in _LOSSES.items():
            watches = functools.partial(self._watch_labels, function)
            AfterImport(module, watches).install()
        AfterImport("megatron.core.utils", self._watch_cuts).install()
        wrappers = "megatron.core.distributed.data_parallel_base"
        AfterImport(wrappers, self._watch_replicas).install()
        AfterImport("megatron.core.transformer.moe.moe_utils", _lacks_engine).install()
        training.RECORD.clip_listeners.append(self._clips)

    def begin_script(self) -> None:
        """Forget the groups of an earlier script."""
        self.forget_groups()

    def begin_run(self) -> None:
        """Begin to observe another run."""
        self._given.clear()
        self._alike.clear()
        self._last_step = ()
        self._counts.clear()
        self._models.clear()
        self._trained.clear()
        self._parts.begin_run()
        self._last = None

    def observed(self, rank: int, namespace: Mapping[str, Any]) -> Observation | None:
        """What Megatron-core was given in the run."""
        seen = self.given(rank)
        if seen is None:
            return None
        begins = (one for _, _, began in self._stepped() for one in began)
        seen = replace(seen, given=(*begins, *seen.given, *self._at_end()))
        return Observation(rank=rank, agreements=seen)

    def given(self, rank: int) -> RankAgreements | None:
        """What Megatron-core was given so far, the names of its groups and the rank's place."""
        given, groups = tuple(self._every()), dict(self._groups)
        if not given and not groups:
            return None
        return RankAgreements(
            rank=rank, framework="megatron-core", given=given, groups=groups, axes=self._mesh.axes()
        )

    def _every(self) -> Iterator[Given]:
        """All that was given, with steps that were like the one before."""
        for at, one in enumerate([*self._given, None]):
            for alike, number in self._alike.get(at, ()):
                yield from (replace(like, number=number) for like in alike)
            if one is not None:
                yield one

    def forget_groups(self) -> list[str]:
        """Forget groups that have ended; returns a note if there were some."""
        self._seed, self._last_step = None, ()
        self._groups.clear()
        self._mesh.use(None)
        groups = state()
        if groups is None:
            return []
        groups.destroy_model_parallel()
        return [GROUPS_ENDED]

    def parts(self, module: torch.nn.Module) -> Mapping[int, str]:
        """Which part of the model each parameter or buffer is, by its ``id``."""
        if not self._mesh.known or not _is_of_megatron(module):
            return {}
        stage, part = self._mesh.coordinate("pipeline"), self._mesh.coordinate("tensor")
        found = {id(buffer): stage for buffer in buffers(module)}
        for parameter in module.parameters():
            own = part if is_divided(parameter) else ""
            found[id(parameter)] = ", ".join(filter(None, (stage, own)))
        return found

    def pieces(self, module: torch.nn.Module) -> tuple[str, list[Piece]] | None:
        """What this rank holds of each parameter, by the axes of the mesh."""
        if not self._mesh.known or not _is_of_megatron(module):
            return None
        axes = self._mesh.axes()
        mesh = ", ".join(f"{axis}={size}" for axis, (_, size) in axes.items())
        coordinate = tuple(place for place, _ in axes.values())
        place, parts = axes.get("tensor", (0, 1))
        found = []
        for parameter in module.parameters():
            count, size, begin, spread = parameter.numel(), parameter.numel(), 0, "whole"
            strided = False
            if is_divided(parameter) and parts > 1:
                size, begin = count * parts, count * place
                spread = f"dimension {getattr(parameter, 'partition_dim', '?')} by tensor"
                strided = getattr(parameter, "partition_stride", 1) != 1
            held = None if strided else (begin, begin + count)
            of_one = parameter.element_size()
            found.append(Piece(size, held, count, of_one, spread, mesh, coordinate))
        return "Megatron-core", found

    # -- what is watched -----------------------------------------------------------------------

    def _watch_schedules(self, module: ModuleType) -> None:
        for name in _SCHEDULES:
            original = getattr(module, name, None)
            if original is not None:
                setattr(module, name, self._recording(original, self._begins_step, of_step=True))

    def _watch_groups(self, module: ModuleType) -> None:
        initialize = getattr(module, "initialize_model_parallel", None)
        if initialize is not None:
            recording = self._recording(initialize, self._sizes, anywhere=True)
            module.initialize_model_parallel = recording  # type: ignore[attr-defined]
        original = getattr(module, "create_group", None)
        if original is None:
            return

        @functools.wraps(original)
        def create_group(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            made = original(*args, **kwargs)
            described = getattr(made, "group_desc", "")  # a rank outside of it gets something else
            if described.endswith(_GROUP_ENDS):
                self._groups[made.group_name] = in_words(described)
            return made

        module.create_group = create_group  # type: ignore[attr-defined]

    def _watch_seeds(self, module: ModuleType) -> None:
        name = "model_parallel_cuda_manual_seed"
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, self._recording(original, self._seeds))

    def _watch_tokens(self, module: ModuleType) -> None:
        self._parts.watch(module)
        embedding = getattr(module, "VocabParallelEmbedding", None)
        if embedding is not None:
            embedding.forward = self._recording(embedding.forward, self._embeds, anywhere=True)
        layer = getattr(module, "ColumnParallelLinear", None)
        if layer is not None:
            self._watch_inputs(layer)

    def _watch_inputs(self, layer: Any) -> None:
        """Note what the first layers are given of which each rank has some of the outputs."""
        original, counts = layer.forward, self._counts

        @functools.wraps(original)
        def forward(self_: Any, input_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if counts["input"] < _MOST_INPUTS:
                counts["input"] += 1
                with UNSIMULATED:
                    if counts["input"] == 1 and self._last is None:
                        self._begins_without_schedule()
                    self._given_to_layer(self_, input_)
            if self._parts.expects(self_):
                self._enters(self_)
            return original(self_, input_, *args, **kwargs)

        layer.forward = forward

    def _watch_replicas(self, module: ModuleType) -> None:
        """Note what the first training passes of a model are given, of whatever kind it is."""
        replica = getattr(module, _REPLICA, None)
        original, counts = getattr(replica, "forward", None), self._counts
        if replica is None or original is None:
            return

        @functools.wraps(original)
        def forward(self_: Any, *inputs: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if counts["replica"] < _MOST_TOKENS and torch.is_grad_enabled():
                counts["replica"] += 1
                with UNSIMULATED:
                    self._given_to_replica((*inputs, *kwargs.values()))
            return original(self_, *inputs, **kwargs)

        replica.forward = forward

    def _watch_labels(self, name: str, module: ModuleType) -> None:
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, self._recording(original, self._compares_labels))

    def _watch_cuts(self, module: ModuleType) -> None:
        name = "get_batch_on_this_cp_rank"
        original = getattr(module, name, None)
        if original is not None:
            setattr(module, name, self._recording(original, self._cuts, anywhere=True))

    def _recording(
        self,
        original: Any,
        record: Callable[[Mapping[str, Any]], None],
        *,
        anywhere: bool = False,
        of_step: bool = False,
    ) -> Any:
        signature = inspect.signature(original)
        defaults = {
            name: one.default
            for name, one in signature.parameters.items()
            if one.default is not one.empty
        }
        needed = signature.parameters.keys() - defaults.keys()
        names = signature.parameters.keys()
        mesh = self._mesh

        def bound(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, Any]:
            if not args and needed <= kwargs.keys() <= names:  # as steps are called
                return kwargs if of_step else {**defaults, **kwargs}
            try:
                found = signature.bind(*args, **kwargs)
                found.apply_defaults()
            except TypeError:  # Megatron-core will refuse them
                return {}
            return found.arguments

        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if anywhere or of_step or mesh.known:
                given = bound(args, kwargs)
                if given and of_step:
                    record(given)
                elif given:
                    with UNSIMULATED:
                        record(given)
            return original(*args, **kwargs)

        return call

    def _begins_step(self, given: Mapping[str, Any]) -> None:
        groups = given.get("pg_collection")
        self._mesh.use(groups)
        if not self._mesh.known:
            return
        where = user_line(sys._getframe(2))
        if self._last is None or not given.get("forward_only"):
            self._last = where
        self._counts["step"] += 1
        number = self._counts["step"]
        if number > _MOST_STEPS:
            return
        chunks = given.get("model")
        models = list(chunks) if isinstance(chunks, (list, tuple)) else [chunks]
        config = _config(models[0])
        varies = getattr(config, "variable_seq_lengths", False)
        dtype = getattr(config, "pipeline_dtype", None)
        said = (str(given.get(what)) for what in _ALIKE)
        now = (where, varies, dtype, id(groups), *map(id, models), *said)
        if now == self._last_step and all(map(self._is_known, models)):
            if self._of_last_step:
                alike = self._alike.setdefault(len(self._given), [])
                alike.append((self._of_last_step, number))
            return
        with UNSIMULATED:
            self._begins_other_step(given, models, config, where)
        self._last_step = now

    def _begins_other_step(
        self,
        given: Mapping[str, Any],
        models: list[Any],
        config: Any,
        where: Position | None,
    ) -> None:
        """Note what a step is given that is not like the last one."""
        mesh, number = self._mesh, self._counts["step"]
        self._groups.update(mesh.names())
        varies = getattr(config, "variable_seq_lengths", False)
        dtype = getattr(config, "pipeline_dtype", None)
        begin = len(self._given)
        whole = mesh.members("model")
        for what in _ALIKE:
            if what in given and not (varies and what == "seq_length"):
                self._note(what, given[what], number, "model", whole, where)
        stages = mesh.members("pipeline")
        self._note("pipeline_dtype", dtype, number, "pipeline", stages, where)
        self._of_last_step = self._given[begin:]
        if all(isinstance(model, torch.nn.Module) for model in models):
            new = [model for model in models if not self._is_known(model)]
            if new:
                self._models.append([weakref.ref(model) for model in new])
            if new and self._seed is not None and any(getattr(config, d, 0) for d in _DROPOUT):
                seed, line = self._seed
                tensor = mesh.members("tensor")
                self._note("seed", seed, len(self._models), "tensor", tensor, line)
            for name, value, axis, among in _parameters(mesh, new, len(self._models)):
                self._note(f"parameter {name}", value, 1, axis, among, where)

    def _begins_without_schedule(self) -> None:
        """Note what optimizers hold whose program calls a model and an optimizer by itself."""
        tensor, frame = self._mesh.members("tensor"), sys._getframe(2)
        if len(tensor) < 2:
            return
        where = model_call(frame) or user_line(frame)
        for optimizer in training.RECORD.known_optimizers():
            held = [p for group in optimizer.param_groups for p in group["params"]]
            if not any(map(is_divided, held)) or local_bytes(held) > _MOST_BYTES:
                continue
            names = visible(optimizer, frame).parameter_names()
            whole = {
                names.get(id(p), f"parameter {at}"): p
                for at, p in enumerate(held)
                if not is_divided(p) and getattr(p, "allreduce", True)
            }
            began = [*_whole(whole, 1, tensor, where)]
            self._trained.append((optimizer, whole, began))

    def _stepped(self) -> Iterator[tuple[Position | None, dict[str, torch.Tensor], list[Given]]]:
        """Those of them that took steps in this run: others may be of an earlier one."""
        for optimizer, whole, began in self._trained:
            if began and training.RECORD.steps_of(optimizer):
                yield training.RECORD.line_of(optimizer) or began[0].where, whole, began

    def _sizes(self, given: Mapping[str, Any]) -> None:
        """Write them to the log of calls: a rank that waits for other groups may have to die."""
        self._last_step = ()
        if self._calls is not None:
            sizes = {what: value for what, value in given.items() if what.endswith(_SIZE) and value}
            self._counts["sizes"] += 1
            record = CallRecord(
                op=GROUP_SIZES,
                kind="setup",
                number=self._counts["sizes"],
                detail=json.dumps(sizes, default=str),
            )
            self._calls.record(record, lambda: None, "megatron/")

    def _seeds(self, given: Mapping[str, Any]) -> None:
        self._seed = str(given.get("seed")), user_line(sys._getframe(2))

    def _enters(self, layer: Any) -> None:
        """Note the part that this rank holds of a layer's weight, which others must not hold."""
        with UNSIMULATED:
            part = self._parts.enters(layer, sys._getframe(2))
        if part is not None:
            self._note(
                f"parameter {part.name}",
                part.value,
                1,
                "tensor",
                part.among,
                part.where,
                differs=True,
            )

    def _embeds(self, given: Mapping[str, Any]) -> None:
        tokens, layer = given.get("input_"), given.get("self")
        if self._parts.expects(layer):
            self._enters(layer)
        self._counts["tokens"] += 1
        number = self._counts["tokens"]
        if number <= _MOST_TOKENS and isinstance(tokens, torch.Tensor):
            where = user_line(sys._getframe(2))
            tensor = ranks_of(getattr(given.get("self"), "tp_group", None))
            data = self._mesh.members("data")
            if max(len(tensor), len(data)) > 1:
                value = f"{fingerprint(local(tokens)):016x}"
                self._note("tokens", value, number, "tensor", tensor, where)
                if torch.is_grad_enabled():
                    self._note("tokens", value, number, "data", data, where, differs=True)

    def _given_to_layer(self, layer: Any, given: object) -> None:
        tensor = ranks_of(getattr(layer, "tp_group", None)) or self._mesh.members("tensor")
        divided = any(getattr(layer, one, False) for one in ("is_expert", "sequence_parallel"))
        if divided or len(tensor) < 2 or not isinstance(given, torch.Tensor):
            return
        if local_bytes([given]) <= _MOST_INPUT_BYTES:
            value, number = f"{fingerprint(local(given)):016x}", self._counts["input"]
            self._note(
                "input of layers", value, number, "tensor", tensor, user_line(sys._getframe(2))
            )

    def _given_to_replica(self, given: tuple[object, ...]) -> None:
        data = self._mesh.members("data")
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        if len(data) > 1 and tensors and local_bytes(tensors) <= _MOST_INPUT_BYTES:
            value = " ".join(f"{fingerprint(local(one)):016x}" for one in tensors)
            number, where = self._counts["replica"], user_line(sys._getframe(2))
            self._note(MODEL_INPUTS, value, number, "data", data, where, differs=True)

    def _compares_labels(self, given: Mapping[str, Any]) -> None:
        labels = given.get("target")
        self._counts["labels"] += 1
        number = self._counts["labels"]
        if number > _MOST_TOKENS or not isinstance(labels, torch.Tensor):
            return
        tensor = ranks_of(given.get("tp_group")) or self._mesh.members("tensor")
        context = self._mesh.members("context")
        if max(len(tensor), len(context)) > 1:
            value, where = f"{fingerprint(local(labels)):016x}", user_line(sys._getframe(2))
            self._note("labels", value, number, "tensor", tensor, where)
            if torch.is_grad_enabled():
                self._note("labels", value, number, "context", context, where, differs=True)

    def _cuts(self, given: Mapping[str, Any]) -> None:
        """Note a batch of which each rank of a context-parallel group takes a part."""
        self._counts["cut"] += 1
        number, batch = self._counts["cut"], given.get("batch")
        if number > _MOST_TOKENS or not isinstance(batch, Mapping):
            return
        context = ranks_of(given.get("cp_group")) or self._mesh.members("context")
        tensor = next((one for one in batch.values() if isinstance(one, torch.Tensor)), None)
        if len(context) > 1 and tensor is not None:
            value, where = f"{fingerprint(local(tensor)):016x}", user_line(sys._getframe(2))
            self._note(WHOLE_BATCH, value, number, "context", context, where)

    def _clips(self, parameters: list[torch.Tensor], norm: object) -> None:
        """Note the norm by which gradients of a divided model were clipped.

        It has to be that of all parts: otherwise each rank scales what they hold alike in its own
        way.
        """
        if not self._mesh.known or norm is None or not any(map(is_divided, parameters)):
            return
        self._counts["norm"] += 1
        if self._counts["norm"] <= _MOST_CLIPPED:
            value = f"{float(norm):.3g}"  # type: ignore[arg-type]
            tensor, where = self._mesh.members("tensor"), user_line(sys._getframe(1))
            self._note(NORM, value, self._counts["norm"], "tensor", tensor, where)

    def _note(
        self,
        what: str,
        value: object,
        number: int,
        axis: str,
        among: tuple[int, ...],
        where: Position | None,
        *,
        differs: bool = False,
    ) -> None:
        if len(among) > 1:
            value = str(value).removeprefix("torch.")
            decides = what in (*_ALIKE, "pipeline_dtype")
            self._given.append(
                Given(
                    what=what,
                    value=value,
                    number=number,
                    axis=axis,
                    among=among,
                    where=where,
                    decides_calls=decides,
                    differs=differs,
                )
            )

    def _at_end(self) -> Iterator[Given]:
        """The parameters at the end of the run, with the line of the last step."""
        if not self._mesh.known:
            return
        for line, whole, began in self._stepped():
            yield from _whole(whole, 2, began[0].among, line)
        if self._last is None:
            return
        for number, parts in enumerate(self._models, 1):
            models = [model for model in (part() for part in parts) if model is not None]
            yield from self._ends_with(models, number)

    def _is_known(self, model: object) -> bool:
        return any(part() is model for parts in self._models for part in parts)

    def _ends_with(self, models: list[torch.nn.Module], number: int) -> Iterator[Given]:
        for name, value, axis, among in _parameters(self._mesh, models, number):
            yield Given(
                what=f"parameter {name}",
                value=value,
                number=2,
                axis=axis,
                among=among,
                where=self._last,
            )


def _lacks_engine(module: ModuleType) -> None:
    """Let a router of experts compute on simulated GPUs: Transformer Engine needs real ones.

    It asks whether a function of Transformer Engine is None, but 0.16 defines it only with that.
    """
    if simulated_gpus() and not hasattr(module, _ENGINE_PRODUCT):
        setattr(module, _ENGINE_PRODUCT, None)


_ENGINE_PRODUCT = "te_general_gemm"
#: Functions that compute a loss from parts of the logits, by their modules.
_LOSSES = {
    "megatron.core.tensor_parallel.cross_entropy": "vocab_parallel_cross_entropy",
    "megatron.core.fusions.fused_cross_entropy": "fused_vocab_parallel_cross_entropy",
}
#: How the arguments end that say how many ranks a group has.
_SIZE = "_parallel_size"


def _whole(
    held: Mapping[str, torch.Tensor], number: int, tensor: tuple[int, ...], where: Position | None
) -> Iterator[Given]:
    """The values of parameters that each rank of a tensor-parallel group holds whole."""
    for name, parameter in held.items():
        yield Given(
            what=f"parameter {name}",
            value=f"{fingerprint(local(parameter)):016x}",
            number=number,
            axis="tensor",
            among=tensor,
            where=where,
        )


def _is_of_megatron(module: torch.nn.Module) -> bool:
    kind = getattr(sys.modules.get("megatron.core.transformer.module"), "MegatronModule", None)
    return kind is not None and any(isinstance(part, kind) for part in module.modules())


def _config(model: Any) -> Any:
    """The configuration of a model, wrapped or not."""
    while model is not None and not hasattr(model, "config"):
        model = getattr(model, "module", None)
    return getattr(model, "config", None)


def _parameters(
    mesh: Mesh, models: list[torch.nn.Module], number: int
) -> Iterator[tuple[str, str, str, tuple[int, ...]]]:
    """Name and fingerprint of each parameter, and the groups in which it has to be equal.

    The names say which model of the run it is, unless it is the first one.

    Not those of experts, which have groups of their own. Ranks of a GPU may differ in the last
    digits, and they would have to wait for it.
    """
    named = [
        (name if len(models) == 1 else f"{at}.{name}", parameter)
        for at, model in enumerate(models)
        for name, parameter in model.named_parameters()
        if getattr(parameter, "allreduce", True)
    ]
    if local_bytes(parameter for _, parameter in named) > _MOST_BYTES:
        return
    tensor, data = mesh.members("tensor"), mesh.members("data and context")
    for name, parameter in named:
        if parameter.untyped_storage().device.type != "cpu":
            continue
        value = f"{fingerprint(local(parameter)):016x}"
        name = name.removeprefix("module.")
        name = name if number == 1 else f"{name} (model {number})"
        if not is_divided(parameter) and len(tensor) > 1:
            yield name, value, "tensor", tensor
        if len(data) > 1:
            yield name, value, "data", data
