"""Known ways past an unpickler, tried against those that read what a rank or a dump contains."""

from __future__ import annotations

import pickle
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ddt_notebook.model.flight import unpickled
from ddt_notebook.wire import objects
from ddt_notebook.wire.objects import CannotTravel, pack_in_rank, unpack_from_rank

#: Functions that run code or touch files, of which scanners of pickles have missed some.
FUNCTIONS = """
os system | posix system | subprocess call | builtins eval | builtins exec | builtins compile
builtins __import__ | builtins open | builtins getattr | builtins map | importlib import_module
runpy run_path | pty spawn | timeit timeit | cProfile run | pdb run | code interact | pickle loads
_pickle loads | marshal loads | shelve open | functools partial | functools reduce
operator attrgetter | operator methodcaller | types FunctionType | types CodeType | ctypes CDLL
copyreg _reconstructor | shutil rmtree | pathlib Path.write_text | linecache updatecache
pydoc pipepager | webbrowser open | logging.config fileConfig | multiprocessing.util spawnv_passfds
numpy load | numpy fromfile | numpy.testing._private.utils runstring
numpy.f2py.crackfortran param_eval | numpy.core.multiarray frombuffer | torch load | torch.hub load
torch.jit load | torch.storage _load_from_bytes | torch._utils _rebuild_tensor_v2
torch.utils.collect_env run | torch.serialization load | collections namedtuple
ddt_notebook.wire.objects pickle.loads | ddt_notebook.wire.objects unpack_in_rank
ddt_notebook.wire.objects _tensor.__globals__ | datetime sys.modules | decimal sys.modules
collections _sys.modules | builtins str.format | builtins dict.__class__ | __main__ pwn
""".replace("\n", "|").split("|")
PAIRS = [tuple(pair.split()) for pair in FUNCTIONS if pair.strip()]


def called(module: str, name: str, mark: str) -> dict[str, bytes]:
    """A call of a function with a path or a statement, written with each opcode that can call."""
    statement = f"open({mark!r}, 'w')".encode()
    globals_ = f"c{module}\n{name}\n".encode()
    text = b"X" + len(statement).to_bytes(4, "little") + statement
    looked_up = b"".join(b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name))
    return {
        "GLOBAL and REDUCE": globals_ + text + b"\x85R.",
        "STACK_GLOBAL": b"\x80\x04" + looked_up + b"\x93" + text + b"\x85R.",
        "INST": b"(" + text + f"i{module}\n{name}\n.".encode(),
        "OBJ": b"(" + globals_ + text + b"o.",
        "NEWOBJ": b"\x80\x02" + globals_ + text + b"\x85\x81.",
        "NEWOBJ_EX": b"\x80\x04" + globals_ + text + b"\x85}\x92.",
        "below what is thrown away": globals_ + text + b"\x85R0N.",
        "after a first pickle": b"N." + globals_ + text + b"\x85R.",
    }


