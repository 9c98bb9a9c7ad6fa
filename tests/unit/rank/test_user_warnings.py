"""Warnings of functions that are wrapped in a rank."""

from __future__ import annotations

import ctypes
import sys
import warnings
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.rank import user_warnings
from ddt_notebook.rank.probes.loaders import _noting_line


class Loader:
    """What a library may have; ``level`` is whom the warning names."""

    def __init__(self, level: int) -> None:
        warnings.warn("too many workers", FutureWarning, stacklevel=level)


def make(level: int) -> Loader:
    return Loader(level)


@pytest.mark.parametrize("level", [1, 2, 3, 100])
def test_a_wrapped_function_warns_at_the_line_that_it_had_without_the_wrapper(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places() -> list[tuple[str, int]]:
        with pytest.warns(FutureWarning, match="too many workers") as caught:
            make(level)
        return [(one.filename, one.lineno) for one in caught]

    before = places()
    monkeypatch.setattr(Loader, "__init__", _noting_line(Loader.__init__))
    if level in (2, 3):
        assert places() != before
    monkeypatch.setattr(warnings, "warn", warnings.warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    user_warnings.install()
    assert places() == before


def test_what_is_passed_on_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[Any] = []

    @wraps(warnings.warn)
    def warn(*args: Any, **kwargs: Any) -> None:
        passed.append((args, kwargs))

    monkeypatch.setattr(warnings, "warn", warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    user_warnings.install()
    late = UserWarning("it is late")
    warnings.warn(late, stacklevel=1, source=passed)
    assert passed == [((late, None, 2), {"source": passed})]


def test_a_wrapped_function_in_c_warns_at_the_line_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(warnings, "warn", warnings.warn)
    in_c = ctypes.pythonapi.PyErr_WarnEx
    in_c.argtypes = [ctypes.py_object, ctypes.c_char_p, ctypes.c_ssize_t]
    file = Path(user_warnings.__file__).with_name("wrapper.py")
    names: dict[str, Any] = {}
    exec(compile("def wrapper(function): function()", str(file), "exec"), names)
    with warnings.catch_warnings(record=True) as caught:  # it puts `showwarning` back
        warnings.simplefilter("always")
        names["wrapper"](partial(in_c, UserWarning, b"a scalar", 1))
        user_warnings.install()
        here = sys._getframe().f_lineno + 1
        names["wrapper"](partial(in_c, UserWarning, b"a scalar", 1))
    places = [(one.filename, one.lineno) for one in caught]
    assert places == [(str(file), 1), (__file__, here)]
