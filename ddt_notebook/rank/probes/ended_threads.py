"""Notes which thread of the user an exception has ended, so that a wait for it has a name."""

from __future__ import annotations

import queue
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from types import CellType, CodeType, FunctionType, MethodType, ModuleType, TracebackType
from typing import Any

from ...model import RankError
from ..tracebacks import describe_error
from ..training_thread import CURRENT
from .frames import local_variables

#: What `threading` and `queue` wait in.
_WAITED_FOR = (
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
    queue.Queue,
)
_WAITING_CODE = (threading.__file__, queue.__file__)
#: How far objects are followed from the variables of a thread, and how many are looked at.
_DEPTH, _MOST, _MOST_ITEMS = 3, 5000, 100
_MOST_THREADS = 16


class EndedThreads:
    """The exceptions that have ended threads in this run."""

    def __init__(self) -> None:
        self._ended: deque[tuple[RankError, list[weakref.ref[Any]]]] = deque(maxlen=_MOST_THREADS)

    def begin_run(self) -> None:
        """Begin a cell."""
        self._ended.clear()

    def note(self, args: threading.ExceptHookArgs) -> None:
        """Note an exception that leaves a thread, and what the thread could have released."""
        if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
            known = _known(args.exc_traceback)
            self._ended.append((describe_error(args.exc_value, ""), known))

    def awaited(self) -> RankError | None:
        """What ended the thread for which the recorded thread waits without a time limit.

        None if another thread of the user or of a library lives: it may end the wait. None also
        unless the thread knew the queue or event: what else is to end the wait may still come, as
        from a thread of C++.
        """
        if not self._ended or not (waited := self._waited()):
            return None
        others = (one for one in threading.enumerate() if one.ident != CURRENT.ident)
        if not all(map(_is_own, others)):
            return None
        for error, known in reversed(self._ended.copy()):
            if any(one() is what for one in known for what in waited):
                return error
        return None

    def _waited(self) -> list[object]:
        """What Python waits in on that thread, as `queue.Queue.get` does."""
        frame = CURRENT.frame()
        if frame is None or frame.f_code.co_filename != threading.__file__:
            return []
        if local_variables(frame).get("timeout", 0) not in (None, -1):
            return []
        found = []
        while frame is not None and frame.f_code.co_filename in _WAITING_CODE:
            found.append(local_variables(frame).get("self"))
            frame = frame.f_back
        return [one for one in found if one is not None]


def _known(traceback: TracebackType | None) -> list[weakref.ref[Any]]:
    """What could be waited for among the objects that a thread could reach where it ended."""
    reached: list[object] = []
    while traceback is not None:
        frame = traceback.tb_frame
        reached += local_variables(frame).values()
        if frame.f_code.co_filename != threading.__file__:  # which knows every thread
            reached += _globals(frame.f_code, frame.f_globals)
        traceback = traceback.tb_next
    seen: dict[int, object] = {}  # keeps them, so that no two have the same id
    for _ in range(_DEPTH + 1):
        new = {id(one): one for one in reached if id(one) not in seen}
        seen |= islice(new.items(), max(_MOST - len(seen), 0))
        reached = [one for known in new.values() for one in _within(known)]
    return [weakref.ref(one) for one in seen.values() if isinstance(one, _WAITED_FOR)]


def _within(known: object) -> Iterable[object]:
    """What an object refers to, without calling code of its class."""
    kind = type(known)
    with suppress(Exception):  # another thread may change it
        if isinstance(known, FunctionType):
            cells = [cell.cell_contents for cell in known.__closure__ or () if _is_set(cell)]
            return [*cells, *_globals(known.__code__, known.__globals__)]
        if isinstance(known, MethodType):
            return known.__self__, known.__func__
        if kind is dict:
            return list(islice(known.values(), _MOST_ITEMS))  # type: ignore[attr-defined]
        if kind in (list, tuple, set, frozenset, deque):
            return list(islice(known, _MOST_ITEMS))  # type: ignore[call-overload]
        if not isinstance(known, type | ModuleType):
            return list(islice(object.__getattribute__(known, "__dict__").values(), _MOST_ITEMS))
    return ()


def _globals(code: CodeType, namespace: Mapping[str, object]) -> list[object]:
    return [namespace[name] for name in code.co_names if name in namespace]


def _is_set(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def _is_own(thread: threading.Thread) -> bool:
    """Whether a thread belongs to this package, or to the shell in which cells run."""
    package = type(thread).__module__.partition(".")[0]
    return package == "IPython" or thread.name.startswith("ddt-")


#: The record of this process.
RECORD = EndedThreads()


def install() -> None:
    """Record how threads of this process end."""
    original: Callable[[threading.ExceptHookArgs], object] = threading.excepthook

    def hook(args: threading.ExceptHookArgs) -> None:
        with suppress(Exception):  # it must not reach the user's code
            RECORD.note(args)
        original(args)

    threading.excepthook = hook
