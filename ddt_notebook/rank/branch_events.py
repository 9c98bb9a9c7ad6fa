"""Takes branch events from the interpreter: by ``sys.monitoring``, on Python 3.11 by a trace."""

from __future__ import annotations

import bisect
import dis
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import CodeType, FrameType
from typing import Any

from ..model.expression_guards import ExpressionGuard, Span
from ..model.user_code import is_user_code
from .branch_recorder import BranchRecorder
from .condition_values import guards_in
from .user_signals import let_through

#: From this version on, observing costs so little that it is always on.
ALWAYS_ON = sys.version_info >= (3, 12)
#: Exceptions that are part of a loop's normal end.
_ENDS = (StopIteration, GeneratorExit, StopAsyncIteration)
_JUMPS = ("POP_JUMP", "JUMP_IF", "FOR_ITER", "JUMP_BACKWARD_IF")
#: Instructions that may come before the one that matters: a returned constant is loaded first.
_FILLING = frozenset({"NOP", "NOT_TAKEN", "EXTENDED_ARG", "LOAD_CONST", "POP_TOP", "CACHE"})
#: Those before the first instruction of a part of an expression.
_FILLING_PARTS = _FILLING - {"LOAD_CONST"} | {"COPY", "TO_BOOL", "RESUME"}
#: The instruction with which a context manager decides whether it swallows an exception.
_LEAVES_WITH = "WITH_EXCEPT_START"
#: Size of the instruction of a for loop with its cache; the loop's body begins after it.
_FOR_ITER_BYTES = 4
#: Tool numbers that neither debuggers (0), coverage (1), profilers (2) nor optimizers (5) use.
_FREE_TOOLS = (4, 3)


class BranchEvents:
    """Observes the user's code during runs.

    Parameters
    ----------
    recorder
        Gets the events.
    """

    def __init__(self, recorder: BranchRecorder) -> None:
        self._recorder = recorder
        self._end: Callable[[], None] | None = None
        self._called: Tracer | None = None  # None with ``sys.monitoring``
        self._in_callbacks: Tracer | None = None
        self._handled: tuple[int, int] | None = None  # the exception and the line noted last
        #: Is called when the first callback of a run is observed while other code is not; None if
        #: no run is on.
        self.on_callbacks: Callable[[], None] | None = None

    def start(self, innermost: FrameType | None = None) -> None:
        """Begin to observe; if that is impossible, the recorder's ``unobserved`` is the reason.

        Parameters
        ----------
        innermost
            This frame and those that called it are observed, too, although they run already.
        """
        running = _stack(innermost)
        if ALWAYS_ON:
            self._end = _monitor(self._recorder, running)
        else:
            self._called = _tracer(self._recorder)
            self._end = _trace(self._recorder, running, self._called)

    def follow(self, innermost: FrameType, left: FrameType | None) -> None:
        """Observe the current thread from here on, instead of another one.

        Parameters
        ----------
        innermost
            As in `start`.
        left
            The innermost frame of the other thread.
        """
        if self._end is None or self._called is None or sys.gettrace() is not None:
            return
        for frame in _stack(left):
            frame.f_trace = None
        _trace(self._recorder, _stack(innermost), self._called)

    def begin_callbacks(self) -> bool:
        """Begin to observe the functions that are called from here on, unless all code is.

        Returns
        -------
        bool
            Whether `end_callbacks` has to be called.
        """
        if self.on_callbacks is None or self._end is not None or sys.gettrace() is not None:
            return False
        if not self._recorder.callbacks_only:
            self._recorder.callbacks_only = True
            self._in_callbacks = _tracer(self._recorder)
            self.on_callbacks()
        sys.settrace(self._in_callbacks)
        return True

    def end_callbacks(self) -> None:
        """Stop observing callbacks."""
        if sys.gettrace() is self._in_callbacks:
            sys.settrace(None)

    def note_handled(self, error: BaseException) -> None:
        """Note that the user's code handles an exception, unless all code is observed.

        Parameters
        ----------
        error
            What is being handled; its traceback begins in the function that has caught it.
        """
        level = error.__traceback__
        if level is None or self.on_callbacks is None or self._end is not None:
            return
        frame = level.tb_frame
        here = id(error), frame.f_lineno
        if here == self._handled or threading.get_ident() != self._recorder.thread:
            return
        self._handled = here
        if not _is_users(frame.f_code):
            return
        if not self._recorder.callbacks_only:
            self._recorder.callbacks_only = True
            self._in_callbacks = _tracer(self._recorder)
            self.on_callbacks()
        name = type(error).__name__
        self._recorder.note(
            self._recorder.index_of(frame.f_code, frame.f_lineno, "handled", 0, name)
        )

    def stop(self) -> None:
        """Stop observing; also in a forked child, such as a worker of a DataLoader."""
        self.on_callbacks = None
        if self._end is not None:
            self._end()
            self._end = None


