"""What DeepSpeed builds and keeps in a process, so that a rank can run one cell after the other.

Checked with DeepSpeed 0.19. Every attribute is looked up with a default: with a version that lacks
one, the rank works as without this module.
"""

from __future__ import annotations

import functools
import gc
import json
import sys
import weakref
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ...model.frameworks.deepspeed import (
    CHANGE_LOST,
    EMPTY_STEP,
    ENGINE,
    ENGINE_READY,
    LATE_STEP,
    LOAD_CHECKPOINT,
    MEMBERS,
    ORDER,
    SAVE_CHECKPOINT,
    SEQUENCE,
    ZERO_INIT,
)
from ...wire.records import CallRecord
from ..after_import import AfterImport
from ..probes import loaders
from ..probes.fingerprints import fingerprint
from ..user_signals import left_out
from .deepspeed_values import EngineValues
from .framework import Framework

if TYPE_CHECKING:
    from ..probes.calls import CallLog

_NOT_COMPILED = "DeepSpeed's operator deepspeed_shm_comm is not compiled: no training uses it"
#: By their names in a configuration, the methods of an engine that return what it uses.
_SETTINGS = {
    "zero_optimization.stage": "zero_optimization_stage",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "train_micro_batch_size_per_gpu": "train_micro_batch_size_per_gpu",
    "gradient_clipping": "gradient_clipping",
    "fp16.enabled": "fp16_enabled",
    "bf16.enabled": "bfloat16_enabled",
}
#: Gathered parameters of which it is looked whether they change, and elements of each.
_MOST_GATHERED, _ELEMENTS = 8, 4096
#: Attributes of optimizers that hold parameters in the order in which they are joined and divided.
_DIVIDED_AS_ONE = ("bit16_groups", "bf16_groups")
#: Variables of engines that a note names.
_MOST_NAMED = 8
#: Characters of a checkpoint's tag that are recorded, and steps that have to be alike.
_LONGEST_TAG, _STEPS_TO_JUDGE = 80, 2
#: Characters of the end of a checkpoint's path that are recorded.
_LONGEST_PATH = 200


@dataclass(slots=True)
class _Passes:
    """The passes of an engine since its last step."""

    accumulates: int  #: passes that the engine itself makes one update of
    forwards: int = 0
    backwards: int = 0
    late: int = 0  #: steps in sequence that followed so many passes


