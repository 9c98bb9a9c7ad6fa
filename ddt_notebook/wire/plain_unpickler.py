"""Reads a pickle of plain data that a stranger may have made.

It names no class or function but those listed, calls them only with the arguments that they have
when plain data is pickled, and takes no more memory than a small multiple of its length.
"""

from __future__ import annotations

import collections
import datetime
import io
import math
import pickle
import struct
import sys
from collections.abc import Callable, Container, Iterable, Mapping
from importlib import import_module
from typing import Any, ClassVar, NoReturn

from ddt_notebook.model.errors import DdtError

#: What is made beside the content itself may have so many bytes, and this multiple of the content.
_SPARE, _TIMES = 64 << 20, 4
#: A key may consist of so many parts: Python hashes all of them, each time, without a limit.
_PARTS_OF_A_KEY = 100_000
_DEPTH_OF_A_KEY = 100
#: Python frees these recursively if they contain each other, which takes a stack without a limit.
_MOST_DEFAULTDICTS, _MOST_ARRAYS_OF_OBJECTS = 20_000, 500
#: Reducing a fraction of longer numbers would take minutes.
_BITS = 1 << 16
#: What `pickle.Pickler` writes in protocol 5. Others could claim a memo of any size.
_OPCODES = frozenset(
    b"".join(
        getattr(pickle, name)
        for name in (
            *("PROTO", "FRAME", "STOP", "MARK", "POP", "POP_MARK", "MEMOIZE", "BINGET"),
            *("LONG_BINGET", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2"),
            *("LONG1", "LONG4", "BINFLOAT", "SHORT_BINBYTES", "BINBYTES", "BINBYTES8"),
            *("BYTEARRAY8", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "EMPTY_TUPLE"),
            *("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "APPEND", "APPENDS"),
            *("EMPTY_DICT", "SETITEM", "SETITEMS", "EMPTY_SET", "ADDITEMS", "FROZENSET"),
            *("STACK_GLOBAL", "REDUCE", "BUILD"),
        )
    )
)
#: These have no parts, and their size is that of their content.
_FLAT = frozenset({str, bytes, int, float, bool, complex, type(None)})


class CannotTravel(DdtError, ValueError):
    """The object cannot be sent from a rank to the notebook, or back."""


#: Checks the arguments of a call, and returns how many bytes its result may have beside them.
Check = Callable[..., int]
#: The module and the name of a class or function.
Named = tuple[str, str]


class PlainUnpickler(pickle._Unpickler):
    """Reads plain data: numbers, text, containers, dates, numpy arrays, and what is added.

    It is the standard library's unpickler in Python, as that in C calls what it finds by itself.

    Parameters
    ----------
    data
        The pickle.
    added
        What it may name in addition to `PLAIN`, with what checks the arguments.
    """

    def __init__(self, data: bytes, added: Mapping[Named, Check]) -> None:
        super().__init__(io.BytesIO(data))
        self._named = {**PLAIN, **added}
        self._check_of: dict[int, Check] = {}
        self._left = _SPARE + _TIMES * len(data)
        self._defaultdicts = self._arrays = 0

    def find_class(self, module: str, name: str) -> Any:
        """The class or function of this name, if it is plain."""
        refuse_others(module, name, self._named)
        found = getattr(import_module(module), name)
        self._check_of[id(found)] = self._named[module, name]
        return found

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CannotTravel("what the rank sent is many times larger than its pickle")

    def _count(self, made: object) -> None:
        self._defaultdicts += isinstance(made, collections.defaultdict)
        self._arrays += getattr(getattr(made, "dtype", None), "hasobject", False)
        if self._defaultdicts > _MOST_DEFAULTDICTS or self._arrays > _MOST_ARRAYS_OF_OBJECTS:
            raise CannotTravel(
                f"it has more than {_MOST_DEFAULTDICTS} defaultdicts or {_MOST_ARRAYS_OF_OBJECTS} "
                "arrays of objects"
            )

    def load_reduce(self) -> None:
        """Call a function that was named, if the arguments are those of plain data."""
        arguments, function = self.stack.pop(), self.stack.pop()
        check = self._check_of.get(id(function))
        if check is None or type(arguments) is not tuple:
            raise CannotTravel(f"it calls an object of type {type(function).__name__}")
        self._charge(check(*arguments))
        made = function(*arguments)
        self._count(made)
        self.stack.append(made)

    def load_build(self) -> None:
        """Set the state of an array or its type, or the attributes of an ordered dictionary."""
        state, made = self.stack.pop(), self.stack[-1]
        kind = type(made)
        if kind is collections.OrderedDict and type(state) is dict:  # as of a module's state
            vars(made).update(state)
            return
        if kind.__module__.partition(".")[0] != "numpy" or type(state) is not tuple:
            raise CannotTravel(f"it sets the state of an object of type {kind.__name__}")
        self._charge(sum(len(part) for part in state if type(part) in (bytes, str, list)))
        made.__setstate__(state)
        _check_type(getattr(made, "dtype", made))
        self._count(made)

    def load_append(self) -> None:
        """Append an item to a list."""
        self._extend([self.stack.pop()])

    def load_appends(self) -> None:
        """Append items to a list."""
        self._extend(self.pop_mark())

    def _extend(self, items: list[object]) -> None:
        if type(self.stack[-1]) not in (list, collections.deque):
            raise CannotTravel("it appends to what is no list")
        self.stack[-1].extend(items)

    def load_setitem(self) -> None:
        """Set an item of a dictionary."""
        value, key = self.stack.pop(), self.stack.pop()
        self._update([key, value])

    def load_setitems(self) -> None:
        """Set items of a dictionary."""
        self._update(self.pop_mark())

    def _update(self, items: list[Any]) -> None:
        if not isinstance(self.stack[-1], dict):
            raise CannotTravel("it sets items of what is no dictionary")
        _check_keys(items[::2])
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.stack[-1][key] = value

    def load_additems(self) -> None:
        """Add items to a set."""
        items = self.pop_mark()
        if type(self.stack[-1]) is not set:
            raise CannotTravel("it adds items to what is no set")
        _check_keys(items)
        self.stack[-1].update(items)

    def load_frozenset(self) -> None:
        """Make a frozen set."""
        items = self.pop_mark()
        _check_keys(items)
        self.stack.append(frozenset(items))

    def load_bytearray8(self) -> None:
        """Read bytes; the original makes room for as many as are claimed."""
        (size,) = struct.unpack("<Q", self.read(8))
        self.stack.append(bytearray(self.read(min(size, sys.maxsize))))

    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        **{code: load for code, load in pickle._Unpickler.dispatch.items() if code in _OPCODES},
        pickle.REDUCE[0]: load_reduce,
        pickle.BUILD[0]: load_build,
        pickle.APPEND[0]: load_append,
        pickle.APPENDS[0]: load_appends,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.ADDITEMS[0]: load_additems,
        pickle.FROZENSET[0]: load_frozenset,
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }


def refuse_others(module: str, name: str, named: Container[Named]) -> None:
    """Raise `CannotTravel` for a class or function that is not among these."""
    if (module, name) not in named:
        raise CannotTravel(
            f"{module}.{name} is not plain data (numbers, text, containers, arrays, tensors): "
            "convert it in the rank first, for instance with state_dict(), .tolist() or str()"
        )


def _check_keys(keys: Iterable[object]) -> None:
    """Refuse keys whose hash would take a stack or a time without bound."""
    for key in keys:
        if type(key) in _FLAT:
            continue
        parts, seen = [(key, 0)], 0
        while parts:
            part, depth = parts.pop()
            seen += 1
            if depth > _DEPTH_OF_A_KEY or seen > _PARTS_OF_A_KEY or type(part) is slice:
                raise CannotTravel("it has a key that is nested too deeply")
            if isinstance(part, tuple):
                parts.extend((inner, depth + 1) for inner in part)


def _check_type(kind: Any) -> None:
    """Refuse a numpy type that would take plain bytes for objects, or reads beyond its items."""
    inner = [(one[0], one[1]) for one in (kind.fields or {}).values()]
    if kind.subdtype is not None:
        inner.append((kind.base, 0))
    for one, offset in inner:
        beyond = offset < 0 or offset + one.itemsize > kind.itemsize
        if beyond or (one.hasobject and not kind.hasobject):
            raise CannotTravel("it has a damaged numpy type")
    if kind.itemsize < 0 or (kind.subdtype is not None and not _fits(kind)):
        raise CannotTravel("it has a damaged numpy type")


def _fits(kind: Any) -> bool:
    return bool(kind.itemsize == math.prod(kind.shape, start=kind.base.itemsize))


def _refuse(*_: object) -> NoReturn:
    raise CannotTravel("numbers, text, bytes and containers without their content are not plain")


def _nothing(*arguments: object) -> int:
    return _refuse() if arguments else 100


def _flat(*arguments: Any) -> int:
    """Numbers, text and times."""
    if any(type(one) not in _FLAT and not isinstance(one, _TIMES_TYPES) for one in arguments):
        _refuse()
    return 100 + sum(len(one) for one in arguments if isinstance(one, (str, bytes)))


def text(*arguments: Any) -> int:
    """Check that all arguments are text."""
    return _flat(*arguments) if all(type(one) is str for one in arguments) else _refuse()


def _one_tuple(*arguments: object) -> int:
    return 0 if len(arguments) == 1 and type(arguments[0]) is tuple else _refuse()


def _factory(*arguments: object) -> int:
    plain = all(one is None or isinstance(one, type) for one in arguments)
    return 250 if plain and len(arguments) < 2 else _refuse()


def _of_a_deque(*arguments: Any) -> int:
    return 700 + _flat(*arguments[1:]) if arguments[:1] in ((), ((),)) else _refuse()


def _of_a_counter(*arguments: Any) -> int:
    if len(arguments) != 1 or type(arguments[0]) is not dict:
        _refuse()
    return 100 * (1 + len(arguments[0]))


def _of_a_fraction(*arguments: Any) -> int:
    if any(type(one) is not int or one.bit_length() > _BITS for one in arguments):
        _refuse()
    return 2 * _BITS // 8


def _of_a_numpy_type(*arguments: Any) -> int:
    return (
        _flat(*arguments) if arguments[1:] == (False, True) else _refuse()
    )  # never one of numpy's


def _of_an_empty_array(*arguments: Any) -> int:
    kind, shape, _ = arguments
    return 200 if getattr(kind, "__name__", "") == "ndarray" and shape == (0,) else _refuse()


def _of_a_scalar(*arguments: Any) -> int:
    kind, content = arguments
    return 200 if type(content) is bytes and len(content) == kind.itemsize else _refuse()


def _of_a_buffer(*arguments: Any) -> int:
    return 200 if type(arguments[0]) in (bytes, bytearray) else _refuse()


_TIMES_TYPES = (datetime.tzinfo, datetime.timedelta)
#: The classes and functions that plain data names.
PLAIN: dict[Named, Check] = {
    **{
        ("builtins", name): _refuse
        for name in (
            *("set", "frozenset", "int", "float", "bool", "str", "list", "dict"),
            *("bytes", "bytearray"),
        )
    },
    **{("builtins", name): _flat for name in ("complex", "slice", "range")},
    ("builtins", "tuple"): _one_tuple,
    ("collections", "OrderedDict"): _nothing,
    ("collections", "defaultdict"): _factory,
    ("collections", "deque"): _of_a_deque,
    ("collections", "Counter"): _of_a_counter,
    **{("datetime", name): _flat for name in ("date", "time", "datetime", "timedelta", "timezone")},
    ("decimal", "Decimal"): text,
    ("fractions", "Fraction"): _of_a_fraction,
    ("pathlib", "PosixPath"): text,
    ("pathlib", "PurePosixPath"): text,
    ("numpy", "dtype"): _of_a_numpy_type,
    ("numpy", "ndarray"): _refuse,
    **{
        (f"numpy.{core}.multiarray", name): check
        for core in ("core", "_core")
        for name, check in (("_reconstruct", _of_an_empty_array), ("scalar", _of_a_scalar))
    },
    ("numpy._core.numeric", "_frombuffer"): _of_a_buffer,
}
