"""What a rank notes about an exception."""

from __future__ import annotations

import pytest

from ddt_notebook.rank.tracebacks import describe_error


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