def _stack(innermost: FrameType | None) -> list[FrameType]:
    """A frame and those that called it."""
    found = []
    while innermost is not None:
        found.append(innermost)
        innermost = innermost.f_back
    return found


# -- sys.settrace ----------------------------------------------------------------------------------

Trace = Callable[[FrameType, str, Any], Any]
Tracer = Callable[[FrameType, str, Any], Trace | None]


def _trace(
    recorder: BranchRecorder, running: Sequence[FrameType], called: Tracer
) -> Callable[[], None] | None:
    """Observe by `sys.settrace`, unless the user's debugger or coverage does so already."""
    if sys.gettrace() is not None:
        recorder.unobserved = "another trace function is set"
        return None

    def end() -> None:
        if sys.gettrace() is called:
            sys.settrace(None)
        else:
            recorder.unobserved = "the cell set another trace function"

    for frame in running:
        if frame.f_trace is None:
            frame.f_trace = called(frame, "call", None)
    sys.settrace(called)
    return end


def _tracer(recorder: BranchRecorder) -> Tracer:
    """The trace function that looks at each call."""
    # by id, as in `BranchRecorder`
    traced: dict[int, tuple[_TracedCode | None, CodeType]] = {}

    def called(frame: FrameType, event: str, argument: Any) -> Trace | None:
        if threading.get_ident() != recorder.thread:  # recording has left this thread
            return None
        code = frame.f_code
        try:
            found, _ = traced[id(code)]
        except KeyError:
            found = _TracedCode.of(code) if _is_users(code) else None
            traced[id(code)] = found, code
        if found is not None and found.guards:
            frame.f_trace_opcodes = True
        return _guarded(_in_frame(recorder, found), recorder) if found is not None else None

    return called


@dataclass(frozen=True, slots=True)
class _TracedCode:
    """What the trace function needs to know about a code object.

    Attributes
    ----------
    code
        The code object.
    decisions
        The lines at which the rank can go different ways.
    yields
        Offsets of the instructions at which a generator yields, and a coroutine awaits.
    guards
        For the offset of each jump that decides a condition inside an expression: the line of the
        condition, and whether it held, by the offset of the next instruction. Only code that has
        some is traced instruction by instruction.
    """

    code: CodeType
    decisions: frozenset[int]
    yields: frozenset[int]
    guards: Mapping[int, tuple[int, Mapping[int, bool | None]]]

    @classmethod
    def of(cls, code: CodeType) -> _TracedCode:
        """Read the instructions of a code object."""
        decisions, yields = set(), set()
        guards: dict[int, tuple[int, Mapping[int, bool | None]]] = {}
        resumes = code.co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)
        line = code.co_firstlineno
        before = ""
        _, instructions = _instructions(code)
        for number, instruction in enumerate(instructions):
            positions = instruction.positions
            line = positions.lineno or line if positions is not None else line
            # only an exception reaches the jump of a with statement; it is recorded as handled
            if any(part in instruction.opname for part in _JUMPS) and before != _LEAVES_WITH:
                is_loop = instruction.opname == "FOR_ITER"
                guard = None if is_loop else _guard_of(code, instruction.offset)
                if guard is None:
                    decisions.add(line)
                else:
                    ways = (instructions[number + 1].offset, instruction.argval)
                    held = {to: guard.decided(_goes_on_at(code, to)) for to in ways}
                    guards[instruction.offset] = guard.test.lineno, held
            before = instruction.opname
            if resumes and instruction.opname in ("YIELD_VALUE", "SEND"):
                yields.add(instruction.offset)
        return cls(code, frozenset(decisions), frozenset(yields), guards)


