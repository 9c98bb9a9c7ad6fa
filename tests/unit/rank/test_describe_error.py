"""What a rank notes about an exception."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch.utils.data import DataLoader

from ddt_notebook.model import Position
from ddt_notebook.rank import tracebacks
from ddt_notebook.rank.tracebacks import describe_error, hide_own_frames


def _undefined() -> None:
    exec("print(epochs)", {})


def _noted_but_not_in_the_text() -> None:
    def inner() -> None:
        raise NameError("epochs: my own text", name="epochs")

    inner()


def _without_a_value_yet() -> None:
    def inner() -> object:
        return epochs

    inner()
    epochs = 1


def _raised_by_hand() -> None:
    raise NameError("name 'epochs' is not defined")


def _of_another_class() -> None:
    raise ValueError("name 'epochs' is not defined")


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        (_undefined, "epochs"),
        (_noted_but_not_in_the_text, "epochs"),
        (_without_a_value_yet, ""),
        (_raised_by_hand, "epochs"),
        (_of_another_class, ""),
    ],
)
def test_the_name_that_is_not_defined(cell: object, name: str) -> None:
    assert callable(cell)
    with pytest.raises((NameError, ValueError)) as raised:
        cell()
    assert describe_error(raised.value, "").undefined_name == name


def _raised_later() -> None:
    names: dict[str, Any] = {}
    exec(compile("def recorded(call):\n    return call()", tracebacks.__file__, "exec"), names)
    try:
        names["recorded"](lambda: 1 / 0)
    except ZeroDivisionError as error:
        raise ValueError("later") from error


def test_frames_of_the_recorder_are_hidden_also_in_the_cause() -> None:
    with pytest.raises(ValueError, match="later") as raised:
        _raised_later()
    assert "in recorded" in "".join(traceback.format_exception(raised.value))
    hide_own_frames(raised.value)
    text = "".join(traceback.format_exception(raised.value))
    assert "in recorded" not in text
    assert "in <lambda>" in text
    assert "ValueError: later" in text


def test_hiding_frames_ends_although_exceptions_follow_each_other() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__context__, second.__context__ = second, first
    hide_own_frames(first)


def test_an_error_in_a_callback_of_cpp_is_where_the_callback_raised(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n" * 6 + "    raise ValueError(bucket)\n")
    listed = f"{script}(7): hook\n  {torch.__file__}(86): run_backward\n  {script}(3): <module>\n"
    error = RuntimeError(f"ValueError: no\n\nAt:\n  {listed}")
    described = describe_error(error, "")
    assert described.message == "ValueError: no"
    assert described.where is not None
    assert (described.where.line, described.where.function) == (7, "hook")
    assert [frame.line for frame in described.frames] == [3, 86, 7]
    library = RuntimeError(f"no\n\nAt:\n  {torch.__file__}(86): run_backward\n")
    assert describe_error(library, "").frames == ()


def test_the_line_at_which_making_a_graph_failed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("\n" * 6 + "    return tf.matmul(x, weights)\n")
    text = (
        f'in user code:\n\n    File "{script}", line 3, in step  *\n        return layer(x)\n'
        f'    File "{script}", line 7, in layer  *\n        return tf.matmul(x, weights)\n'
        f'    File "{torch.__file__}", line 9, in matmul\n\n'
        "    ValueError: Dimensions must be equal\n    and are not\n"
    )
    described = describe_error(ValueError(text), "")
    assert (described.type, described.message) == (
        "ValueError",
        "Dimensions must be equal\nand are not",
    )
    assert described.where is not None
    assert (described.where.line, described.where.function) == (7, "layer")
    assert [frame.line for frame in described.frames] == [3, 7, 9]


class _OfGraph(Exception):
    """As TensorFlow raises it where the program reads the next batch."""

    experimental_payloads: ClassVar[dict[str, str]] = {}


_TEXT = """Graph execution error:

Detected at node Reshape defined at (most recent call last):
  File "fit.py", line 4, in step

Error in user-defined function passed to MapDataset:1 transformation with iterator: Root::Map: \
Input to reshape is a tensor with 3 values
\t [[{{node Reshape}}]]"""


@pytest.mark.parametrize("known", [True, False])
def test_what_failed_in_a_graph_is_told_at_the_line_that_made_it(
    monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    made = Position(file=__file__, line=1, function="load") if known else None
    monkeypatch.setattr(tracebacks, "FAILED_AT", [lambda error, text: made])
    error = describe_error(_OfGraph(_TEXT), "")
    assert (error.where is not None) == known
    assert error.message.startswith("Input to reshape")
    assert [frame.function for frame in error.frames] == ["load"] * known


def test_python_code_of_a_pipeline_that_raised_is_told_at_its_line() -> None:
    text = f"""Error in user-defined function passed to MapDataset:2 transformation with iterator: \
Iterator::Root::Map: KeyError: True
Traceback (most recent call last):

  File "script_ops.py", line 267, in __call__
    return func(device, token, args)

  File "{__file__}", line 1, in scaled
    return scales[dark]

KeyError: True


\t [[{{{{node EagerPyFunc}}}}]]"""
    error = describe_error(_OfGraph(text), "")
    assert (error.type, error.message) == ("KeyError", "True")
    assert error.where is not None
    assert error.where.function == "scaled"


class _Rows:
    """A data set without a length, for which its loader asks."""

    def __getitem__(self, index: int) -> int:
        return index


class _OwnLength(_Rows):
    def __len__(self) -> int:
        raise TypeError("no length")


@pytest.mark.parametrize(("rows", "told"), [(_Rows, True), (_OwnLength, False)])
def test_the_line_that_made_the_loader_in_which_a_library_raised(
    monkeypatch: pytest.MonkeyPatch, rows: type[_Rows], told: bool
) -> None:
    made = Position(file=__file__, line=1, function="load")
    known = [lambda one: made if isinstance(one, DataLoader) else None]
    monkeypatch.setattr(tracebacks, "MADE_AT", known)
    loader: DataLoader[int] = DataLoader(rows())  # type: ignore[arg-type]
    with pytest.raises(TypeError) as raised:
        len(loader)
    assert describe_error(raised.value, "").made == (made if told else None)
