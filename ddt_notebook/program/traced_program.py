"""A program with the traces of its ranks, and questions about its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .conditions import mentions_rank
from .interpreter import Interpreter, TooLong
from .project import Project
from .trace import Event, Kind, Trace
from .tree import Tree
from .values import Scope, Value
from .world_size import world_size

#: Names that occur only in programs for several ranks.
_DISTRIBUTED = frozenset({"dist", "DDP", "DistributedDataParallel"})
_SHARDING = ("FSDP", "FullyShardedDataParallel", "fully_shard", "parallelize_module")
_SHARDING_LIBRARIES = (
    "deepspeed",
    "torch.distributed.fsdp",
    "torch.distributed.pipelining",
    "torch.distributed.tensor.parallel",
)


@dataclass(frozen=True, slots=True)
class Passage:
    """The traces of all ranks through the program, or through a function that nothing calls."""

    traces: tuple[Trace, ...]
    called: bool


@dataclass
class TracedProgram:
    """What is known about a program without running it.

    Attributes
    ----------
    tree
        The document.
    world_size
        How many ranks are assumed; 0 for as many as the source names.
    project
        The files around it, whose functions are followed where it calls them; None to read none.
    """

    tree: Tree
    world_size: int = 0
    project: Project | None = None

    def __post_init__(self) -> None:
        self.world_size = self.world_size or world_size(self.tree.nodes)

    # -- traces ------------------------------------------------------------------------------------

    @cached_property
    def passages(self) -> list[Passage]:
        """All passages, the program itself first; empty if it is too large to follow."""
        found = []
        try:
            for passage in self._follow():
                found.append(passage)
        except (TooLong, RecursionError):
            pass
        return found

    @property
    def traces(self) -> tuple[Trace, ...]:
        """The trace of each rank through the program itself; empty if it is too large to follow."""
        return self.passages[0].traces if self.passages else ()

    @property
    def first(self) -> Trace:
        """The trace of rank 0 through the program itself; empty if it is too large to follow."""
        return self.traces[0] if self.traces else Trace(0)

    def events(self, *kinds: Kind) -> Iterator[Event]:
        """All events of these kinds on rank 0, including those in functions that nothing calls."""
        for passage in self.passages:
            yield from passage.traces[0].of(*kinds)

    def with_world_size(self, world_size: int) -> TracedProgram:
        """The same program with another number of ranks."""
        same = world_size == self.world_size
        return self if same else TracedProgram(self.tree, world_size, self.project)

    def is_alone(self, event: Event) -> bool:
        """Whether an event happens on some ranks and not on all."""
        return not all(
            any(other.line == event.line for other in trace.of(event.kind)) for trace in self.traces
        )

    def _follow(self) -> Iterator[Passage]:
        """Follow the program; without its project, if the project is too large to follow."""
        for project in dict.fromkeys([self.project, None]):
            interpreters, scopes = self._through_program(project)
            if not any(one.exhausted for one in interpreters):
                break
        yield Passage(tuple(one.recorder.trace for one in interpreters), called=True)
        yield from self._through_functions(interpreters, scopes)

    def _through_program(self, project: Project | None) -> tuple[list[Interpreter], list[Scope]]:
        group_formed = not (
            self.calls("init_process_group")
            or (self.project is not None and self.project.forms_group(self.tree))
        )
        interpreters = [
            Interpreter(rank, self.world_size, group_formed, project)
            for rank in range(self.world_size)
        ]
        scopes = [Scope({"__name__": Value("__main__")}) for _ in interpreters]
        for interpreter, scope in zip(interpreters, scopes, strict=True):
            interpreter.program(self.tree.module, scope)
        return interpreters, scopes

    @staticmethod
    def _through_functions(
        interpreters: list[Interpreter], scopes: list[Scope]
    ) -> Iterator[Passage]:
        followed = {node for interpreter in interpreters for node in interpreter.followed}
        for interpreter in interpreters:
            interpreter.followed = set(followed)
        rest = [
            list(interpreter.functions(scope))
            for interpreter, scope in zip(interpreters, scopes, strict=True)
        ]
        for functions in zip(*rest, strict=False):
            if len({function.node for function in functions}) > 1:
                return  # the ranks have defined different functions
            if functions[0].node in interpreters[0].followed:
                continue
            try:
                for interpreter, function in zip(interpreters, functions, strict=True):
                    interpreter.function(function)
            except TooLong:
                continue
            if any(one.exhausted for one in interpreters):
                return  # the ranks may have followed different parts
            yield Passage(tuple(one.recorder.trace for one in interpreters), called=False)

    # -- questions about the source ----------------------------------------------------------------

    def calls(self, *functions: str) -> bool:
        """Whether a function, method or class of one of these names is called."""
        return not self.tree.calls.keys().isdisjoint(functions)

    def calls_anywhere(self, *functions: str) -> bool:
        """Whether the program, or a file of its project that it uses, calls one of these."""
        return any(not tree.calls.keys().isdisjoint(functions) for tree in self._trees)

    def mentions(self, *words: str) -> bool:
        """Whether a name occurs in the program, or in a file of its project that it uses."""
        return any(not tree.names.isdisjoint(words) for tree in self._trees)

    def imports_anywhere(self, *packages: str) -> bool:
        """Whether the program, or a file of its project that it uses, imports one of these."""
        return any(tree.imports(*packages) for tree in self._trees)

    @cached_property
    def _trees(self) -> list[Tree]:
        """The program and the files that it uses."""
        followed = self.passages and self.project is not None
        return [self.tree, *(self.project.trees if followed and self.project else ())]

    @cached_property
    def is_distributed(self) -> bool:
        """Whether the program is written for several ranks."""
        return (
            self.tree.imports("torch.distributed", "torch.nn.parallel", "horovod", "deepspeed")
            or self.calls("init_process_group")
            or not self.tree.names.isdisjoint(_DISTRIBUTED)
            or any(map(mentions_rank, self.tree.of_kind(ast.Compare)))
        )

    @property
    def wraps_models(self) -> bool:
        """Whether the program wraps a model in DistributedDataParallel."""
        return self.calls("DDP", "DistributedDataParallel")

    @property
    def shards_models(self) -> bool:
        """Whether each rank holds a part of a model."""
        return self.tree.imports(*_SHARDING_LIBRARIES) or self.calls(*_SHARDING)

    @property
    def uses_devices(self) -> bool:
        """Whether the program puts something on a device that it chooses."""
        return self.calls("cuda", "to", "set_default_device", "set_device") or not (
            self.tree.names.isdisjoint({"cuda", "device", "device_id"})
        )
