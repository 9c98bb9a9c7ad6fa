"""Known ways past an unpickler, tried against those that read what a rank or a dump contains."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

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
    assert type(given).__name__ in ("bytes", "partial"), given


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