def _guarded(trace: Trace, recorder: BranchRecorder) -> Trace:
    """A trace function that ends the observation if it fails, so that the user's code continues."""

    def guarded(frame: FrameType, event: str, argument: Any) -> Trace | None:
        try:
            trace(frame, event, argument)
        except Exception as error:  # noqa: BLE001  (it would be raised in the user's code)
            recorder.unobserved = f"{type(error).__name__}: {error}"
            sys.settrace(None)
            let_through(error)
            return None
        return guarded

    return guarded


def _in_frame(recorder: BranchRecorder, traced: _TracedCode) -> Trace:
    """The trace function of one frame of the user's code."""
    before = 0
    raising = ""
    code, decisions, yields = traced.code, traced.decisions, traced.yields
    guards = traced.guards
    jumped: int | None = None
    known = recorder.known_in(code)

    def note(frame: FrameType, line: int, kind: Any, to_line: int, error: str = "") -> None:
        key = (line, kind, to_line, error)
        index = known.get(key)
        if index is None:
            index = known[key] = recorder.index_of(code, line, kind, to_line, error)
        if recorder.note(index) and kind in ("branch", "guard"):
            recorder.keep_values(index, frame)

    def local(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal before, raising, jumped
        line = frame.f_lineno
        if event == "opcode":
            if jumped is not None:
                at, ways = guards[jumped]
                held = ways.get(frame.f_lasti)
                if held is not None:
                    note(frame, at, "guard", at if held else 0)
            jumped = frame.f_lasti if frame.f_lasti in guards else None
        elif event == "line":
            if raising:
                note(frame, line, "handled", 0, raising)
                raising = ""
            elif before in decisions:
                note(frame, before, "branch", line)
            before = line
        elif event == "exception":
            if not issubclass(argument[0], _ENDS):
                raising = argument[0].__name__
                note(frame, line, "raised", 0, raising)
        elif event == "return" and not raising and frame.f_lasti not in yields:
            if before in decisions:
                note(frame, before, "branch", line if line != before else 0)
            note(frame, line, "return", 0)

    return local


@functools.cache
def _is_users(code: CodeType) -> bool:
    return is_user_code(code.co_filename)


# -- sys.monitoring --------------------------------------------------------------------------------


def _monitor(recorder: BranchRecorder, running: Sequence[FrameType]) -> Callable[[], None] | None:
    """Observe by `sys.monitoring`, which does not affect debuggers, coverage and profilers."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = next((number for number in _FREE_TOOLS if monitoring.get_tool(number) is None), None)
    if tool is None:
        recorder.unobserved = "other tools use sys.monitoring"
        return None
    monitoring.use_tool_id(tool, "ddt_notebook")
    events = monitoring.events
    handlers = MonitoringHandlers(recorder, monitoring.DISABLE)
    branches = _branch_events(events)
    local = events.PY_RETURN
    for event in branches:
        local |= event
        monitoring.register_callback(tool, event, handlers.branched)
    handlers.watch = lambda code: monitoring.set_local_events(tool, code, local)
    monitoring.register_callback(tool, events.PY_RETURN, handlers.returned)
    monitoring.register_callback(tool, events.PY_START, handlers.started)
    monitoring.register_callback(tool, events.RAISE, handlers.raised)
    monitoring.register_callback(tool, events.RERAISE, handlers.raised)
    monitoring.register_callback(tool, events.EXCEPTION_HANDLED, handlers.handled)
    # these cannot be set for single code objects; the handlers leave other code at once
    raised = events.RAISE | events.RERAISE
    monitoring.set_events(tool, events.PY_START | raised | events.EXCEPTION_HANDLED)
    monitoring.restart_events()
    for frame in running:
        handlers.started(frame.f_code, 0)

    def end() -> None:
        monitoring.set_events(tool, 0)
        for _, code in handlers.watched.values():
            monitoring.set_local_events(tool, code, 0)
        monitoring.free_tool_id(tool)

    return end


def _branch_events(events: Any) -> list[int]:
    """The events of both ways of a branch: one until Python 3.13, two from 3.14 on."""
    if hasattr(events, "BRANCH_LEFT"):
        return [events.BRANCH_LEFT, events.BRANCH_RIGHT]
    return [events.BRANCH]


class MonitoringHandlers:
    """The callbacks of ``sys.monitoring``.

    Parameters
    ----------
    recorder
        Gets the events.
    disable
        The value that a callback returns to get no more events from this place.
    """

    def __init__(self, recorder: BranchRecorder, disable: object) -> None:
        self._recorder = recorder
        self._disable = disable
        self.watch: Callable[[CodeType], None] = lambda code: None
        #: The lines of the instructions of each watched code object, by its id.
        self.watched: dict[int, tuple[dict[int, int], CodeType]] = {}
        #: A conditional jump or a loop was decided.
        self.branched = recorder.noting(self._branch, self._keep_values)
        noted = recorder.noting(self._return)
        #: A function returned.
        self.returned: Callable[[CodeType, int, object], None]
        self.returned = lambda code, offset, value: noted(code, offset, -1)

    def started(self, code: CodeType, offset: int) -> object:
        """Watch a code object of the user from its first call on; ignore all others."""
        if id(code) not in self.watched and _is_users(code):
            self.watched[id(code)] = lines_of(code), code
            self.watch(code)
        return self._disable

    def _branch(self, code: CodeType, offset: int, destination: int) -> int:
        """The index of an outcome; -1 for a part of a condition that does not decide it."""
        lines = self._lines(code)
        is_loop = dis.opname[code.co_code[offset]] == "FOR_ITER"
        guard = None if is_loop else _guard_of(code, offset)
        if guard is not None:
            held = guard.decided(_goes_on_at(code, destination))
            at = guard.test.lineno
            to_line = at if held else 0
            return -1 if held is None else self._recorder.index_of(code, at, "guard", to_line)
        line, to_line = lines.get(offset, 0), lines.get(destination, 0)
        if line == to_line and is_loop:
            # the loop's variable is assigned on the line of the loop, before its body, which may
            # be on that line, too
            body = destination <= offset + _FOR_ITER_BYTES
            end = next(_instructions_from(code, offset)).argval
            to_line = (_next_line(code, destination, line, end) or line) if body else 0
        elif line == to_line:
            decided = _after_jump(code, destination)
            if decided is None:
                return -1
            to_line = lines.get(decided, 0)
        return self._recorder.index_of(code, line, "branch", to_line)

    def _lines(self, code: CodeType) -> dict[int, int]:
        found = self.watched.get(id(code))
        return lines_of(code) if found is None else found[0]

    def _keep_values(self, index: int) -> None:
        # the callback was called by the user's code, and called this
        self._recorder.keep_values(index, sys._getframe(2))

    def _return(self, code: CodeType, offset: int, _: int) -> int:
        return self._recorder.index_of(code, self._lines(code).get(offset, 0), "return")

    def raised(self, code: CodeType, offset: int, error: BaseException) -> object:
        """An exception was raised in a frame, or went through it."""
        if id(code) in self.watched and not isinstance(error, _ENDS):
            self._note(code, offset, "raised", type(error).__name__)
        return None

    def handled(self, code: CodeType, offset: int, error: BaseException) -> object:
        """An exception was caught in a frame."""
        if id(code) in self.watched and not isinstance(error, _ENDS):
            self._note(code, offset, "handled", type(error).__name__)
        return None

    def _note(self, code: CodeType, offset: int, kind: Any, error: str = "") -> None:
        if threading.get_ident() != self._recorder.thread:
            return
        known = self._recorder.known_in(code)
        key = (offset, kind, error)
        index = known.get(key)
        if index is None:
            # the first instruction of a handler has no line of its own
            lines = self._lines(code)
            line = _next_line(code, offset) if kind == "handled" else lines.get(offset, 0)
            index = known[key] = self._recorder.index_of(code, line, kind, 0, error)
        self._recorder.note(index)


def lines_of(code: CodeType) -> dict[int, int]:
    """The line of each instruction by its offset; instructions without a line get the one before.

    An instruction such as the end of a loop has no line of its own.
    """
    found = {}
    last = code.co_firstlineno
    for start, end, line in code.co_lines():
        last = line or last
        for offset in range(start, end, 2):
            found[offset] = last
    return found


@functools.lru_cache(maxsize=4)  # a function's branches are mostly met one after another
def _instructions(code: CodeType) -> tuple[list[int], list[dis.Instruction]]:
    """The instructions of a code object, after their offsets."""
    found = list(dis.get_instructions(code))
    return [one.offset for one in found], found


def _instructions_from(code: CodeType, offset: int) -> Iterator[dis.Instruction]:
    offsets, found = _instructions(code)
    return itertools.islice(found, bisect.bisect_left(offsets, offset), None)


def _after_jump(code: CodeType, destination: int) -> int | None:
    """The destination of a branch to a jump or a return on its own line; -1 for a return.

    So does the end of an ``if`` that is last in a loop or in a function. None for other
    instructions: the next part of the same condition.
    """
    for instruction in _instructions_from(code, destination):
        if instruction.opname in _FILLING:
            continue
        if instruction.opname.startswith("JUMP_"):
            return int(instruction.argval)
        return -1 if instruction.opname.startswith("RETURN_") else None
    return None


def _guard_of(code: CodeType, offset: int) -> ExpressionGuard | None:
    """The innermost condition inside an expression that a jump decides."""
    if not guards_in(code.co_filename):
        return None
    at = _span(*next(itertools.islice(code.co_positions(), offset // 2, None)))
    if at is None:
        return None
    found = [guard for guard in guards_in(code.co_filename).get(at[0][0], ()) if guard.tests_at(at)]
    return found[-1] if found else None  # those outside come first


def _goes_on_at(code: CodeType, offset: int) -> Span | None:
    """The place of the first instruction of a part; None for a jump back or a return."""
    for instruction in _instructions_from(code, offset):
        if instruction.opname in _FILLING_PARTS:
            continue
        if instruction.opname.startswith(("JUMP_BACKWARD", "FOR_ITER")):
            return None
        at = instruction.positions
        found = None if at is None else _span(*at)
        if found is not None:
            return found
    return None


def _span(
    line: int | None, end_line: int | None, column: int | None, end_column: int | None
) -> Span | None:
    if line is None or end_line is None:
        return None
    return (line, column or 0), (end_line, end_column or 0)


def _next_line(code: CodeType, offset: int, after: int = 0, until: int = sys.maxsize) -> int:
    """The first line of the instructions between offsets that is not ``after``; 0 for none."""
    lines = (line for at, end, line in code.co_lines() if end > offset and at < until)
    return next((line for line in lines if line and line != after), 0)
