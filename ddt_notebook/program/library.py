"""What functions, methods and contexts of libraries do, as far as it affects other ranks."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ddt_notebook.model.operations import MESSAGES as MESSAGE_OPERATIONS
from ddt_notebook.model.operations import OPERATIONS, SUBGROUPS, Operation

from . import names, operators
from .evaluator import NOT_CONTENT, Evaluator
from .nodes import called_name, calls_in, decorators, keyword, last_name, source_of
from .result_use import FORMS
from .trace import MESSAGES, OPTIMIZER_STEPS, GroupCall, Kind, Recorder
from .values import (
    ANYTHING,
    CLOCK,
    DEVICE,
    LOCAL,
    MEASURED,
    NO_MARKS,
    RANK,
    UNKNOWN,
    UNKNOWN_GROUP,
    UNREAD,
    Function,
    Group,
    Handle,
    HeldElsewhere,
    Imported,
    InFlight,
    Instance,
    Items,
    LibraryObject,
    Marks,
    Namespace,
    ProcessEnds,
    Scope,
    Value,
    as_data,
    computed_from,
    is_wrapper,
    marks_of,
)

# -- the table of functions ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What a function of a library returns and does.

    Attributes
    ----------
    returns
        The value, or the position of the argument that is returned; None for the default result
        of functions of this library.
    event, concerns
        What the function does, and the position of the argument that the event concerns; None for
        all arguments.
    """

    returns: Value | int | None = None
    event: Kind | None = None
    concerns: int | None = None


_READS_CLOCK = Model(returns=Value(UNKNOWN, frozenset({CLOCK})))
_READS_PROCESS = Model(returns=Value(UNKNOWN, frozenset({LOCAL})))
_PASSES_ON = Model(returns=0)
_MOVES_FILE = Model(returns=ANYTHING, event=Kind.FILE_WRITTEN, concerns=1)
_EXITS = Value(ProcessEnds(orderly=True))
_ABORTS = Value(ProcessEnds(orderly=False))
#: Keys are full names, the last two parts of a name, or ``*.`` and the last part.
FUNCTIONS: dict[str, Model] = {
    **dict.fromkeys(names.CLOCKS, _READS_CLOCK),
    **dict.fromkeys(names.OWN, _READS_PROCESS),
    "*.compile": _PASSES_ON,
    "itertools.islice": _PASSES_ON,
    "os._exit": Model(returns=_ABORTS, event=Kind.PROCESS_ENDED),
    "os.abort": Model(returns=_ABORTS),
    "os.rename": _MOVES_FILE,
    "os.replace": _MOVES_FILE,
    "shutil.copy": _MOVES_FILE,
    "shutil.move": _MOVES_FILE,
    "sys.exit": Model(returns=_EXITS),
    "torch.manual_seed": Model(event=Kind.SEEDED),
    "tqdm.auto.tqdm": _PASSES_ON,
    "tqdm.tqdm": _PASSES_ON,
}
#: Libraries whose functions compute, so that the result depends on what the arguments depend on.
_COMPUTING = ("torch", "numpy", "np", "math", "torchvision", "horovod")
#: Parts of names of functions whose source is not read. A match only makes lint quiet: the results
#: count as equal on all ranks.
_AGREES = re.compile(r"reduc|gather|sync|averag|broadcast|agree|mean_over|all_", re.IGNORECASE)

# -- tables of methods, built-in functions and contexts --------------------------------------------

