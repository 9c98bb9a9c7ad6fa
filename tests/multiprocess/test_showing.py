"""A view that a fault card names flags something when the fault occurs."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook import faults
from ddt_notebook.runs import view_of

from .. import cards

#: Their flags do not depend on how fast this machine is.
STEADY = {"parity", "placement", "partition", "memory"}
SHOWN = [fault.id for fault in faults.cards() if set(fault.views[:1]) & STEADY]


@pytest.mark.parametrize("name", SHOWN)
def test_the_first_view_flags_the_fault(name: str) -> None:
    fault = cards.runnable(name)
    with ddt.Session(fault.n, **{"hang_after": 0.5, **fault.options}) as session:
        if fault.setup:
            session.run(fault.setup)
        view = view_of(fault.views[0], session.run(fault.broken, trace=True))
        assert view.flags, f"{view.name}: {view!r}"