@pytest.mark.parametrize("read", [unpack_from_rank, unpickled], ids=["pull", "dumps"])
def test_no_function_is_called(read: Callable[[bytes], object], tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    for module, name in PAIRS:
        for how, data in called(module, name, str(mark)).items():
            if how == "after a first pickle":  # of which only the first is read
                assert read(data) is None
                continue
            with pytest.raises(Exception, match=r"plain data|names|cannot be read") as refused:
                read(data)
            assert type(refused.value).__name__ in ("CannotTravel", "UnpicklingError"), (name, how)
    assert not mark.exists()


#: What does not name a function: extension codes, persistent ids, state for what is allowed.
STREAMS = {
    "an extension code": b"\x80\x02\x82\x01.",
    "a persistent id": b"Pos.system\n.",
    "a persistent id from the stack": b"\x80\x02X\x02\x00\x00\x00idQ.",
    "a buffer from outside": b"\x80\x05\x97.",
    "attributes of a function": (
        b"cddt_notebook.wire.objects\n_tensor\n}X\x08\x00\x00\x00__code__Nsb."
    ),
    "attributes of a class": b"cdatetime\ndate\n}X\x07\x00\x00\x00__new__Nsb.",
    "a memo that does not exist": b"g7\n.",
    "a frame beyond the end": b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    "a text beyond the end": b"\x8d" + (1 << 60).to_bytes(8, "little") + b"x.",
    "a number that is none": b"Ios.system\n.",
    "an empty stack": b"R.",
    "a type of numpy with a pickle inside": (
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(S'O8'\nI0\nI1\ntRS'cos\\nsystem\\n.'\ntR."
    ),
}


@pytest.mark.parametrize("read", [unpack_from_rank, unpickled], ids=["pull", "dumps"])
@pytest.mark.parametrize("what", STREAMS)
def test_a_stream_of_other_opcodes_gives_plain_data_or_an_error(
    read: Callable[[bytes], object], what: str
) -> None:
    try:
        given = read(STREAMS[what])
    except (ValueError, pickle.UnpicklingError, EOFError, IndexError, KeyError):
        return
    assert type(given) is bytes, given


def named(module: str, name: str) -> bytes:
    """The opcodes that put a class or function on the stack."""
    words = b"".join(b"\x8c" + bytes([len(word)]) + word.encode() for word in (module, name))
    return words + b"\x93"


def number(value: int) -> bytes:
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def call(module: str, name: str, *arguments: bytes) -> bytes:
    return named(module, name) + b"(" + b"".join(arguments) + b"tR"


ENDLESS = call("builtins", "range", number(10**10))
LENGTH = (1 << 36).to_bytes(8, "little")
#: A million bytes in the memo, to be copied by what refers to them; each copy has 20 bytes here.
MILLION = b"B" + (10**6).to_bytes(4, "little") + bytes(10**6) + b"\x940"
TENSOR = named("ddt_notebook.wire.objects", "_tensor") + b"\x940"
COPY = b"h\x01(h\x00\x8c\x05uint8J@B\x0f\x00\x85\x89tR"
DEEP = 200_000
SHARED = b"2\x86" * 60  # a pair of the same two objects, of which each is such a pair
#: Short pickles of what would fill the memory, take years, or overflow the stack.
BOMBS = {
    **{
        f"{name} of a range": call(module, name, ENDLESS)
        for module, name in (
            *(("builtins", name) for name in ("list", "set", "frozenset", "tuple", "str", "bytes")),
            *(("collections", name) for name in ("deque", "Counter", "OrderedDict")),
        )
    },
    "bytes without content": b"\x96" + LENGTH,
    "text without content": b"\x8d" + LENGTH,
    "a frame without content": b"\x95" + LENGTH,
    "a place in the memo": b"Nr\x00\x00\x00\x7f",
    "a place in the memo, as text": b"Np2000000000\n",
    "an array of objects": call(
        "numpy", "ndarray", number(10**10) + b"\x85", call("numpy", "dtype", text("O"))
    ),
    "a scalar of 2 GB": call(
        "numpy.core.multiarray", "scalar", call("numpy", "dtype", text("V2000000000"), b"\x89\x88")
    ),
    "a number of years": call("builtins", "int", call("decimal", "Decimal", text("1e999999999"))),
    "a fraction of years": call("fractions", "Fraction", text("1e999999999")),
    "a tensor in many copies": MILLION + TENSOR + b"](" + COPY * 1000 + b"e",
    "a key as deep as the stack": b"}N" + b"\x85" * DEEP + b"Ns",
    "a key of shared parts": b"}N" + SHARED + b"Ns",
    "a member as deep as the stack": b"(N" + b"\x85" * DEEP + b"\x91",
    "slices as deep as the stack": (
        named("builtins", "slice") + b"\x940" + b"h\x00" * DEEP + b"N" + b"\x85R" * DEEP
    ),
    "defaultdicts as deep as the stack": (
        named("collections", "defaultdict") + b"\x940" + b"h\x00)RN" * DEEP + b"N" + b"s" * DEEP
    ),
    "arrays as deep as the stack": b"0".join(
        (
            named("numpy.core.multiarray", "_reconstruct") + b"\x94",
            named("numpy", "ndarray") + b"\x94",
            call("numpy", "dtype", text("O"), b"\x89\x88") + b"\x94",
            b"h\x00(h\x01K\x00\x85C\x01btR(K\x01K\x01\x85h\x02\x89]" * 5000
            + (b"N" + b"atb" * 5000),
        )
    ),
}


@pytest.fixture
def limited_memory() -> Iterator[None]:
    """At most 500 MB more than now, so that a bomb fails a test and does not fill the machine."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    now = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (now + (500 << 20), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_DATA, before)


@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory as Linux does")
@pytest.mark.parametrize("read", [unpack_from_rank, unpickled], ids=["pull", "dumps"])
def test_a_small_pickle_does_not_become_large(
    read: Callable[[bytes], object], limited_memory: None
) -> None:
    for what, stream in BOMBS.items():
        if read is unpickled and what.startswith("a place in the memo"):
            assert read(b"\x80\x05" + stream + b".") is None, what
            continue
        with pytest.raises((CannotTravel, pickle.UnpicklingError)) as refused:
            read(b"\x80\x05" + stream + b".")
        assert "too little memory" not in str(refused.value), what
        assert "MemoryError" not in str(refused.value), what


#: Types of numpy that take plain bytes for objects, or read beyond the bytes of an item.
DAMAGED = {
    "an object in bytes": (("a",), {"a": (np.dtype("O"), 0)}, 8),
    "a field beyond the item": (("a",), {"a": (np.dtype("f8"), 4096)}, 8),
    "a field before the item": (("a",), {"a": (np.dtype("f8"), -64)}, 8),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_type_of_numpy_that_reads_other_memory_is_refused(what: str) -> None:
    names, fields, size = DAMAGED[what]

    class Damaged:
        def __reduce__(self) -> Any:
            state = (3, "|", None, names, fields, size, 1, 0)
            return np.dtype, (f"V{size}", False, True), state

    with pytest.raises(CannotTravel, match=r"damaged numpy type|cannot be read"):
        unpack_from_rank(pickle.dumps(Damaged(), 5))


def test_a_stream_cannot_change_what_it_names() -> None:
    defaults = objects._tensor.__defaults__
    changed = b"X\x0c\x00\x00\x00__defaults__(I7\nts"
    stream = b"cddt_notebook.wire.objects\n_tensor\nN}" + changed + b"\x86b."
    with suppress(CannotTravel):
        unpack_from_rank(stream)
    assert objects._tensor.__defaults__ is defaults
    other = b"ccollections\nCounter\n(cbuiltins\nint\n)}Ntb."
    with suppress(CannotTravel):
        unpack_from_rank(other)
    assert unpack_from_rank(pack_in_rank(Counter("aab"))) == Counter("aab")