_WAITS = frozenset({"wait", "is_completed", "synchronize", "result", "wait_all"})
_MOVES = frozenset({"to", "cuda", "cpu", "train", "eval", "half", "float", "double", "bfloat16"})
_PARTS = frozenset({"parameters", "state_dict", "named_parameters"})
#: Nothing is known about the results of these, whatever their arguments.
_FACTORIES = frozenset({"prepare", "setup", "setup_dataloaders", "initialize"})
#: Methods that rules ask about, even if the object is not known.
_OF_INTEREST = frozenset({"load_state_dict", "state_dict", "step", "set_epoch", "no_sync", "join"})
_RESIZES = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "sort", "reverse"})
#: Built-in functions that show or convert the content of their argument.
_CONVERTS = frozenset({"print", "float", "int", "bool", "str", "format"})
#: Methods that no other object than Accelerate's ``Accelerator`` has under this name.
_OF_STATE = frozenset({"save_state", "load_state"})
#: Built-in functions that ask for the type of an object, which is the same on every rank.
_OF_TYPE = frozenset({"callable", "hasattr", "isinstance", "issubclass", "type"})
#: The results of these iterate over the same elements.
_ITERATES = frozenset({"enumerate", "tqdm", "iter", "list", "islice"})
#: What changes inside a context or a decorated function.
_CONTEXTS = {
    "no_sync": "no_sync",
    "join": "joined",
    "Join": "joined",
    "no_grad": "no_gradient",
    "inference_mode": "no_gradient",
}
_LONGEST = 64  #: Longer lists are not followed.


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call with its evaluated arguments."""

    node: ast.Call
    args: list[Value]
    keywords: dict[str, Value]
    scope: Scope

    def expression(self, operation: Operation, parameter: str | None) -> ast.expr | None:
        """The argument for a parameter of an operation, as an expression."""
        if parameter is None:
            return None
        given = keyword(self.node, parameter)
        position = operation.position(parameter)
        if given is None and position is not None and position < len(self.node.args):
            return self.node.args[position]
        return given


class LibraryCalls:
    """Evaluates calls of functions and objects that the program does not define.

    Parameters
    ----------
    evaluator, recorder
        The evaluator and the recorder of the rank.
    call_function
        Follows a function of the program.
    group_formed
        Whether the process group exists at the beginning.
    formed_elsewhere
        Whether another file of the project may form it.

    Attributes
    ----------
    inside
        How many contexts of each kind are open: ``"no_sync"``, ``"no_gradient"`` and ``"joined"``;
        in the last, ranks may have uneven inputs.
    wrapped
        Whether a model has been wrapped, so that ``backward`` averages gradients over the ranks.
    agreed
        Values of tensors that a collective has made equal on every rank.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        recorder: Recorder,
        call_function: Callable[[Function, list[Value], dict[str, Value]], Value],
        group_formed: bool,
        formed_elsewhere: bool = False,
    ) -> None:
        self._evaluator = evaluator
        self._recorder = recorder
        self._call_function = call_function
        self._group_formed = group_formed
        self._formed_elsewhere = formed_elsewhere
        self._groups = 0
        self.wrapped = False
        #: Whether the models that were called since the last backward pass may be wrapped.
        self._called: set[bool] = set()
        self._given: set[int] = set()  # ids of models that a wrapper has got
        self._sharded: set[int] = set()  # ids of models that are sharded over the ranks
        self.inside: Counter[str] = Counter()
        self.agreed: list[Value] = []

    def unknown(self, name: str, call: Arguments) -> Value:
        """Call a function whose source is not known."""
        self._note_passed(call)
        self._called.add(True)
        self._recorder.event(Kind.UNKNOWN_CALL, call.node, op=name)
        result = self.call_name(name, call)
        return result if result.known or result.marks else Value(UNKNOWN, frozenset({UNREAD}))

    def _record(self, call: GroupCall) -> None:
        if not self.inside["joined"]:
            self._recorder.call(call)

    # -- functions ---------------------------------------------------------------------------------

    def function(self, path: str, call: Arguments) -> Value:
        """Call an imported function or class by its full name."""
        owner, _, last = path.rpartition(".")
        tail = f"{owner.rpartition('.')[2]}.{last}"
        known = self._communicates(path, tail, call) or self._asks_for_rank(path, last, call)
        if known is not None:
            return known
        special = _SPECIAL.get(path) or _SPECIAL.get(f"*.{last}")
        if special is not None:
            return special(self, call)
        model = FUNCTIONS.get(path) or FUNCTIONS.get(tail) or FUNCTIONS.get(f"*.{last}", Model())
        if model.event is not None:
            concerned = call.args if model.concerns is None else call.args[model.concerns :][:1]
            self._recorder.event(model.event, call.node, *concerned)
        if isinstance(model.returns, Value):
            return model.returns
        if model.returns is not None:
            return call.args[model.returns] if model.returns < len(call.args) else ANYTHING
        if path.startswith("tempfile."):
            return Value(UNKNOWN, frozenset({LOCAL}))
        if last[:1].isupper():
            return self._make(path, last, call)
        self._note_passed(call)
        if path.startswith(_COMPUTING):
            for argument, value in zip(call.node.args, call.args, strict=False):
                if isinstance(argument, ast.Name):
                    self._evaluator.note_read(value, argument)
            return Value(UNKNOWN, computed_from([*call.args, *call.keywords.values()]))
        if path.partition(".")[0] not in sys.stdlib_module_names:
            return self.unknown(last, call)
        return self._result(last, call.args)

    def _note_passed(self, call: Arguments) -> None:
        """Record texts of a tensor that another rank holds, for a function that may show them."""
        for argument, value in zip(call.node.args, call.args, strict=False):
            if isinstance(argument, ast.JoinedStr):
                self._evaluator.note_read(value, argument, shown=True, by="unknown")

    def _communicates(self, path: str, tail: str, call: Arguments) -> Value | None:
        """Call a function that every rank has to call; None for any other function."""
        last = path.rpartition(".")[2]
        op = last if path.startswith(names.DIST) else ""
        if op in MESSAGE_OPERATIONS:
            return self._message(op, call)
        if op in _TOGETHER and path.count(".") <= 3:
            return self._collective(op, call)
        if op == "destroy_process_group" and not call.args:
            self._group_formed = False
            self._recorder.event(Kind.GROUP_DESTROYED, call.node)
            return ANYTHING
        duty = f"hvd.{last}" if "horovod" in path else tail if op else ""
        if duty in names.OTHER_COLLECTIVES:
            if call.keywords.get("process_group", Value(None)).value is None:
                self._record(GroupCall(tail, call.node.lineno))
            return ANYTHING
        return None

    def _asks_for_rank(self, path: str, last: str, call: Arguments) -> Value | None:
        """Call a function that returns the rank or the like; None for any other function."""
        horovod = path.startswith("horovod")
        if last in names.RANK_CALLS or (horovod and last == "rank"):
            return self._rank_in(call)
        if last in names.WORLD_CALLS or (horovod and last == "size"):
            return self._size(call.args)
        if last in names.FIRST_RANK and not call.args:
            return self._evaluator.is_first
        if path.startswith(names.DIST):
            if last == "is_initialized":
                known = self._group_formed or not self._formed_elsewhere
                return Value(self._group_formed) if known else ANYTHING
            if last == "is_available":
                return Value(True)
            if last in ("get_global_rank", "get_group_rank") and len(call.args) > 1:
                return Value(UNKNOWN, call.args[1].marks)  # the same rank, with a different number
        return None

    @staticmethod
    def _result(name: str, args: list[Value]) -> Value:
        """The result of an unknown function."""
        if may_agree(name):
            return ANYTHING
        return Value(UNKNOWN, marks_of(args) & {CLOCK, LOCAL, MEASURED})

    def _rank_in(self, call: Arguments) -> Value:
        """The rank, in a group if the call passes one."""
        group = call.keywords.get("group", call.args[0] if call.args else Value(None)).value
        if group is None:
            return self._evaluator.own_rank
        rank = self._evaluator.rank
        if isinstance(group, Group) and group.members is not None:
            number = group.members.index(rank) if rank in group.members else -1
            return Value(number, frozenset({RANK}))
        return Value(UNKNOWN, frozenset({RANK}))

    def _size(self, args: list[Value]) -> Value:
        group = args[0].value if args else None
        if group is None:
            return Value(self._evaluator.world_size)
        if isinstance(group, Group) and group.members is not None:
            return Value(len(group.members))
        return ANYTHING

    # -- functions that a line of the table does not describe --------------------------------------

    def _save(self, call: Arguments) -> Value:
        node, args = call.node, call.args
        text = source_of(node.args[1]) if node.args[1:] else ""
        self._recorder.event(Kind.SAVED, node, *args, text=text)
        self._recorder.event(Kind.FILE_WRITTEN, node, *args[1:2])
        return ANYTHING

    def _load(self, call: Arguments) -> Value:
        node, args = call.node, call.args
        target = call.keywords.get("map_location", ANYTHING)
        self._recorder.event(Kind.LOADED, node, *args, target)
        self._recorder.event(Kind.FILE_READ, node, *args[:1], op="load")
        return Value(LibraryObject("loaded", node.lineno, tuple(args), call.keywords))

    def _make_folder(self, call: Arguments) -> Value:
        tolerated = call.keywords.get("exist_ok", Value(False))
        tolerated = call.args[2] if len(call.args) > 2 else tolerated
        if operators.truth(tolerated) is False and not self._recorder.unsure:
            self._recorder.event(Kind.FOLDER_MADE, call.node, *call.args[:1])
        return ANYTHING

    def _join_path(self, call: Arguments) -> Value:
        parts = [arg.value for arg in call.args if isinstance(arg.value, str)]
        known = len(parts) == len(call.args)
        return Value("/".join(parts) if known else UNKNOWN, marks_of(call.args))

    def _environment(self, call: Arguments) -> Value:
        return self._evaluator.environment(call.args[0]) if call.args else ANYTHING

    def _device(self, call: Arguments) -> Value:
        return Value(UNKNOWN, frozenset({DEVICE}) if marks_of(call.args) else NO_MARKS)

    def _spawn(self, call: Arguments) -> Value:
        """Start processes that run a function of the program. This rank is one of them."""
        held = call.args[0].value if call.args else call.keywords.get("fn", ANYTHING).value
        given = call.args[1] if len(call.args) > 1 else call.keywords.get("args", ANYTHING)
        if isinstance(held, Function):
            self._recorder.event(Kind.GROUP_DESTROYED, held.node)  # new processes have no group
            self._group_formed = False
            own = self._evaluator.own_rank
            self._call_function(held, [own, *(operators.iterate(given) or [])], {})
        return ANYTHING

    def _copy(self, call: Arguments) -> Value:
        return Value(LibraryObject("copy", call.node.lineno, tuple(call.args)))

    def _shard(self, call: Arguments) -> Value:
        self.wrapped = True
        if call.args and isinstance(call.args[0].value, (Instance, LibraryObject)):
            self._sharded.add(id(call.args[0].value))
            self._given.add(id(call.args[0].value))
        return call.args[0] if call.args else ANYTHING

    def _initialize_deepspeed(self, call: Arguments) -> Value:
        engine = Value(LibraryObject("DeepSpeedEngine", call.node.lineno))
        return Value(Items([engine, ANYTHING, ANYTHING, ANYTHING]))

    def _make(self, path: str, name: str, call: Arguments) -> Value:
        """An instance of a class."""
        made = LibraryObject(
            name,
            call.node.lineno,
            tuple(call.args),
            call.keywords,
            path,
            tuple(self._recorder.around),
        )
        self._recorder.trace.objects.append(made)
        self._recorder.event(Kind.MADE, call.node, Value(made), op=name)
        if name in names.WRAPPERS:
            self.wrapped = True
            self._given.update(id(one.value) for one in (*call.args, *call.keywords.values()))
            self._record(GroupCall(f"{name}(…)", made.line))
        return Value(made)

    # -- collectives and messages ------------------------------------------------------------------

    def _collective(self, op: str, call: Arguments) -> Value:
        operation, node = OPERATIONS[op], call.node
        given = operation.bind(call.args, call.keywords)
        if op == "new_group":
            return self._new_group(call, given)
        if op == "init_process_group":
            backend = given.get("backend", ANYTHING)
            self._recorder.event(Kind.GROUP_FORMED, node, backend, Value(given))
            self._group_formed = True
        group = _group(given.get("group", Value(None)))
        root = given.get(operation.root or "", ANYTHING)
        reduce_op = given.get("op", ANYTHING).value
        payload = call.expression(operation, operation.payload)
        many = given.get("world_size", ANYTHING).value if op == "init_process_group" else UNKNOWN
        if isinstance(many, int) and 0 < many < self._evaluator.world_size:
            return ANYTHING  # a group of some of the processes, which the source does not name
        self._record(
            GroupCall(
                op,
                node.lineno,
                group,
                root.value if root.known else None,
                reduce_op.path.rpartition(".")[2] if isinstance(reduce_op, Imported) else "",
                source_of(payload) if payload is not None else "",
            )
        )
        members = group.members if group is not None else None
        if members is not None and self._evaluator.rank not in members:
            self._recorder.event(Kind.NOT_A_MEMBER, node, Value(group), op=op)
        result = call.expression(operation, operation.result)
        if result is not None:
            self._settle(op, operation, result, given, group, call)
        if operators.truth(given.get("async_op", Value(False))):
            return self._handle(op, call, result)
        return ANYTHING if op in SUBGROUPS else Value(None)

    def _settle(
        self,
        op: str,
        operation: Operation,
        result: ast.expr,
        given: dict[str, Value],
        group: Group | None,
        call: Arguments,
    ) -> None:
        """Set what the result depends on after a collective."""
        if operation.agrees:
            before = call.scope.get(result.id) if isinstance(result, ast.Name) else None
            self.agreed += [before] if before is not None and before.marks else []
            self._evaluator.set_marks(result, NO_MARKS, call.scope)
            gathered = given.get(operation.result or "", ANYTHING).value
            if isinstance(gathered, Items):
                gathered.items = None
        elif op == "reduce" and group is None:
            target = given.get("dst", Value(0)).value
            if isinstance(target, int):
                held = HeldElsewhere(target, call.node.lineno, source_of(result))
                elsewhere = frozenset({held})
                marks = NO_MARKS if target == self._evaluator.rank else elsewhere
                self._evaluator.set_marks(result, marks, call.scope)

    def _handle(self, op: str, call: Arguments, tensor: ast.expr | None) -> Value:
        """The handle of an asynchronous call that works on a tensor."""
        made = Handle(op, call.node.lineno)
        self._recorder.trace.handles.append(made)
        self._recorder.waited.discard(made.line)
        if isinstance(tensor, ast.Name):
            made.name, made.scope = tensor.id, call.scope
            mark = InFlight(op, made.line, tensor.id, sending=op == "isend")
            self._evaluator.set_marks(tensor, frozenset({mark}), call.scope)
        return Value(made)

    def _new_group(self, call: Arguments, given: dict[str, Value]) -> Value:
        alone = operators.truth(given.get("use_local_synchronization", Value(False)))
        ranks = given.get("ranks", Value(None))
        items = operators.iterate(ranks)
        members: tuple[int, ...] | None = None
        if items is not None and all(isinstance(one.value, int) for one in items):
            members = tuple(one.value for one in items if isinstance(one.value, int))
        elif ranks.value is None:
            members = tuple(range(self._evaluator.world_size))
        self._groups += 1
        line = call.node.lineno
        if not alone:
            self._record(GroupCall("new_group", line, tensor=source_of(call.node)))
        self._recorder.event(Kind.SUBGROUP_FORMED, call.node, Value(given))
        return Value(Group(line, members, 0 if alone else self._groups))

    def _message(self, op: str, call: Arguments) -> Value:
        operation = MESSAGE_OPERATIONS[op]
        given = operation.bind(call.args, call.keywords)
        unnamed = ANYTHING if f"group_{operation.peer}" in given else Value(None)
        peer, tag = given.get(operation.peer or "", unnamed), given.get("tag", Value(0))
        self._recorder.call(
            GroupCall(op, call.node.lineno, MESSAGES, peer=peer.value, tag=tag.value)
        )
        received = given.get(operation.result or "", ANYTHING).value
        if isinstance(received, Items):
            received.items = None
        if op == "isend":
            return self._handle(op, call, call.expression(operation, operation.payload))
        return ANYTHING

    # -- methods -----------------------------------------------------------------------------------

    def method(self, receiver: Value, function: ast.Attribute, call: Arguments) -> Value:
        """Call a method of an object whose class the program does not define."""
        name, held, node, args = function.attr, receiver.value, call.node, call.args
        if name == "backward":
            quiet = "no_sync" if self.inside["no_sync"] else ""
            self._recorder.event(Kind.BACKWARD, node, receiver, op=quiet)
            if self.wrapped and not quiet and self._called != {False}:
                self._record(GroupCall("backward", node.lineno))
            self._called.clear()
            return Value(None)
        if name in _WAITS:
            self._wait(held)
        if name in names.RANK_CALLS:
            return self._evaluator.own_rank
        if name in names.FIRST_RANK and not args:
            return self._evaluator.is_first
        if _is_collective(name, held, function.value):
            self._record(GroupCall(name, node.lineno))
            return ANYTHING
        if isinstance(held, Items):
            return self._method_of_items(held, name, args, receiver)
        if isinstance(held, (Instance, LibraryObject)):
            return self._method_of_object(receiver, held, name, call)
        if name in _FACTORIES:
            return ANYTHING
        if name == "parse_args":
            return Value(Namespace())
        self._note_passed(call)
        if name in _OF_INTEREST:
            self._recorder.event(Kind.METHOD, node, receiver, *args, op=name)
        return self._method_of_tensor(receiver, function, call)

    def _method_of_object(
        self, receiver: Value, held: Instance | LibraryObject, name: str, call: Arguments
    ) -> Value:
        """Call a method that a library defines, most often of a model or an optimizer."""
        node, args = call.node, call.args
        if name in _MOVES:
            self._recorder.event(Kind.MOVED, node, receiver, *args, op=name)
            return receiver
        if name in _FACTORIES:
            return ANYTHING
        if name in ("parse_args", "parse_known_args"):
            options = Value(Namespace())
            return options if name == "parse_args" else Value(Items([options, ANYTHING]))
        if name in _PARTS and not args:
            return Value(LibraryObject(name, node.lineno, (receiver,)))
        self._recorder.event(Kind.METHOD, node, receiver, *args, op=name)
        if isinstance(held, LibraryObject):
            held.methods.add(name)
            steps = name == "step" and self.wrapped and held.path.startswith("torch.optim.")
            if steps and not self._is_apart(held):
                self._record(GroupCall("optimizer.step", node.lineno, OPTIMIZER_STEPS))
            if name == "no_sync":
                return Value(Imported(name))
        return Value(UNKNOWN, computed_from(args))

    def _method_of_tensor(self, receiver: Value, function: ast.Attribute, call: Arguments) -> Value:
        """Call a method of an unknown object, most often of a tensor."""
        name, args = function.attr, call.args
        if name not in FORMS:
            self._called.add(True)  # `self.model(x)` of an unknown object
        if name == "format" and str(receiver.value).startswith("cuda:"):
            return self._device(call)
        if name in ("cuda", "to"):
            self._recorder.event(Kind.MOVED, call.node, receiver, *args, op=name)
            args = []  # the content stays the same
        if name.endswith("_") and not name.startswith("_"):
            self._evaluator.note_change(receiver, function)
            marks = computed_from([receiver, *args])
            self._evaluator.set_marks(function.value, marks, call.scope)
        elif name in NOT_CONTENT:
            return ANYTHING
        else:
            self._evaluator.note_read(receiver, function.value)
        kept = {mark for mark in receiver.marks if isinstance(mark, HeldElsewhere)}
        return Value(UNKNOWN, computed_from([receiver, *args]) | kept)

    @staticmethod
    def _method_of_items(held: Items, name: str, args: list[Value], receiver: Value) -> Value:
        if name == "append" and held.items is not None and args and len(held.items) < _LONGEST:
            held.items.append(args[0])
            return Value(None)
        if name in _RESIZES:
            held.items = None
        return Value(UNKNOWN, receiver.marks)

    def _wait(self, held: object) -> None:
        """Wait for a handle; if the handle is not known, for any."""
        handles = [held] if isinstance(held, Handle) else self._recorder.trace.handles
        for handle in handles:
            self._recorder.waited.add(handle.line)
            if handle.scope is None or handle.name is None:
                continue
            bound = handle.scope.get(handle.name)
            if bound is not None and any(isinstance(mark, InFlight) for mark in bound.marks):
                handle.scope.names[handle.name] = ANYTHING

    def _is_apart(self, optimizer: LibraryObject) -> bool:
        """Whether an optimizer has the parameters of one model, and no wrapper has got that."""
        held = optimizer.given("params", 0)
        if not isinstance(held, LibraryObject) or held.kind not in _PARTS or not held.args:
            return False
        model = held.args[0].value
        return (isinstance(model, Instance) or _is_layer(model)) and id(model) not in self._given

    # -- calls of objects and of unknown names -----------------------------------------------------

    def note_call(self, called: Value, node: ast.Call) -> None:
        """Record that a model is called."""
        if not self.inside["no_gradient"] and _is_layer(called.value):
            self._called.add(False)
        if id(called.value) in self._sharded:
            self._record(GroupCall("forward", node.lineno))
        if not self.inside["no_gradient"]:
            self._recorder.event(Kind.CALLED, node, called)

    def call_object(self, called: Value, held: LibraryObject, call: Arguments) -> Value:
        """Call an object of a library, most often a model or a loss."""
        if not is_wrapper(held):
            self.note_call(called, call.node)
            return Value(UNKNOWN, self._evaluated(as_data(marks_of(call.args))))
        held.methods.add("__call__")
        self._called.add(True)
        if held.kind == "FullyShardedDataParallel" or _has_buffers(held.argument("module", 0)):
            self._record(GroupCall("forward", call.node.lineno))
        if self.inside["no_gradient"]:
            return Value(UNKNOWN, self._evaluated(as_data(marks_of(call.args))))
        return Value(UNKNOWN, frozenset({LOCAL}))

    def _evaluated(self, marks: Marks) -> Marks:
        """Marks of a model's output, given those of its inputs."""
        without_gradients = self.inside["no_gradient"] and LOCAL in marks
        return marks | {MEASURED} if without_gradients else marks

    def call_name(self, name: str, call: Arguments) -> Value:
        """Call a built-in or unknown function by its name."""
        node, args = call.node, call.args
        if name in _CONVERTS:
            for argument, value in zip(node.args, args, strict=False):
                self._evaluator.note_read(value, argument, shown=True)
                if name == "print":
                    self._recorder.event(Kind.SHOWN, node, value, text=source_of(argument))
        if name in _ITERATES and args and isinstance(args[0].value, LibraryObject):
            return args[0]
        if name == "open" and args:
            mode = args[1].value if len(args) > 1 else "r"
            reads = isinstance(mode, str) and mode[:1] == "r"
            kind = Kind.FILE_READ if reads else Kind.FILE_WRITTEN
            self._recorder.event(kind, node, args[0], op="open")
        if name in names.FIRST_RANK and not args:
            return self._evaluator.is_first
        if name in names.RANK_CALLS:
            return self._evaluator.own_rank
        if name in names.WORLD_CALLS:
            return Value(self._evaluator.world_size)
        if name in _OF_TYPE:
            return ANYTHING
        if name == "dict" and not args and all(given.arg for given in node.keywords):
            return Value(dict(call.keywords))
        if name not in _CONVERTS:
            self._note_passed(call)
        known = operators.call(name, args)
        if known is not None:
            return known if known.known else Value(UNKNOWN, as_data(known.marks))
        self._called.add(True)
        return self._result(name, args)

    # -- contexts and loops ------------------------------------------------------------------------

    @contextmanager
    def context(self, expression: ast.expr, value: Value) -> Iterator[None]:
        """Apply the changes of a ``with`` statement to the calls inside."""
        kind = _CONTEXTS.get(called_name(expression), "")
        if isinstance(value.value, Imported) and value.value.path == "no_sync":
            kind = "no_sync"
        with self._inside({kind}):
            yield

    @contextmanager
    def decorated(self, node: ast.AST) -> Iterator[None]:
        """Apply the changes of a function's decorators to the calls inside."""
        kinds = {_CONTEXTS.get(name, "") for name in decorators(node)}
        with self._inside(kinds & {"no_gradient"}):
            yield

    @contextmanager
    def _inside(self, kinds: set[str]) -> Iterator[None]:
        self.inside.update(kinds)
        try:
            yield
        finally:
            self.inside.subtract(kinds)

    @staticmethod
    def iterations(value: Value) -> int | None:
        """How many iterations a loop over a value has; None if it is not known."""
        loader = value.value
        if not isinstance(loader, LibraryObject) or loader.kind != "DataLoader":
            known = operators.length(value).value
            return known if isinstance(known, int) else None
        data, size = loader.argument("dataset", 0), loader.argument("batch_size", 1)
        subset = data.value if data is not None else None
        if not isinstance(subset, LibraryObject) or subset.kind != "Subset":
            return None
        chosen = subset.argument("indices", 1)
        many = operators.length(chosen).value if chosen is not None else UNKNOWN
        each = size.value if size is not None else 1
        sampled = any(loader.argument(name) for name in ("sampler", "batch_sampler"))
        if sampled or not isinstance(many, int) or not isinstance(each, int) or each < 1:
            return None
        match loader.argument("drop_last"):
            case None | Value(value=False):
                return -(-many // each)
            case Value(value=True):
                return many // each
        return None

    @staticmethod
    def element(loader: LibraryObject) -> Value:
        """An element of an iterable of a library."""
        sampler = loader.argument("sampler")
        own = sampler is not None and getattr(sampler.value, "kind", "") == "DistributedSampler"
        return Value(UNKNOWN, frozenset({LOCAL}) if own else NO_MARKS)


#: Functions of ``torch.distributed`` that all members of a group call together.
_TOGETHER = names.CALLED_TOGETHER - {"destroy_process_group"}
_SPECIAL: dict[str, Callable[[LibraryCalls, Arguments], Value]] = {
    "*.deepcopy": LibraryCalls._copy,
    "*.fully_shard": LibraryCalls._shard,
    "*.parallelize_module": LibraryCalls._shard,
    "*.spawn": LibraryCalls._spawn,
    "deepspeed.initialize": LibraryCalls._initialize_deepspeed,
    "os.environ.get": LibraryCalls._environment,
    "os.getenv": LibraryCalls._environment,
    "os.makedirs": LibraryCalls._make_folder,
    "os.mkdir": LibraryCalls._make_folder,
    "os.path.join": LibraryCalls._join_path,
    "pathlib.Path": LibraryCalls._join_path,
    "torch.device": LibraryCalls._device,
    "torch.load": LibraryCalls._load,
    "torch.save": LibraryCalls._save,
}


def may_agree(name: str) -> bool:
    """Whether an unknown function of this name may make a value equal on all ranks."""
    return _AGREES.search(name) is not None


def _is_collective(name: str, held: object, receiver: ast.expr) -> bool:
    """Whether every rank has to call a method; those of Accelerate's class are often inherited."""
    kind = held.kind if isinstance(held, LibraryObject) else ""
    if kind.endswith("Accelerator"):
        kind = "Accelerator"
    if held is UNKNOWN and last_name(receiver) == "accelerator" and name in _OF_STATE:
        return True
    return name in names.COLLECTIVE_METHODS or name in names.METHODS_OF.get(kind, ())


def _is_layer(value: object) -> bool:
    """Whether a value is a module of PyTorch that may have parameters."""
    return (
        isinstance(value, LibraryObject)
        and value.path.startswith("torch.nn.")
        and not value.kind.endswith("Loss")
        and not is_wrapper(value)
    )


def _group(given: Value) -> Group | None:
    """The group of a call; None for the group of all ranks."""
    match given.value:
        case Group() as group:
            return group
        case None | Imported():  # dist.group.WORLD
            return None
    return UNKNOWN_GROUP


def _has_buffers(model: Value | None) -> bool:
    """Whether a model is known to have buffers, which its wrapper broadcasts."""
    held = model.value if model is not None else None
    if isinstance(held, Instance):
        made = {called_name(call) for call in calls_in(held.of.node)}
        return any("BatchNorm" in name or name == "register_buffer" for name in made)
    if isinstance(held, LibraryObject):
        return "BatchNorm" in held.kind or any(map(_has_buffers, held.args))
    return False
