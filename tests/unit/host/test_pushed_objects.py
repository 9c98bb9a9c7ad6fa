"""Objects that were sent to ranks are kept, within bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ddt_notebook.host import pushed_objects
from ddt_notebook.host.pushed_objects import PushedObjects
from ddt_notebook.wire.messages import Done, Envelope


class Pool:
    """Takes everything."""

    def command(self, what: Any, payload: bytes, *, ranks: Iterable[int]) -> dict[int, Any]:
        return {rank: Envelope(Done()) for rank in ranks}


def test_objects_are_pushed_again_after_the_cell_that_they_followed() -> None:
    sent: Any = PushedObjects()
    sent.send(Pool(), {"early": b"1"}, (0, 1), 0)
    sent.send(Pool(), {"later": b"2", "gone": b"3"}, (0, 1), 4)
    sent.send(Pool(), {"later": b"4"}, (1,), 5)
    assert [one.name for one in sent.due(0, {5})] == ["early", "gone"]  # cell 4 ran again since
    assert [(one.data, one.ranks) for one in sent.due(5, {5})] == [(b"4", (1,))]
    sent.forget()
    assert not sent.kept


def test_large_objects_are_not_kept(monkeypatch: Any) -> None:
    monkeypatch.setattr(pushed_objects, "_MOST_KEPT", 10)
    sent: Any = PushedObjects()
    sent.send(Pool(), {"small": b"12345"}, (0,), 0)
    sent.send(Pool(), {"large": b"1234567"}, (0,), 0)
    assert [one.name for one in sent.kept] == ["small"]
    sent.send(Pool(), {"small": b"1234567890"}, (0,), 0)
    assert [one.data for one in sent.kept] == [b"1234567890"]
