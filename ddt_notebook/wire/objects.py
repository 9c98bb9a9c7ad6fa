"""Pickles objects that travel between the notebook and its ranks.

Objects for the ranks are pickled with cloudpickle, which includes functions and classes of the
notebook. From a rank, the notebook accepts plain data only: numbers, text, containers, dates, numpy
arrays and tensors. It reads the data with an unpickler that allows no other class, so a rank can
neither make the notebook run code nor fill its memory.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from types import FunctionType
from typing import Any

from ddt_notebook.spelling import similar_names

from .plain_unpickler import PLAIN, CannotTravel, Check, Named, PlainUnpickler, refuse_others, text

#: How many names of variables an error message lists.
_NAMES_LISTED = 12


def no_such_variable(name: str, variables: Mapping[str, object]) -> str:
    """The error message for a variable that a rank does not have.

    Parameters
    ----------
    variables
        The variables that it has; classes and functions, which cannot be sent, are listed last.
    """
    near = similar_names(name, variables)
    hint = f"did you mean {near[0]}? " if near else ""
    names = sorted(variables, key=lambda known: isinstance(variables[known], (type, FunctionType)))
    more = len(names) - _NAMES_LISTED
    rest = f" and {more} more" if more > 0 else ""
    known = ", ".join(names[:_NAMES_LISTED]) or "none"
    return f"there is no {name!r} on this rank; {hint}its variables: {known}{rest}"


def pack_for_ranks(name: str, value: object) -> bytes:
    """Pickle an object of the notebook.

    Raises
    ------
    CannotTravel
        If it cannot be pickled; the text names the variable.
    """
    import cloudpickle

    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:  # any class may fail in its own way
        raise CannotTravel(
            f"{name!r} ({type(value).__name__}) cannot be pickled: {error}; nothing was sent"
        ) from error


def unpack_in_rank(data: bytes) -> object:
    """The inverse of `pack_for_ranks`; ranks trust the user of the notebook."""
    return pickle.loads(data)


def pack_in_rank(value: object) -> bytes:
    """Pickle plain data of a rank; raise `CannotTravel` with the type that is not plain."""
    buffer = io.BytesIO()
    try:
        _PlainPickler(buffer, protocol=5).dump(value)
        _Names(buffer).check()
    except CannotTravel:
        raise
    except MemoryError as error:
        raise CannotTravel("the rank's memory does not hold a copy of it") from error
    except Exception as error:  # any class may fail in its own way
        raise CannotTravel(str(error) or type(error).__name__) from error
    return buffer.getvalue()


def unpack_from_rank(data: bytes) -> object:
    """Read what a rank sent; raise `CannotTravel` for anything that is not plain data."""
    try:
        return PlainUnpickler(data, _ADDED).load()
    except CannotTravel:
        raise
    except KeyError as error:
        raise CannotTravel(f"what the rank sent cannot be read: no opcode {error}") from error
    except MemoryError as error:
        raise CannotTravel("this process has too little memory for what the rank sent") from error
    except Exception as error:  # a damaged stream can fail anywhere
        raise CannotTravel(f"what the rank sent cannot be read: {error}") from error


class _PlainPickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        kind = type(value)
        if kind.__module__.split(".")[0] != "torch":
            return NotImplemented
        import torch

        if isinstance(value, torch.Tensor):
            return _tensor, _take_apart(value)
        if isinstance(value, (torch.dtype, torch.device)):
            return _torch_value, (kind.__name__, str(value).removeprefix("torch."))
        if isinstance(value, torch.Size):
            return tuple, (tuple(value),)
        return NotImplemented


def _take_apart(tensor: Any) -> tuple[bytes, str, tuple[int, ...], bool]:
    import torch

    plain = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    flat = plain.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
    data = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    name = str(plain.dtype).removeprefix("torch.")
    return data, name, tuple(plain.shape), bool(tensor.requires_grad)


def _tensor(data: bytes, dtype: str, shape: tuple[int, ...], requires_grad: bool) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not isinstance(kind, torch.dtype):
        raise CannotTravel(f"{dtype!r} is not a tensor type")
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    return flat.reshape(shape).requires_grad_(requires_grad)


def _torch_value(kind: str, text: str) -> Any:
    import torch

    if kind == "device":
        return torch.device(text)
    value = getattr(torch, text)
    if not isinstance(value, torch.dtype):
        raise CannotTravel(f"{text!r} is not a tensor type")
    return value


class _Names(pickle.Unpickler):
    """Finds what a pickle of this rank names; it is faster than that of the notebook."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self._file = file

    def check(self) -> None:
        """Raise `CannotTravel` if it names what is not plain."""
        self._file.seek(0)
        self.load()

    def find_class(self, module: str, name: str) -> Any:
        """A class or function; tensors are not made."""
        refuse_others(module, name, PLAIN.keys() | _ADDED.keys())
        return _nothing if (module, name) in _ADDED else super().find_class(module, name)


def _nothing(*_: object) -> None:
    """Stands for what makes a tensor."""


def _of_a_tensor(*arguments: Any) -> int:
    data, dtype, shape, _ = arguments
    if type(data) is not bytes or type(dtype) is not str or type(shape) is not tuple:
        raise CannotTravel("it is a damaged tensor")
    return 1000 + len(data)


_ADDED: dict[Named, Check] = {
    (__name__, "_tensor"): _of_a_tensor,
    (__name__, "_torch_value"): text,
}