class DeepSpeed(Framework):
    """DeepSpeed; its calls pass through ``torch.distributed``."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._calls: CallLog | None = None
        self._made: Counter[str] = Counter()
        #: Of engines that accumulate, by their ids: each pass looks into it. An engine forgets what
        #: is known of an earlier one with its id as it is made.
        self._passes: dict[int, _Passes] = {}
        #: The ids of engines without a backward pass since their last step.
        self._stepped: set[int] = set()
        self._values = EngineValues(self._note)
        #: By the names of groups that attend to parts of the same sequences, their ranks; and
        #: whether they are noted in this run.
        self._sequences: dict[str, list[int]] = {}
        self._sequences_noted = True
        #: What parameters held when contexts began in which they are gathered.
        self._gathered: weakref.WeakKeyDictionary[Any, list[int]] = weakref.WeakKeyDictionary()
        #: Engines that hold groups which have ended.
        self._former: weakref.WeakSet[Any] = weakref.WeakSet()
        self._made_before = 0  #: engines that were made before the present groups

    def watch(self, calls: CallLog) -> None:
        """Record DeepSpeed's engines once it is imported."""
        self._calls = calls
        AfterImport("deepspeed.runtime.engine", self._watch_engines).install()
        AfterImport("deepspeed.runtime.pipe.engine", _watch_evaluations).install()
        AfterImport("deepspeed.runtime.pipe.engine", self._watch_stages).install()
        parameters = "deepspeed.runtime.zero.partition_parameters"
        AfterImport(parameters, self._watch_construction).install()
        AfterImport("deepspeed.sequence.layer", self._watch_sequences).install()

    def install(self) -> None:
        """Have DeepSpeed leave out an operator that no training uses."""
        AfterImport("deepspeed.comm.torch", self._leave_out_shared_memory).install()
        AfterImport("deepspeed.runtime.engine", _forget_pipelines).install()

    def begin_run(self) -> None:
        """Begin to count passes anew."""
        for engine, passes in self._passes.items():
            self._passes[engine] = _Passes(passes.accumulates)
        self._sequences_noted = not self._sequences

    def begin_script(self) -> None:
        """Forget the groups of an earlier script."""
        self.forget_groups()

    def parts(self, module: Any) -> Mapping[int, str]:
        """Which experts, or which part of a layer, each divided parameter is, by its ``id``."""
        groups: Any = sys.modules.get("deepspeed.utils.groups")
        found: dict[int, str] = {}
        for parameter in module.parameters() if groups is not None else ():
            with left_out():  # another version of DeepSpeed, or a parameter of another library
                if getattr(parameter, "allreduce", True) is False:
                    place = groups._get_expert_parallel_rank(parameter.group_name)
                    found[id(parameter)] = f"experts {place}"
                elif getattr(parameter, "tensor_model_parallel", False):
                    found[id(parameter)] = f"tensor {groups.get_tensor_model_parallel_rank()}"
        return found

    def take_notes(self) -> list[str]:
        """The notes since the last call; one if engines hold groups that have ended.

        It comes after the first run with the new groups, which may have made the engines again.
        """
        taken = self._notes[:]
        self._notes.clear()
        if self._former:
            kept = _variables(self._former)
            if kept or self._made[ENGINE_READY] == self._made_before:
                taken.append(engines_hold_former_groups(kept))
            self._former.clear()
        return taken

    def _leave_out_shared_memory(self, module: ModuleType) -> None:
        """Do not compile ``deepspeed_shm_comm`` when the groups are formed.

        It took 105 s of processor time and 1.5 GB, and only ``inference_all_reduce`` uses it, which
        calls ``all_reduce`` without it.
        """
        if not hasattr(module, "build_shm_op"):
            return

        self._notes.append(_NOT_COMPILED)
        module.build_shm_op = lambda: None  # type: ignore[attr-defined]

    def _watch_engines(self, module: ModuleType) -> None:
        """Record engines and checkpoints as they begin: a rank may die in a later collective."""
        engine = getattr(module, "DeepSpeedEngine", None)
        made, saves = getattr(engine, "__init__", None), getattr(engine, "save_checkpoint", None)
        if engine is None or made is None or saves is None:
            return

        configures = getattr(engine, "_configure_with_arguments", None)
        if configures is not None:

            @functools.wraps(configures)
            def configure(self_: Any, *args: Any, **kwargs: Any) -> None:
                """Ranks whose settings differ may not come to the end of ``__init__``."""
                __tracebackhide__ = True
                configures(self_, *args, **kwargs)
                self._note(ENGINE, json.dumps(_settings(self_)))

            engine._configure_with_arguments = configure

        @functools.wraps(made)
        def make(self_: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            made(self_, *args, **kwargs)
            if configures is None:
                self._note(ENGINE, json.dumps(_settings(self_)))
            members = _members(self_)
            self._note(ENGINE_READY, json.dumps(members))
            self._values.made(self_, members.get(MEMBERS, []))
            self._stepped.discard(id(self_))
            self._passes.pop(id(self_), None)
            if (accumulates := _accumulates(self_)) > 1:
                self._passes[id(self_)] = _Passes(accumulates)

        @functools.wraps(saves)
        def save(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            tag = args[1] if len(args) > 1 else kwargs.get("tag")
            self._note(SAVE_CHECKPOINT, None if tag is None else str(tag)[:_LONGEST_TAG])
            return saves(self_, *args, **kwargs)

        engine.__init__, engine.save_checkpoint = make, save
        self._watch_loads(engine)
        self._watch_steps(engine)

    def _watch_stages(self, module: ModuleType) -> None:
        """Record what the stages of a pipeline read to train on."""
        engine = getattr(module, "PipelineEngine", None)
        takes = getattr(engine, "_next_batch", None)
        if engine is None or takes is None:
            return

        @functools.wraps(takes)
        def take(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            evaluates = loaders.RECORD.evaluating
            before = None if evaluates else self._values.random_state(self_)
            batch = takes(self_, *args, **kwargs)
            self._values.reads(self_, batch, before)
            return batch

        engine._next_batch = take

    def _watch_sequences(self, module: ModuleType) -> None:
        """Find the groups of ranks that attend to parts of the same sequences (Ulysses)."""
        attention = getattr(module, "DistributedAttention", None)
        made = getattr(attention, "__init__", None)
        if attention is None or made is None:
            return

        @functools.wraps(made)
        def make(self_: Any, *args: Any, **kwargs: Any) -> None:
            __tracebackhide__ = True
            made(self_, *args, **kwargs)
            with left_out():  # another version of DeepSpeed
                ranks_of = sys.modules["deepspeed.comm.comm"].get_all_ranks_from_group
                ranks = list(ranks_of(self_.spg))
                if len(ranks) > 1 and self_.spg.group_name not in self._sequences:
                    self._sequences[self_.spg.group_name] = ranks
                    self._sequences_noted = False

        attention.__init__ = make

    def _note_sequences(self) -> None:
        self._sequences_noted = True
        for group, ranks in self._sequences.items():
            self._note(SEQUENCE, json.dumps({"group": group, "ranks": ranks}))

    def _watch_loads(self, engine: Any) -> None:
        """Record what an engine has loaded: a checkpoint that is not there raises nothing."""
        loads = getattr(engine, "load_checkpoint", None)
        if loads is None:
            return

        @functools.wraps(loads)
        def load(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            loaded = loads(self_, *args, **kwargs)
            path = loaded[0] if isinstance(loaded, tuple) and loaded else loaded
            self._note(LOAD_CHECKPOINT, None if path is None else str(path)[-_LONGEST_PATH:])
            return loaded

        engine.load_checkpoint = load

    def _watch_construction(self, module: ModuleType) -> None:
        """Record where a model begins to be built whose layers are divided as they are made."""
        context = getattr(module, "InsertPostInitMethodToModuleSubClasses", None)
        enters = getattr(context, "__enter__", None)
        if context is None or enters is None:
            return

        @functools.wraps(enters)
        def enter(self_: Any) -> Any:
            __tracebackhide__ = True
            if getattr(self_, "enabled", False) and not getattr(module, "zero_init_context", 0):
                self._note(ZERO_INIT, None)
            return enters(self_)

        context.__enter__ = enter
        self._watch_gathered(getattr(module, "GatheredParameters", None))

    def _watch_gathered(self, context: Any) -> None:
        """Record that gathered parameters were changed where no rank is named whose changes count.

        When such a context ends, each rank takes up its own part again as it was before.
        """
        enters, exits = (getattr(context, name, None) for name in ("__enter__", "__exit__"))
        if enters is None or exits is None:
            return

        @functools.wraps(enters)
        def enter(self_: Any) -> Any:
            __tracebackhide__ = True
            result = enters(self_)
            if getattr(self_, "enabled", False) and getattr(self_, "src_rank", 0) is None:
                self._gathered[self_] = _contents(getattr(self_, "params", ()))
            return result

        @functools.wraps(exits)
        def leave(self_: Any, *exc: Any) -> Any:
            __tracebackhide__ = True
            before = self._gathered.pop(self_, None)
            if before and not any(exc) and _contents(getattr(self_, "params", ())) != before:
                self._note(CHANGE_LOST, None)
            return exits(self_, *exc)

        context.__enter__, context.__exit__ = enter, leave

    def _watch_steps(self, engine: Any) -> None:
        """Count passes, to find steps that do not follow each of them."""
        names = ("forward", "backward", "step")
        forward, backward, step = (getattr(engine, name, None) for name in names)
        if forward is None or backward is None or step is None:
            return

        @functools.wraps(forward)
        def counted_forward(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if (passes := self._passes.get(id(self_))) is not None:
                passes.forwards += 1
            self._values.given(self_, args, kwargs)
            self._values.takes(self_, args, kwargs)
            if not self._sequences_noted:
                self._note_sequences()
            return forward(self_, *args, **kwargs)

        @functools.wraps(backward)
        def counted_backward(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if (passes := self._passes.get(id(self_))) is not None:
                passes.backwards += 1
                if kwargs.get("scale_wrt_gas", True):
                    loss = args[0] if args else kwargs.get("loss")
                    self._values.passes_back(self_, loss, passes.accumulates)
            self._stepped.discard(id(self_))
            return backward(self_, *args, **kwargs)

        @functools.wraps(step)
        def counted_step(self_: Any, *args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if (passes := self._passes.get(id(self_))) is not None:
                self._steps(self_, passes)
            self._values.steps(self_)
            try:
                result = step(self_, *args, **kwargs)
            except TypeError:
                if id(self_) in self._stepped:
                    self._note(EMPTY_STEP, None)
                raise
            self._stepped.add(id(self_))
            self._values.stepped(self_, lambda: _settings(self_))
            return result

        engine.forward, engine.backward, engine.step = (
            counted_forward,
            counted_backward,
            counted_step,
        )

    def _steps(self, engine: Any, passes: _Passes) -> None:
        """Record a step if the user's code accumulates what the engine already does.

        Two losses of one batch have two backward passes, too, but one forward pass.
        """
        own = getattr(engine, "_is_gradient_accumulation_boundary", None) is None
        accumulated = passes.forwards == passes.backwards == passes.accumulates
        passes.late = passes.late + 1 if own and accumulated else 0
        passes.forwards = passes.backwards = 0
        if passes.late == _STEPS_TO_JUDGE:
            self._note(LATE_STEP, str(passes.accumulates))

    def _note(self, what: str, said: str | None) -> None:
        if self._calls is not None:
            self._made[what] += 1
            record = CallRecord(op=what, kind="setup", number=self._made[what], detail=said)
            self._calls.record(record, lambda: None, "deepspeed/")

    def forget_groups(self) -> list[str]:
        """Forget the groups that have ended; `take_notes` tells of engines that hold them.

        DeepSpeed keeps its copy of the default group, and others, in variables of its modules;
        every later ``deepspeed.initialize`` would use them and fail. If a group was formed again,
        DeepSpeed uses it, since a pipeline's module asks for it before an engine is made.
        """
        communication = sys.modules.get("deepspeed.comm.comm")
        if communication is None:
            return []
        began = getattr(communication, "cdb", None) is not None
        communication.cdb = None  # type: ignore[attr-defined]
        self._sequences.clear()
        self._values.number_anew()
        _number_anew()
        groups = sys.modules.get("deepspeed.utils.groups")
        release = getattr(groups, "_release_process_group_references", None)
        if release is not None:
            release()
        elif groups is not None:
            groups._WORLD_GROUP = None  # type: ignore[attr-defined]
        dist = sys.modules.get("torch.distributed")
        if began and dist is not None and dist.is_initialized():
            with left_out():  # `deepspeed.initialize` does it again
                communication.init_distributed(dist.get_backend(), verbose=False)
        engine = getattr(sys.modules.get("deepspeed.runtime.engine"), "DeepSpeedEngine", None)
        if engine is not None:
            self._former.update(_existing(engine))
            self._made_before = self._made[ENGINE_READY]
        return []


def _settings(engine: Any) -> dict[str, str]:
    """What all ranks must give an engine alike."""
    found: dict[str, str] = {}
    for name, method in _SETTINGS.items():
        with left_out():  # another version of DeepSpeed
            found[name] = str(getattr(engine, method)())
    return found


def _contents(parameters: Any) -> list[int]:
    """What the first parameters hold, by some of their elements."""
    with left_out():  # another version of DeepSpeed
        flat = [one.data.reshape(-1) for one in list(parameters)[:_MOST_GATHERED]]
        return [fingerprint(one[:: max(1, one.numel() // _ELEMENTS)]) for one in flat]
    return []


def _members(engine: Any) -> dict[str, Any]:
    """The ranks that average an engine's gradients, and how they divide its parameters."""
    found: dict[str, Any] = {}
    with left_out():  # another version of DeepSpeed
        ranks_of = sys.modules["deepspeed.comm.comm"].get_all_ranks_from_group
        found[MEMBERS] = list(ranks_of(engine.data_parallel_group))
        names = {id(one): name for name, one in engine.module.named_parameters()}
        for groups in (getattr(engine.optimizer, name, None) for name in _DIVIDED_AS_ONE):
            if groups:
                order = [[names.get(id(one)) for one in group] for group in groups]
                found[ORDER] = zlib.crc32(repr(order).encode())
    return found


def _watch_evaluations(module: ModuleType) -> None:
    """Note which batches a pipeline takes to evaluate: it does not train on them."""
    engine = getattr(module, "PipelineEngine", None)
    evaluates = getattr(engine, "eval_batch", None)
    if engine is None or evaluates is None:
        return

    @functools.wraps(evaluates)
    def evaluate(self_: Any, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        loaders.RECORD.evaluating = True
        try:
            return evaluates(self_, *args, **kwargs)
        finally:
            loaders.RECORD.evaluating = False

    engine.eval_batch = evaluate


def _forget_pipelines(module: ModuleType) -> None:
    """Let an engine be made after one of a pipeline, whose groups it would take for its own."""
    engine = getattr(module, "DeepSpeedEngine", None)
    made = getattr(engine, "__init__", None)
    if engine is None or made is None:
        return

    @functools.wraps(made)
    def make(self_: Any, *args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        groups = sys.modules.get("deepspeed.utils.groups")
        if groups is not None and "mpu" in kwargs and kwargs["mpu"] is None:
            groups.mpu = None  # type: ignore[attr-defined]
        made(self_, *args, **kwargs)

    engine.__init__ = make


def _number_anew() -> None:
    """Have the next model's parameters and modules counted from 0, as on a rank that was replaced.

    ZeRO-3 counts them as long as a process lives, and refuses to train if ranks count differently.
    """
    zero = "deepspeed.runtime.zero"
    construction = getattr(sys.modules.get(f"{zero}.partition_parameters"), "Init", None)
    if hasattr(construction, "param_id"):
        construction.param_id = 0  # type: ignore[union-attr]
    hooks = getattr(sys.modules.get(f"{zero}.parameter_offload"), "DeepSpeedZeRoOffload", None)
    registers = getattr(hooks, "_register_deepspeed_module", None)
    for count in getattr(registers, "__defaults__", None) or ():
        if isinstance(count, list):  # a default that all calls share
            count[:] = [0] * len(count)


def _accumulates(engine: Any) -> int:
    """How many passes an engine makes one update of; 1 if the user's code decides that."""
    with left_out():  # another version of DeepSpeed
        managed = getattr(engine, "managed_gradient_accumulation", None)
        if managed is None or managed():
            return int(engine.gradient_accumulation_steps())
    return 1


def _existing(kind: type) -> list[Any]:
    """The objects of a class, beyond those that only garbage refers to."""

    def found() -> list[Any]:
        return [held for held in gc.get_objects() if issubclass(type(held), kind)]

    if not found():
        return []
    gc.collect()  # an engine is a part of cycles
    return found()


def _variables(objects: Iterable[Any]) -> tuple[str, ...]:
    """The variables of the user's cells that hold one of some objects, by name."""
    wanted = set(map(id, objects))
    kept = [
        name
        for name, value in list(vars(sys.modules["__main__"]).items())
        if not name.startswith("_") and id(value) in wanted
    ]
    return tuple(sorted(kept)[:_MOST_NAMED])


def engines_hold_former_groups(variables: tuple[str, ...]) -> str:
    """What `DeepSpeed.take_notes` says if the cells still hold engines."""
    again = ", ".join(variables) if variables else "them"
    return (
        "the process group was formed again; DeepSpeed engines hold the former one: make "
        f"{again} again with deepspeed.initialize()"
    )
