"""Follows one rank through a program, as far as the source shows its way."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ddt_notebook.model.operations import COLLECTIVES

from . import names, operators
from .evaluator import Evaluator
from .library import Arguments, LibraryCalls
from .nodes import (
    assigned_in,
    called_name,
    calls_in,
    decorators,
    is_generator,
    last_name,
    root_name,
    source_of,
    variables_in,
)
from .project import FromProject, Project
from .trace import (
    Caught,
    Choice,
    Ending,
    Exit,
    GroupCall,
    Item,
    Kind,
    Leave,
    Loop,
    Recorder,
    Risk,
    bounded,
    calls,
    first_call,
)
from .values import (
    ANYTHING,
    LOCAL,
    NO_MARKS,
    OTHER_RANK,
    RANK,
    UNKNOWN,
    Class,
    Condition,
    Function,
    Imported,
    Instance,
    Items,
    LibraryObject,
    Marks,
    ProcessEnds,
    Scope,
    Value,
    as_data,
    is_wrapper,
    join,
    marks_of,
)

#: The most statements that are followed, over all ranks: in a program, and in a function that the
#: program does not call. Larger programs would take seconds and are not followed to their end.
_MOST, _MOST_IN_FUNCTION = 30_000, 6_000
#: The most statements that a rank follows in other files of the project.
_MOST_ELSEWHERE = 2_000
_UNROLLED = 2_000  #: After this many statements, loops are no longer unrolled.
_ITERATIONS = 16  #: A loop with at most this many iterations is unrolled.
_DEPTH = 16  #: The deepest nesting of calls that is followed.
#: Methods that read the content of a tensor.
_READS = frozenset({"item", "tolist", "numpy", "cpu", "mean", "sum", "max", "argmax"})
#: Exceptions that are raised on every rank, or by the user.
_RAISED_ALIKE = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "KeyboardInterrupt", "SystemExit",
     "StopIteration", "KeyError", "NotImplementedError"}
)  # fmt: skip
#: Exceptions that one batch or one file may raise.
_RAISED_BY_DATA = ("RuntimeError", "OutOfMemory", "OSError", "MemoryError")
#: Calls whose result is the same on every rank.
_AGREEING = frozenset(name for name, operation in COLLECTIVES.items() if operation.agrees)
#: Calls that do not raise on one rank alone.
_HARMLESS = frozenset(
    {"print", "len", "range", "int", "float", "str", "append", "info", "debug", "item"}
)


class TooLong(Exception):
    """The program is too large to follow."""


class Interpreter:
    """Follows one rank through a program.

    It runs nothing. If a condition is not known, it follows both branches; if the number of
    iterations of a loop is not known, it follows the body once.

    Parameters
    ----------
    rank, world_size
        Number of the rank, and how many there are.
    group_formed
        Whether the process group exists at the beginning.
    project
        The files that imports are looked up in; None if they are not read.

    Attributes
    ----------
    recorder
        Holds the trace.
    followed
        The functions that have been called.
    exhausted
        Whether some statements of other files were not followed, since they are too many.
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        group_formed: bool = True,
        project: Project | None = None,
    ) -> None:
        self.recorder = Recorder(rank)
        self._project = project
        self._modules: dict[Path, Scope | None] = {}  # other files of the project that are read
        self._elsewhere = 0  # statements that were followed in them
        self._visits = 0  # how many of their functions are being followed
        self.exhausted = False
        self.followed: set[ast.AST] = set()
        self._evaluator = Evaluator(rank, world_size, self.recorder, self)
        self._library = LibraryCalls(
            self._evaluator,
            self.recorder,
            self.call_function,
            group_formed,
            formed_elsewhere=project is not None,
        )
        self._wrapping: set[Instance | None] = set()  # objects whose constructor wraps a model
        self._frames: list[tuple[ast.AST, list[Value]]] = []  # functions, and what they return
        self._module_node: ast.Module | None = None
        self._with_bodies: list[Callable[[], None]] = []
        self._steps, self._limit = 0, _MOST // world_size
        self._exited = False  # whether sys.exit or the like has ended the process
        self._raised = False  # whether the function called last has raised an exception

    @property
    def _code(self) -> ast.AST | None:
        """The function that is followed, or the program."""
        return self._frames[-1][0] if self._frames else self._module_node

    def program(self, tree: ast.Module, scope: Scope) -> None:
        """Follow a whole program."""
        self._module_node = tree
        ended = self._block(tree.body, scope)
        self.recorder.trace.raised = ended == "raise" and not self._exited
        self._wrapping = {None} if self._library.wrapped else set()

    def function(self, function: Function) -> None:
        """Follow a function that nothing calls, in a separate trace; may raise `TooLong`."""
        self.recorder.restart(self._evaluator.rank)
        self._frames, self._with_bodies = [], []
        self._steps, self._limit = 0, _MOST_IN_FUNCTION // self._evaluator.world_size
        self._library.wrapped = function.owner in self._wrapping
        self._exited = self._raised = False
        self.call_function(function, [], {})

    def functions(self, scope: Scope) -> Iterator[Function]:
        """The functions and methods that have not been called."""
        for value in list(scope.names.values()):
            held = value.value
            if isinstance(held, Function) and held.node not in self.followed:
                yield held
            elif isinstance(held, Class):
                yield from self._methods(held)

    def _methods(self, held: Class) -> Iterator[Function]:
        made: Instance | None = None
        for method in held.node.body:
            if not isinstance(method, ast.FunctionDef) or method.name == "__init__":
                continue
            if method in self.followed:
                continue
            if made is None:
                made = Instance(held)
                self._library.wrapped = None in self._wrapping
                with self.recorder.unseen():
                    self._construct(made, [], {})
                if self._library.wrapped:
                    self._wrapping.add(made)
            yield Function(method, held.scope, made)

    # -- calls -------------------------------------------------------------------------------------

    def call(self, node: ast.Call, scope: Scope) -> Value:
        """Evaluate a call."""
        receiver: Value | None = None
        if isinstance(node.func, ast.Attribute):
            receiver = self._evaluator.evaluate(node.func.value, scope)
            function = self._called_attribute(receiver, node, node.func)
        else:
            function = self._evaluator.evaluate(node.func, scope)
        call = self._arguments(node, scope)
        held = function.value
        match held:
            case Imported():
                return self._library.function(held.path, call)
            case FromProject():
                return self._library.unknown(held.name, call)
            case Function():
                return self._call_own(held, call)
            case Class():
                made = Instance(held, line=node.lineno)
                self._construct(made, call.args, call.keywords)
                return Value(made)
            case Instance():
                self._library.note_call(function, node)
                return self._call_instance(held, call)
            case LibraryObject():
                return self._library.call_object(function, held, call)
        if receiver is not None and isinstance(node.func, ast.Attribute):
            return self._library.method(receiver, node.func, call)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        return self._library.call_name(name, call)

    def _called_attribute(self, receiver: Value, node: ast.Call, name: ast.Attribute) -> Value:
        """What ``receiver.name(...)`` calls, if it belongs to the program or to a library."""
        held = receiver.value
        inner = name.attr == "module" and is_wrapper(held)
        if inner and not self._library.inside["no_gradient"]:
            self.recorder.event(Kind.INNER_MODULE_CALLED, node, receiver)
        if name.attr in _READS:
            self._evaluator.note_read(receiver, name.value)
        if inner or isinstance(held, (Imported, Instance, Class, FromProject)):
            return self._evaluator.attribute(receiver, name)
        return ANYTHING

    def _arguments(self, node: ast.Call, scope: Scope) -> Arguments:
        args: list[Value] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                inner = self._evaluator.evaluate(argument.value, scope)
                args += operators.iterate(inner) or []
            else:
                args.append(self._evaluator.evaluate(argument, scope))
        keywords: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self._evaluator.evaluate(keyword.value, scope)
            if keyword.arg is not None:
                keywords[keyword.arg] = value
            elif isinstance(value.value, dict):
                keywords |= value.value
        return Arguments(node, args, keywords, scope)

    def _call_instance(self, held: Instance, call: Arguments) -> Value:
        for name in ("__call__", "forward"):
            method = held.of.method(name)
            if method is not None:
                function = Function(method, held.of.scope, held)
                return self.call_function(function, call.args, call.keywords)
        return Value(UNKNOWN, as_data(marks_of(call.args)))

    def _construct(self, made: Instance, args: list[Value], keywords: dict[str, Value]) -> None:
        constructor = made.of.method("__init__")
        if constructor is not None:
            self.call_function(Function(constructor, made.of.scope, made), args, keywords)

    # -- other files of the project ----------------------------------------------------------------

    def imported(self, name: FromProject) -> Value:
        """The value of a name in another file of the project; the name itself if it is not read."""
        if self._project is not None and not name.name:
            return Value(name)
        for _ in range(_DEPTH):  # a package often imports from its modules
            scope = self._module(name.file)
            found = scope.names.get(name.name) if scope is not None else None
            if found is None:
                inner = Project.submodule(name.file, name.name)
                return Value(FromProject(inner)) if inner is not None else Value(name)
            if not isinstance(found.value, FromProject) or not found.value.name:
                return found
            name = found.value
        return Value(name)

    def _module(self, file: Path) -> Scope | None:
        """The names that a file defines, after its own statements; None if it cannot be read."""
        if file not in self._modules:
            self._modules[file] = None  # for imports in a circle
            tree = self._project.tree(file) if self._project is not None else None
            if tree is not None:
                scope = Scope({"__name__": Value(file.stem), "__file__": Value(file)})
                with self.recorder.unseen():
                    followed = self._visit(lambda: self._block(tree.module.body, scope))
                self._modules[file] = scope if followed else None
        return self._modules[file]

    def _visit(self, follow: Callable[[], object]) -> bool:
        """Follow statements of another file; False if they are too many."""
        before = self._steps, self._limit, self._frames, self._with_bodies, self._raised
        self._steps, self._limit = 0, _MOST_ELSEWHERE - self._elsewhere
        self._visits += 1
        try:
            follow()
        except TooLong:
            self.exhausted = True
            return False
        finally:
            self._visits -= 1
            self._elsewhere += self._steps
            self._steps, self._limit, self._frames, self._with_bodies, self._raised = before
        return True

    def _call_own(self, function: Function, call: Arguments) -> Value:
        """Call a function of the program, which may make its arguments equal on every rank."""
        before = len(self._library.agreed)
        result = self._follow_own(function, call)
        agreed = self._library.agreed[before:]
        for argument, value in zip(call.node.args, call.args, strict=False):
            if isinstance(argument, ast.Name) and any(value is one for one in agreed):
                self._evaluator.set_marks(argument, NO_MARKS, call.scope)
        return result

    def _follow_own(self, function: Function, call: Arguments) -> Value:
        """Call a function of the program, which may be in another file."""
        name = getattr(function.node, "name", "")
        known = names.RANK_CALLS | names.WORLD_CALLS | names.FIRST_RANK
        asks = name in known and not call.args
        if self._project is None or not Project.is_elsewhere(function.node.lineno):
            returned = self.call_function(function, call.args, call.keywords)
            if asks and not returned.known:  # whether there is a group is not known
                return self._library.call_name(name, call)
            return returned
        if asks:
            return self._library.call_name(name, call)
        if self._visits:
            return self.call_function(function, call.args, call.keywords)
        result: list[Value] = []

        def follow() -> None:
            result.append(self.call_function(function, call.args, call.keywords))

        return result[0] if self._visit(follow) else self._library.unknown(name, call)

    def call_function(
        self,
        function: Function,
        args: list[Value],
        keywords: dict[str, Value],
        *,
        as_context: bool = False,
    ) -> Value:
        """Follow a function; with ``as_context``, follow the ``with`` body at its ``yield``."""
        node = function.node
        self.followed.add(node)
        if len(self._frames) >= _DEPTH or any(frame is node for frame, _ in self._frames):
            return ANYTHING
        if self._evaluator.rank != 0 and decorators(node) & names.FIRST_RANK_DECORATORS:
            return ANYTHING
        if function.owner is not None and "staticmethod" not in decorators(node):
            args = [Value(function.owner), *args]
        scope = Scope(self._bound(node, args, keywords, function.scope), function.scope)
        if isinstance(node, ast.Lambda):
            return self._evaluator.evaluate(node.body, scope)
        if is_generator(node) and not as_context:
            return ANYTHING
        returned: list[Value] = []
        self._frames.append((node, returned))
        outer = self._with_bodies
        if not as_context:
            self._with_bodies = []
        with self.recorder.aside() as items, self._library.decorated(node):
            self._raised = self._block(node.body, scope) == "raise"
        self._with_bodies = outer
        self._frames.pop()
        self.recorder.items += bounded(items, node.lineno, "return")
        result = returned[0] if returned else Value(None)
        for other in returned[1:]:
            result = join(result, other)
        return result

    def _bound(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        args: list[Value],
        keywords: dict[str, Value],
        scope: Scope,
    ) -> dict[str, Value]:
        """The values of a function's parameters, by argument, default or parameter name."""
        spec = node.args
        positional = [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
        keyword_only = [parameter.arg for parameter in spec.kwonlyargs]
        defaults: dict[str, ast.expr | None] = dict(
            zip(positional[len(positional) - len(spec.defaults) :], spec.defaults, strict=True)
        )
        defaults |= zip(keyword_only, spec.kw_defaults, strict=True)
        bound = dict(zip(positional, args, strict=False))
        for name in (*positional, *keyword_only):
            default = defaults.get(name)
            if name in keywords:
                bound[name] = keywords[name]
            elif name not in bound and default is not None and name in names.RANK_NAMES:
                # A caller of the function on several ranks passes the rank.
                bound[name] = Value(UNKNOWN, frozenset({OTHER_RANK}))
            elif name not in bound and default is not None:
                bound[name] = self._evaluator.evaluate(default, scope)
            elif name not in bound:
                is_rank = name in names.RANK_NAMES
                bound[name] = self._evaluator.own_rank if is_rank else ANYTHING
        for rest in (spec.vararg, spec.kwarg):
            if rest is not None:
                bound[rest.arg] = ANYTHING
        return bound

    def resume(self) -> bool:
        """Follow the body of the ``with`` statement, if there is one, at a ``yield``."""
        if not self._with_bodies:
            return False
        self._with_bodies[-1]()
        return True

    # -- simple statements -------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt], scope: Scope) -> Ending:
        """Follow statements in order."""
        for statement in statements:
            self._steps += 1
            if self._steps > self._limit:
                raise TooLong
            follow = _FOLLOW.get(type(statement), Interpreter._other)
            ended = follow(self, statement, scope)
            if self._raised:
                self._raised = False
                return "raise"
            if ended:
                return ended
        return ""

    def _other(self, node: ast.stmt, scope: Scope) -> Ending:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                self._evaluator.evaluate(child, scope)
        return ""

    def _expression(self, node: ast.Expr, scope: Scope) -> Ending:
        held = self._evaluator.evaluate(node.value, scope).value
        if isinstance(held, ProcessEnds):
            self._exited = held.orderly
            return "raise"
        return ""

    def _delete(self, node: ast.Delete, scope: Scope) -> Ending:
        return ""

    def _define(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> Ending:
        scope.names[node.name] = Value(Function(node, scope))
        return ""

    def _define_class(self, node: ast.ClassDef, scope: Scope) -> Ending:
        bases, parents = [], []
        for base in node.bases:
            held = self._evaluator.evaluate(base, scope).value
            if isinstance(held, Class):
                parents.append(held)
            else:
                bases.append(held.path if isinstance(held, Imported) else source_of(base))
        scope.names[node.name] = Value(Class(node, scope, tuple(bases), tuple(parents)))
        return ""

    def _import(self, node: ast.Import, scope: Scope) -> Ending:
        for alias in node.names:
            path = alias.name if alias.asname else alias.name.partition(".")[0]
            file = self._file_of(path, 0, scope)
            scope.names[alias.asname or path] = Value(FromProject(file) if file else Imported(path))
        return ""

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> Ending:
        file = self._file_of(node.module or "", node.level, scope)
        for alias in node.names:
            if file is not None and alias.name == "*":
                star = self._module(file)
                scope.names |= star.names if star is not None else {}
            elif file is not None:
                scope.names[alias.asname or alias.name] = Value(FromProject(file, alias.name))
            else:
                # What the user imports from another of their files is not known.
                imported = Value(Imported(f"{node.module}.{alias.name}"))
                scope.names[alias.asname or alias.name] = ANYTHING if node.level else imported
        return ""

    def _file_of(self, module: str, level: int, scope: Scope) -> Path | None:
        """The file of the project that is imported; None if imports are not followed."""
        if self._project is None:
            return None
        importer = scope.get("__file__")
        at = importer.value if importer is not None else None
        return self._project.find(module, level, at if isinstance(at, Path) else self._project.file)

    def _assign(self, node: ast.Assign | ast.AnnAssign, scope: Scope) -> Ending:
        if node.value is not None:
            value = self._evaluator.evaluate(node.value, scope)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self._evaluator.assign(target, value, scope)
        return ""

    def _augmented_assign(self, node: ast.AugAssign, scope: Scope) -> Ending:
        target: ast.expr = node.target
        if isinstance(target, ast.Name):
            target = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        before = self._evaluator.evaluate(target, scope)
        self._evaluator.note_change(before, node)
        self._evaluator.note_read(before, target)
        added = self._evaluator.evaluate(node.value, scope)
        value = operators.binary(node.op, before, added)
        self._evaluator.assign(node.target, value, scope)
        return ""

    def _return(self, node: ast.Return, scope: Scope) -> Ending:
        value = self._evaluator.evaluate(node.value, scope)
        if self._frames:
            self._frames[-1][1].append(self._evaluator.under_conditions(value))
        return "return"

    def _break(self, node: ast.Break, scope: Scope) -> Ending:
        return "break"

    def _continue(self, node: ast.Continue, scope: Scope) -> Ending:
        return "continue"

    def _assert(self, node: ast.Assert, scope: Scope) -> Ending:
        test = self._evaluator.evaluate(node.test, scope)
        # Only what the rank decides is certain enough to end the way of a rank.
        return "raise" if operators.truth(test) is False and RANK in test.marks else ""

    def _raise(self, node: ast.Raise, scope: Scope) -> Ending:
        self._evaluator.evaluate(node.exc, scope)
        return "raise"

    # -- conditions --------------------------------------------------------------------------------

    def _if(self, node: ast.If, scope: Scope) -> Ending:
        test = self._evaluator.read(node.test, scope, shown=True)
        holds = operators.truth(test)
        if holds is None:
            return self._either(node, test, (node.body, node.orelse), scope)
        with self.recorder.under(node.lineno, int(not holds), test.marks):
            ended = self._block(node.body if holds else node.orelse, scope)
        leaves = ended in ("return", "break", "continue") or (ended and self._exited)
        if leaves and test.differs:
            condition = Condition(node.lineno, int(not holds), test.marks)
            function = self._frames[-1][0] if self._frames else None
            last_line = getattr(function, "end_lineno", 0)
            self.recorder.trace.exits.append(Exit(condition, last_line))
        return ended

    def _either(
        self,
        node: ast.If | ast.Match,
        test: Value,
        bodies: tuple[list[ast.stmt], list[ast.stmt]],
        scope: Scope,
    ) -> Ending:
        """Follow both branches of a condition that is not known."""
        paths: list[tuple[Item, ...]] = []
        endings: list[Ending] = []
        bindings: list[dict[str, Value]] = []
        exited, before = self._exited, dict(scope.names)
        wrapped = [self._library.wrapped]
        for number, body in enumerate(bodies):
            scope.names, self._library.wrapped = dict(before), wrapped[0]
            with self.recorder.aside() as items:
                with self.recorder.under(node.lineno, number, test.marks, sure=False):
                    ended = self._block(body, scope)
            wrapped.append(self._library.wrapped)
            if ended:
                items.append(Leave(ended, body[-1].lineno))
            self._exited = exited
            paths.append(tuple(items))
            endings.append(ended)
            bindings.append(scope.names)
        self._library.wrapped = any(wrapped)
        vague = isinstance(node, ast.If) and _asks_membership(node.test)
        self.recorder.items.append(Choice(node.lineno, test.marks, (paths[0], paths[1]), vague))
        if all(endings):
            scope.names = before
            return endings[0] if endings[0] == endings[1] else "return"
        communicate = [first_call(path) is not None for path in paths]
        if any(endings):
            scope.names = bindings[endings.index("")]
        elif communicate[0] != communicate[1] and not test.differs:
            # `if distributed: all_reduce(loss)`: the other branch is for a single process.
            scope.names = bindings[communicate.index(True)]
        else:
            scope.names = _joined(*bindings)
        return ""

    def _match(self, node: ast.Match, scope: Scope) -> Ending:
        test = self._evaluator.read(node.subject, scope, shown=True)
        if not test.known:
            bodies = [*(case.body for case in node.cases), []]
            return self._either(node, test, (bodies[0], bodies[1]), scope)
        for case in node.cases:
            pattern = case.pattern
            if isinstance(pattern, ast.MatchValue):
                value = self._evaluator.evaluate(pattern.value, scope)
                fits = operators.truth(operators.compare(ast.Eq(), test, value))
                branch = 0
            else:
                anything = isinstance(pattern, ast.MatchAs) and pattern.pattern is None
                fits, branch = anything and case.guard is None, 1
            if fits:
                with self.recorder.under(pattern.lineno, branch, test.marks):
                    return self._block(case.body, scope)
        return ""

    # -- loops -------------------------------------------------------------------------------------

    def _for(self, node: ast.For | ast.AsyncFor, scope: Scope) -> Ending:
        many = self._evaluator.evaluate(node.iter, scope)
        items = operators.iterate(many)
        variables = {inner.id for inner in ast.walk(node.target) if isinstance(inner, ast.Name)}
        if variables & names.RANK_NAMES:
            many = many.marked({OTHER_RANK})
        if items is not None and len(items) <= _ITERATIONS and self._steps < _UNROLLED:
            with self.recorder.aside() as inner:
                ended = self._unrolled(node, items, many.marks, scope)
            self.recorder.items += bounded(inner, node.lineno, "break")
            return ended
        self.recorder.event(Kind.LOOP, node, many)
        iterations = self._library.iterations(many)
        element = Value(UNKNOWN, many.marks & {LOCAL, OTHER_RANK})
        if isinstance(many.value, LibraryObject):
            element = self._library.element(many.value)
        counted = any(called_name(call) == "enumerate" for call in calls_in(node.iter))

        def body() -> Ending:
            self._evaluator.assign(node.target, element, scope)
            if counted and isinstance(node.target, ast.Tuple):
                # The counter is the same on every rank, whatever the data.
                self._evaluator.assign(node.target.elts[0], ANYTHING, scope)
            return self._block(node.body, scope)

        marks = many.marks & {RANK} if isinstance(many.value, (range, Items)) else NO_MARKS
        self._once(node, marks, body, scope, iterations=iterations)
        return ""

    def _unrolled(
        self, node: ast.For | ast.AsyncFor, items: list[Value], marks: Marks, scope: Scope
    ) -> Ending:
        for one in items:
            self._evaluator.assign(node.target, one, scope)
            with self.recorder.aside() as inner:
                with self.recorder.under(node.lineno, 0, marks, loop=len(items) > 1):
                    ended = self._block(node.body, scope)
            self.recorder.items += bounded(inner, node.lineno, "continue")
            if ended == "break":
                return ""
            if ended in ("return", "raise"):
                return ended
        return self._block(node.orelse, scope)

    def _while(self, node: ast.While, scope: Scope) -> Ending:
        _forget_assigned(node, scope)
        test = self._evaluator.read(node.test, scope, shown=True)
        holds = operators.truth(test)
        if holds is False:
            return ""
        self.recorder.event(Kind.LOOP, node, test)
        endless = holds is True and not test.marks
        after: list[Value] = [test]

        def body() -> Ending:
            ended = self._block(node.body, scope)
            after.append(self._evaluator.read(node.test, scope, shown=True))
            return ended

        def marks() -> Marks:
            return NO_MARKS if endless else marks_of(after)

        self._once(node, NO_MARKS, body, scope, marks_after=marks)
        return ""

    def _once(
        self,
        node: ast.For | ast.AsyncFor | ast.While,
        marks: Marks,
        body: Callable[[], Ending],
        scope: Scope,
        *,
        iterations: int | None = None,
        marks_after: Callable[[], Marks] | None = None,
    ) -> None:
        """Follow the body of a loop once, if its iterations are many or not known.

        Parameters
        ----------
        marks, marks_after
            What the number of iterations depends on; ``marks_after`` if only the body shows it.
        """
        _forget_assigned(node, scope)
        with self.recorder.aside() as items:
            with self.recorder.under(node.lineno, 0, marks, loop=True, sure=False):
                ended = body()
            if ended:
                items.append(Leave(ended, node.lineno))
        depends = marks_after() if marks_after is not None else marks
        self.recorder.items.append(Loop(node.lineno, depends, tuple(items), iterations))
        self._block(node.orelse, scope)

    # -- contexts and exceptions -------------------------------------------------------------------

    def _with(self, node: ast.With | ast.AsyncWith, scope: Scope) -> Ending:
        ended: Ending = ""

        def enter(items: Sequence[ast.withitem]) -> None:
            nonlocal ended
            if not items:
                ended = self._block(node.body, scope)
                return
            expression, target = items[0].context_expr, items[0].optional_vars
            function = self._context_function(expression, scope)
            if function is not None:
                bodies = self._with_bodies  # a call replaces the list, and may be given up inside
                bodies.append(lambda: enter(items[1:]))
                try:
                    self.call_function(function, [], {}, as_context=True)
                finally:
                    bodies.pop()
                return
            value = self._evaluator.evaluate(expression, scope)
            if target is not None:
                self._evaluator.assign(target, value, scope)
            with self._library.context(expression, value):
                enter(items[1:])

        enter(node.items)
        return ended

    def _context_function(self, expression: ast.expr, scope: Scope) -> Function | None:
        """The function of the program that a ``with`` statement calls."""
        if isinstance(expression, ast.Call) and isinstance(expression.func, ast.Name):
            bound = self._evaluator.evaluate(expression.func, scope).value
            if isinstance(bound, Function):
                return bound
        return None

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> Ending:
        before = dict(scope.names)
        first = len(self.recorder.items)
        ended = self._block(node.body, scope)
        if ended == "raise" and node.handlers and not self._exited:
            self.recorder.items.append(Caught(node.lineno))
            ended = self._block(node.handlers[0].body, scope)
        else:
            tried = tuple(self.recorder.items[first:])
            for handler in node.handlers:
                if not _is_raised_alike(handler):
                    self._handler(node, handler, tried, before, scope)
            if not ended:
                ended = self._block(node.orelse, scope)
        return self._block(node.finalbody, scope) or ended

    def _handler(
        self,
        node: ast.Try | ast.TryStar,
        handler: ast.ExceptHandler,
        tried: Sequence[Item],
        before: dict[str, Value],
        scope: Scope,
    ) -> None:
        """Follow a handler of an exception that may or may not be raised."""
        after, scope.names = scope.names, dict(before)
        # In a loop over data, such an exception may be raised on one rank alone.
        by_data = _is_raised_by_data(handler) and any(one.loop for one in self.recorder.around)
        marks = frozenset({LOCAL}) if by_data else NO_MARKS
        if handler.name:
            scope.names[handler.name] = ANYTHING
        bodies, self._with_bodies = self._with_bodies, []
        with self.recorder.aside() as items:
            with self.recorder.under(handler.lineno, 1, marks, sure=False):
                ended = self._block(handler.body, scope)
        self._with_bodies = bodies
        if ended != "raise":
            self._note_handler(node, handler, items, tried)
        scope.names = after if ended else _joined(after, scope.names)

    def _note_handler(
        self,
        node: ast.Try | ast.TryStar,
        handler: ast.ExceptHandler,
        items: Sequence[Item],
        tried: Sequence[Item],
    ) -> None:
        """Record how an exception on one rank alone would affect the other ranks."""
        skipped = [call for call in calls(tried) if _on_all_ranks(call)]
        made = [call for call in calls(items) if _on_all_ranks(call)]
        raises_at = _may_raise(node, {call.line for call in skipped})
        if raises_at is None or (first_call(items) and len(skipped) == len(made)):
            return
        if made and not skipped:
            about = Risk(raises_at, made[0].op, made[0].line)
            self.recorder.event(Kind.HANDLER_CALLS, handler, about=about)
        elif skipped and not made and any(one.loop for one in self.recorder.around):
            missed = next((call for call in skipped if call.line >= raises_at), None)
            if missed is not None:
                sure = _is_of_python(handler) and not _is_agreed_later(handler, self._code)
                about = Risk(raises_at, missed.op, missed.line, sure=sure)
                self.recorder.event(Kind.HANDLER_SKIPS_CALL, handler, about=about)


_FOLLOW: dict[type[ast.stmt], Callable[[Interpreter, Any, Scope], Ending]] = {
    ast.AnnAssign: Interpreter._assign,
    ast.Assert: Interpreter._assert,
    ast.Assign: Interpreter._assign,
    ast.AsyncFor: Interpreter._for,
    ast.AsyncFunctionDef: Interpreter._define,
    ast.AsyncWith: Interpreter._with,
    ast.AugAssign: Interpreter._augmented_assign,
    ast.Break: Interpreter._break,
    ast.ClassDef: Interpreter._define_class,
    ast.Continue: Interpreter._continue,
    ast.Delete: Interpreter._delete,
    ast.Expr: Interpreter._expression,
    ast.For: Interpreter._for,
    ast.FunctionDef: Interpreter._define,
    ast.If: Interpreter._if,
    ast.Import: Interpreter._import,
    ast.ImportFrom: Interpreter._import_from,
    ast.Match: Interpreter._match,
    ast.Raise: Interpreter._raise,
    ast.Return: Interpreter._return,
    ast.Try: Interpreter._try,
    ast.TryStar: Interpreter._try,
    ast.While: Interpreter._while,
    ast.With: Interpreter._with,
}


def _joined(one: dict[str, Value], other: dict[str, Value]) -> dict[str, Value]:
    """The variables after either of two paths."""
    joined = one | other
    for name, value in one.items():
        if joined[name] is not value:
            joined[name] = join(value, joined[name])
    return joined


def _forget_assigned(loop: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
    """Make the values of variables that a loop assigns unknown; a model stays a model."""
    lasting = (Imported, Function, Class, LibraryObject, Instance)
    for name in assigned_in(loop):
        bound = scope.names.get(name)
        if bound is not None and not isinstance(bound.value, lasting):
            scope.names[name] = Value(UNKNOWN, bound.marks)


def _asks_membership(test: ast.expr) -> bool:
    """Whether a condition tests membership."""
    return any(isinstance(node, (ast.In, ast.NotIn)) for node in ast.walk(test))


def _caught(handler: ast.ExceptHandler) -> list[str]:
    """Names of the exceptions that a handler catches."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [last_name(kind) for kind in kinds]


def _is_raised_by_data(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches an exception that one batch or one file may raise."""
    return any(kind in name for name in _caught(handler) for kind in _RAISED_BY_DATA)


def _is_agreed_later(handler: ast.ExceptHandler, code: ast.AST | None) -> bool:
    """Whether what a handler notes in a variable reaches a collective later in the same code."""
    noted = {
        node.id
        for node in ast.walk(handler)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    below = [
        node
        for node in (ast.walk(code) if code is not None and noted else ())
        if isinstance(node, (ast.Assign, ast.Call)) and node.lineno > (handler.end_lineno or 0)
    ]
    for node in sorted(below, key=lambda node: node.lineno):
        if isinstance(node, ast.Assign) and variables_in(node.value) & noted:
            noted |= {name for target in node.targets for name in variables_in(target)}
        elif called_name(node) in _AGREEING and variables_in(node) & noted:
            return True
    return False


def _is_of_python(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches an exception of Python, and not only some of the program."""
    known = {"", *dir(builtins)}
    return any(name in known or "OutOfMemory" in name for name in _caught(handler))


def _is_raised_alike(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches only exceptions raised on every rank, or by the user."""
    return handler.type is not None and set(_caught(handler)) <= _RAISED_ALIKE


def _on_all_ranks(call: GroupCall) -> bool:
    return call.group is None and call.op != "init_process_group"


def _may_raise(node: ast.Try | ast.TryStar, together: set[int]) -> int | None:
    """The first line in a ``try`` whose call may raise on one rank alone.

    Parameters
    ----------
    together
        Lines that all ranks call together.
    """
    inside = [call for statement in node.body for call in calls_in(statement)]
    raising = {
        call
        for statement in node.body
        for raised in ast.walk(statement)
        if isinstance(raised, ast.Raise)
        for call in calls_in(raised)
    }
    for call in inside:
        library = root_name(call.func) in ("torch", "dist", "time")
        harmless = library or last_name(call.func) in _HARMLESS
        if not harmless and call.lineno not in together and call not in raising:
            return call.lineno
    return None
