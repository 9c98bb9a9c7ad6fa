"""The public functions reject arguments that they cannot handle."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable

import pytest

import ddt_notebook as ddt


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (ddt.explain, "explain takes a text, not NoneType"),
        (ddt.lint, "lint takes a text, not NoneType"),
        (ddt.diagnose_text, "diagnose_text takes a text, not NoneType"),
    ],
)
def test_none_is_refused_where_a_text_is_expected(
    function: Callable[[object], object], message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        function(None)


def test_a_list_of_cards_can_be_read() -> None:
    cards = ddt.fault_cards()
    assert isinstance(cards, list)
    (shown,) = [repr(card) for card in cards if card.id == "loop-ends-by-clock"]
    assert shown.startswith("<FaultCard loop-ends-by-clock: D.2.1 ")
    assert all("\n" not in repr(card) and len(repr(card)) < 200 for card in cards)


def _public_callables() -> list[tuple[str, object]]:
    """Public functions, and the methods of public classes."""
    found: list[tuple[str, object]] = []
    for name in ddt.__all__:
        value = getattr(ddt, name)
        if inspect.isclass(value):
            members = inspect.getmembers(value, inspect.isfunction)
            found += [(f"{name}.{one}", member) for one, member in members if one[0] != "_"]
        if callable(value):
            found.append((name, value))
    return found


@pytest.mark.parametrize(
    ("name", "member"), [pytest.param(*one, id=one[0]) for one in _public_callables()]
)
def test_every_documented_error_can_be_named(name: str, member: object) -> None:
    """A user who wants to catch it finds it in `ddt_notebook` or among Python's own."""
    section = (inspect.getdoc(member) or "").partition("Raises\n------\n")[2]
    raised = re.findall(r"^(\w+)$", section.partition("\n\n")[0], re.MULTILINE)
    for error in raised:
        kind = getattr(ddt, error, None) or getattr(builtins, error, None)
        assert kind is not None, f"{name} raises {error}, which is not exported"
        assert issubclass(kind, Exception)


def test_all_own_errors_have_one_base() -> None:
    own = [getattr(ddt, name) for name in ddt.__all__]
    errors = [kind for kind in own if inspect.isclass(kind) and issubclass(kind, Exception)]
    assert len(errors) > 5
    assert all(issubclass(kind, ddt.DdtError) for kind in errors)
    with pytest.raises(ddt.DdtError):
        ddt.explain("Z.9.9")
    with pytest.raises(ddt.DdtError):
        ddt.Snapshot.from_json({})
