"""Plain data comes back from a rank unchanged; nothing else does."""

from __future__ import annotations

import datetime
import os
import pickle
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ddt_notebook.wire.objects import (
    CannotTravel,
    no_such_variable,
    pack_for_ranks,
    pack_in_rank,
    unpack_from_rank,
    unpack_in_rank,
)


def there_and_back(value: object) -> Any:
    return unpack_from_rank(pack_in_rank(value))


class Calls:
    """Pickles as a call of any function."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.what = function, arguments

    def __reduce__(self) -> Any:
        return self.what


HOSTILE = {
    "posix.system": Calls(os.system, "touch {mark}"),
    "builtins.eval": Calls(eval, "open('{mark}', 'w')"),
    "builtins.exec": Calls(exec, "open('{mark}', 'w')"),
    "builtins.getattr": Calls(getattr, "".__class__, "__mro__"),
    "torch.serialization.load": Calls(torch.load, "{mark}"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: {"loss": [1.0, x]}], ids=["bare", "deep"])
def test_a_hostile_pickle_is_refused_by_name(name: str, wrap: Any, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    hostile = HOSTILE[name]
    arguments = (a.format(mark=mark) if isinstance(a, str) else a for a in hostile.what[1])
    data = pickle.dumps(wrap(Calls(hostile.what[0], *arguments)))
    with pytest.raises(CannotTravel, match=f"^{name.replace('.', '[.]')} is not plain data"):
        unpack_from_rank(data)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "int.__class__"),
        ("numpy", "ndarray.__class__"),
        ("ddt_notebook.wire.objects", "_take_apart"),
        ("ddt_notebook.wire.objects", "pickle.loads"),
        ("ddt_notebook.wire.objects", "unpack_in_rank"),
    ],
)
def test_attributes_of_allowed_names_are_refused(module: str, name: str) -> None:
    data = b"\x80\x04\x8c" + bytes([len(module)]) + module.encode()
    data += b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    with pytest.raises(CannotTravel, match="is not plain data"):
        unpack_from_rank(data)


def test_a_class_of_the_notebook_cannot_be_changed() -> None:
    """The opcode BUILD sets attributes of whatever is on the stack."""
    change = b"N}X\x0b\x00\x00\x00most_commoncbuiltins\nint\ns\x86b."
    before = Counter.most_common
    with pytest.raises(CannotTravel):
        unpack_from_rank(b"\x80\x04ccollections\nCounter\n" + change)
    assert Counter.most_common is before


def test_a_damaged_pickle_is_refused() -> None:
    data = pack_in_rank({"loss": torch.ones(3)})
    for broken in (data[:-5], b"", b"\x80\x05nonsense"):
        with pytest.raises(CannotTravel, match="cannot be read"):
            unpack_from_rank(broken)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_bytes_without_content_are_refused(kind: Any) -> None:
    with pytest.raises(CannotTravel, match="without their content"):
        unpack_from_rank(pickle.dumps(Calls(kind, 2**31)))


def test_a_copy_that_does_not_fit_into_memory_is_refused_with_the_reason() -> None:
    class Large:
        def __reduce__(self) -> Any:
            raise MemoryError  # as Python raises it: without a text

    with pytest.raises(CannotTravel, match="the rank's memory does not hold a copy of it"):
        pack_in_rank(Large())


def test_a_function_of_torch_is_not_accepted_as_a_tensor_type() -> None:
    from ddt_notebook.wire.objects import _tensor, _torch_value

    for hostile in (Calls(_tensor, b"", "save", (0,), False), Calls(_torch_value, "dtype", "save")):
        with pytest.raises(CannotTravel, match="'save' is not a tensor type"):
            unpack_from_rank(pickle.dumps(hostile))


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(3.5),
        torch.tensor(7),
        torch.empty(0, 3),
        torch.arange(6).reshape(2, 3).T,
        torch.tensor([True, False]),
        torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
        torch.tensor([1.5, -2.0], dtype=torch.float16, requires_grad=True),
        torch.tensor([1 + 2j, 3 - 4j]),
        torch.tensor([1 + 2j, 3 - 4j, 0]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.nn.Parameter(torch.ones(2, 2)),
    ],
    ids=lambda t: (
        f"{str(t.dtype).removeprefix('torch.')}-{'x'.join(map(str, t.shape)) or 'scalar'}"
    ),
)
def test_tensors_travel_unchanged(tensor: torch.Tensor) -> None:
    back = there_and_back(tensor)
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.requires_grad == tensor.requires_grad
    assert torch.equal(back, tensor)


def test_a_tensor_can_be_changed_where_it_arrives() -> None:
    back = there_and_back(torch.ones(3))
    back += 1
    assert back.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    "value",
    [
        {"loss": [0.5, (1, None)], 3: {4}, "big": 1 << 80, "z": 1j, "b": b"\x00"},
        OrderedDict(a=deque([1, 2], maxlen=2), b=Counter("aab"), c=defaultdict(list, x=[1])),
        [datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.timedelta(seconds=1)],
        [Decimal("1.50"), Fraction(1, 3), Path("/tmp/x"), range(3), slice(1, 2)],
        [torch.float32, torch.bfloat16, torch.device("cpu")],
        [np.float32(1.5), np.bool_(True), np.datetime64("2026-01-02")],
    ],
)
def test_plain_values_travel_unchanged(value: object) -> None:
    back = there_and_back(value)
    assert back == value
    assert type(back) is type(value)


def test_arrays_travel_unchanged() -> None:
    for array in (
        np.arange(6.0).reshape(2, 3).T,
        np.zeros((0, 3), dtype=np.int8),
        np.array(["a", "bc"]),
        np.array([1, "a", None], dtype=object),
        np.ones(2, dtype=[("a", "i4"), ("b", "f8")]),
    ):
        back = there_and_back(array)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)


def test_a_tensor_in_two_places_is_still_one_object() -> None:
    weight = torch.ones(2)
    back = there_and_back({"a": weight, "b": [weight]})
    assert back["a"] is back["b"][0]


def test_a_state_dict_travels_unchanged() -> None:
    model = torch.nn.Linear(2, 1)
    fresh = torch.nn.Linear(2, 1)
    fresh.load_state_dict(there_and_back(model.state_dict()))
    assert torch.equal(fresh.weight, model.weight)


def test_the_size_of_a_tensor_arrives_as_a_tuple() -> None:
    assert there_and_back(torch.ones(2, 3).size()) == (2, 3)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
        ({"f": len}, "builtins.len"),
        (np.array([len], dtype=object), "builtins.len"),
        ([Calls], "Calls"),
    ],
    ids=["module", "function", "in an array", "class"],
)
def test_packing_in_the_rank_names_objects_that_cannot_travel(value: object, named: str) -> None:
    with pytest.raises(CannotTravel, match=named):
        pack_in_rank(value)


def test_functions_of_the_notebook_go_to_the_ranks() -> None:
    factor = 3
    function: Any = unpack_in_rank(pack_for_ranks("scale", lambda x: factor * x))
    assert function(2) == 6


def test_objects_that_cannot_be_sent_to_the_ranks_are_named() -> None:
    with pytest.raises(
        CannotTravel, match=r"^'guard' \(lock\) cannot be pickled: .*nothing was sent"
    ):
        pack_for_ranks("guard", threading.Lock())


def test_a_missing_name_is_reported() -> None:
    held = {"Loader": Calls, "there": there_and_back, **dict.fromkeys("abcdefghijk", 1), "loss": 2}
    assert no_such_variable("los", held) == (
        "there is no 'los' on this rank; did you mean loss? "
        "its variables: a, b, c, d, e, f, g, h, i, j, k, loss and 2 more"
    )
    assert no_such_variable("zz", {"f": there_and_back, "x": 1}).endswith("; its variables: x, f")
    assert no_such_variable("zz", {}).endswith("; its variables: none")
