"""A program with the traces that its ranks leave, and questions about its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .interpreter import Interpreter, TooLong
from .names import RANK_NAMES
from .nodes import called_name, names_in
from .trace import Event, Kind, Trace
from .values import Scope, Value
from .world_size import world_size

#: Names that occur in programs for several ranks only.
_DISTRIBUTED = frozenset({"dist", "DDP", "DistributedDataParallel", "DataParallel"})
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
    """A program as far as it can be known without running it.

    Attributes
    ----------
    tree
        The syntax tree.
    world_size
        How many ranks are assumed; 0 stands for as many as the source names.
    """

    tree: ast.Module
    world_size: int = 0

    def __post_init__(self) -> None:
        self.world_size = self.world_size or world_size(self.tree)

    # -- traces ------------------------------------------------------------------------------------

    @cached_property
    def passages(self) -> list[Passage]:
        """The program itself first; empty if it is too large to be followed."""
        found = []
        try:
            for passage in self._follow():
                found.append(passage)
        except (TooLong, RecursionError):
            pass
        return found

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Those of each rank through the program itself; empty if it could not be followed."""
        return self.passages[0].traces if self.passages else ()

    @property
    def first(self) -> Trace:
        """That of rank 0 through the program itself; empty if it could not be followed."""
        return self.traces[0] if self.traces else Trace(0)

    def events(self, *kinds: Kind) -> Iterator[Event]:
        """All events of these kinds on rank 0, also in functions that nothing calls."""
        for passage in self.passages:
            yield from passage.traces[0].of(*kinds)

    def with_world_size(self, world_size: int) -> TracedProgram:
        """The same program on another number of ranks."""
        same = world_size == self.world_size
        return self if same else TracedProgram(self.tree, world_size)

    def is_alone(self, event: Event) -> bool:
        """Whether what happens at a line happens on some ranks and not on all."""
        return not all(
            any(other.line == event.line for other in trace.of(event.kind)) for trace in self.traces
        )

    def _follow(self) -> Iterator[Passage]:
        group_formed = "init_process_group" not in self.called
        interpreters = [
            Interpreter(rank, self.world_size, group_formed) for rank in range(self.world_size)
        ]
        scopes = [Scope({"__name__": Value("__main__")}) for _ in interpreters]
        for interpreter, scope in zip(interpreters, scopes, strict=True):
            interpreter.program(self.tree, scope)
        yield Passage(tuple(one.recorder.trace for one in interpreters), called=True)
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
            yield Passage(tuple(one.recorder.trace for one in interpreters), called=False)

    # -- questions about the source ----------------------------------------------------------------

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """All nodes of the syntax tree."""
        return list(ast.walk(self.tree))

    @cached_property
    def called(self) -> frozenset[str]:
        """The last parts of the names of all functions, methods and classes that are called."""
        return frozenset(called_name(node) for node in self.nodes) - {""}

    @cached_property
    def names(self) -> frozenset[str]:
        """All names that occur: of variables, attributes, parameters and keyword arguments."""
        return frozenset(names_in(self.tree))

    @cached_property
    def read(self) -> frozenset[str]:
        """The names of all variables that are read."""
        return frozenset(
            node.id
            for node in self.nodes
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )

    @property
    def blocks(self) -> Iterator[list[ast.stmt]]:
        """All lists of statements."""
        for node in self.nodes:
            for field in ("body", "orelse", "finalbody"):
                block = getattr(node, field, None)
                if isinstance(block, list):
                    yield block

    @cached_property
    def modules(self) -> frozenset[str]:
        """Full names of all modules that are imported, and of what is imported from them."""
        found = set()
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        return frozenset(found)

    @cached_property
    def strings(self) -> frozenset[str]:
        """All string constants that are used: neither docstrings nor parts of f-strings."""
        ignored = {
            id(inner)
            for node in self.nodes
            if isinstance(node, (ast.Expr, ast.JoinedStr))
            for inner in ast.iter_child_nodes(node)
        }
        return frozenset(
            node.value
            for node in self.nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in ignored
        )

    def imports(self, *packages: str) -> bool:
        """Whether one of these packages or modules is imported, or anything from it."""
        return any(
            module == package or module.startswith(f"{package}.")
            for module in self.modules
            for package in packages
        )

    def calls(self, *functions: str) -> bool:
        """Whether a function, method or class of one of these names is called."""
        return not self.called.isdisjoint(functions)

    @cached_property
    def is_distributed(self) -> bool:
        """Whether it is written for several ranks."""
        return (
            self.imports("torch.distributed", "torch.nn.parallel", "horovod", "deepspeed")
            or self.calls("init_process_group")
            or not self.names.isdisjoint(_DISTRIBUTED)
            or any(
                isinstance(node, ast.Compare) and not RANK_NAMES.isdisjoint(names_in(node))
                for node in self.nodes
            )
        )

    @property
    def wraps_models(self) -> bool:
        """Whether it wraps a model in DistributedDataParallel."""
        return self.calls("DDP", "DistributedDataParallel")

    @property
    def shards_models(self) -> bool:
        """Whether each rank holds a part of a model."""
        return self.imports(*_SHARDING_LIBRARIES) or self.calls(*_SHARDING)

    @property
    def uses_devices(self) -> bool:
        """Whether something is put on a device of choice."""
        return self.calls("cuda", "to", "set_default_device", "set_device") or not (
            self.names.isdisjoint({"cuda", "device", "device_id"})
        )

    def call_at(self, line: int, name: str) -> ast.Call | None:
        """The call of a function of this name at a line."""
        for node in self.nodes:
            if isinstance(node, ast.Call) and node.lineno == line and called_name(node) == name:
                return node
        return None
