"""What imported functions and classes do, as far as it concerns other ranks."""

from __future__ import annotations

import ast

from . import builtin, names
from .collectives import Collectives, data_marks
from .shape import written
from .trace import Issue
from .values import (
    ANYTHING,
    CLOCK,
    LOCAL,
    PENDING,
    RANK,
    UNKNOWN,
    WRAPPERS,
    Foreign,
    Function,
    Items,
    Object,
    Scope,
    Symbol,
    Value,
    marks_of,
)

#: Modules whose classes and functions need not be followed further.
_TORCH = ("torch", "numpy", "np", "math", "torchvision", "horovod")
_ENDS = frozenset({"sys.exit", "exit", "quit"})


class Imported(Collectives):
    """Knows what imported functions do."""

    def call_symbol(
        self, path: str, node: ast.Call, args: list[Value], keywords: dict[str, Value], scope: Scope
    ) -> Value:
        last = path.rpartition(".")[2]
        tail = ".".join(path.split(".")[-2:])
        horovod = path.startswith("horovod")
        op = last if path.startswith((names.DIST, "torch.distributed.distributed_c10d.")) else ""
        if op in names.COLLECTIVES and path.count(".") <= 3:
            return self.collective(op, node, args, keywords, scope)
        if op in names.MESSAGES:
            return self.message(op, node, args, keywords, scope)
        if (
            op in names.RANK_CALLS
            or last in names.RANK_CALLS
            or (horovod and last in ("rank", "local_rank"))
        ):
            return self.own_rank(args, keywords)
        if last in names.WORLD_CALLS or (horovod and last == "size"):
            return self.size(args)
        if last in names.FIRST and not args:
            return Value(self.rank == 0, frozenset({RANK}))
        if op == "is_initialized":
            return Value(self.ready)
        if op == "destroy_process_group" and not args:
            self.ready = False
            self.note("destroy", node)
        if self.is_foreign_collective(path):
            self.issue(Issue(tail, node.lineno))
            return ANYTHING
        return self._other_symbol(path, last, tail, node, args, keywords)

    def _other_symbol(
        self,
        path: str,
        last: str,
        tail: str,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value:
        for known in (self._of_process, self._of_files):
            value = known(path, tail, node, args, keywords)
            if value is not None:
                return value
        if tail == "multiprocessing.spawn" or last == "spawn":
            return self._spawn(args, keywords)
        if last == "deepcopy" and args:
            return Value(Foreign("copy", node.lineno, tuple(args)))
        if path in ("itertools.islice", "tqdm.tqdm", "tqdm.auto.tqdm") and args:
            return args[0]
        if path == "torch.manual_seed":
            self.note("seed", node, *args)
        if path == "deepspeed.initialize":
            engine = Value(Foreign("DeepSpeedEngine", node.lineno))
            return Value(Items([engine, ANYTHING, ANYTHING, ANYTHING]))
        if last[:1].isupper() or last in ("fully_shard", "parallelize_module", "compile"):
            return self._make_foreign(path, last, node, args, keywords)
        if path.startswith(_TORCH):
            for argument in node.args:
                if isinstance(argument, ast.Name):
                    self._note_pending(argument, args)
            return Value(UNKNOWN, data_marks([*args, *keywords.values()]))
        return self.foreign_result(last, args)

    def _of_process(
        self,
        path: str,
        tail: str,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value | None:
        """Clocks, the environment, the end of the process."""
        if path in names.CLOCKS or tail in names.CLOCKS or path in ("time", "perf_counter"):
            return Value(UNKNOWN, frozenset({CLOCK}))
        if path in names.OWN or path.startswith("tempfile."):
            return Value(UNKNOWN, frozenset({LOCAL}))
        if path in ("os._exit", "os.abort"):
            if path == "os._exit":
                self.note("exit", node)
            return Value(Symbol("dies"))
        if path in _ENDS or tail in _ENDS:
            return Value(Symbol("ends"))
        if path in ("os.environ.get", "os.getenv") and args:
            return self.environment(args[0])
        return None

    def _of_files(
        self,
        path: str,
        tail: str,
        node: ast.Call,
        args: list[Value],
        keywords: dict[str, Value],
    ) -> Value | None:
        """What writes, reads and names files."""
        if path == "torch.save":
            self.note("save", node, *args, text=written(node.args[1]) if node.args[1:] else "")
            self.note("write", node, *args[1:2])
        elif path == "torch.load":
            self.note("load", node, *args, keywords.get("map_location", ANYTHING))
            self.note("read", node, *args[:1], text="load")
            return Value(Foreign("loaded", node.lineno, tuple(args), keywords))
        elif path in ("os.makedirs", "os.mkdir"):
            known = keywords.get("exist_ok", args[2] if len(args) > 2 else Value(False))
            if builtin.truth(known) is False and not self.unsure:
                self.note("makes folder", node, *args[:1])
        elif path in ("os.replace", "os.rename", "shutil.move", "shutil.copy"):
            self.note("write", node, *args[1:2])
        elif path in ("os.path.join", "pathlib.Path"):
            parts = [arg.value for arg in args if isinstance(arg.value, str)]
            whole = len(parts) == len(args)
            return Value("/".join(parts) if whole else UNKNOWN, marks_of(args))
        else:
            return None
        return ANYTHING

    def _note_pending(self, node: ast.Name, args: list[Value]) -> None:
        for value in args:
            for mark in value.marks:
                if mark.startswith(PENDING) and mark.endswith(f"\0{node.id}"):
                    self.note("read pending", node, value, text=f"{mark}\0{node.id}")

    def _make_foreign(
        self, path: str, last: str, node: ast.Call, args: list[Value], keywords: dict[str, Value]
    ) -> Value:
        if last in ("fully_shard", "parallelize_module"):
            self.wrapped = True
            if args and isinstance(args[0].value, (Foreign, Object)):
                self.sharded.add(id(args[0].value))
            return args[0] if args else ANYTHING
        if last == "compile":
            return args[0] if args else ANYTHING
        made = Foreign(last, node.lineno, tuple(args), keywords, {"path": path})
        made.facts["around"] = tuple(self.around)
        self.facts.made.append(made)
        self.note("made", node, Value(made), text=last)
        if last in WRAPPERS:
            self.wrapped = True
            self.issue(Issue(f"{last}(…)", node.lineno))
        return Value(made)

    def _spawn(self, args: list[Value], keywords: dict[str, Value]) -> Value:
        held = args[0].value if args else keywords.get("fn", ANYTHING).value
        given = args[1] if len(args) > 1 else keywords.get("args", ANYTHING)
        if isinstance(held, Function):
            self.note("destroy", held.node)  # the processes are new ones
            self.ready = False
            self.call_function(
                held, [Value(self.rank, frozenset({RANK})), *(builtin.iterate(given) or [])], {}
            )
        return ANYTHING
