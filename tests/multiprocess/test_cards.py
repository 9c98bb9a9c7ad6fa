"""Every card on real ranks: the broken cell gives its finding, the fixed one gives none."""

from __future__ import annotations

import pytest

import ddt_notebook as ddt
from ddt_notebook.faults import FaultCard, card, card_ids
from ddt_notebook.model.frameworks import PREPARED

from .. import cards


def _runnable(name: str) -> FaultCard:
    one = card(name)
    framework = PREPARED.get(one.framework)
    for module in framework.modules if framework is not None else ():
        pytest.importorskip(module, reason=f"make test-{framework.extra} installs it")
    for module in one.needs:
        pytest.importorskip(module, reason=f"make test-{module.partition('.')[0]} installs it")
    return one


@pytest.mark.parametrize("name", card_ids())
def test_broken_cell_gives_its_finding(name: str) -> None:
    one = _runnable(name)
    report = ddt.diagnose(cards.run_broken(one))
    assert not cards.complaints_broken(one, report), str(report)


@pytest.mark.parametrize("name", card_ids())
def test_fixed_cell_is_silent_and_does_what_was_wanted(name: str) -> None:
    one = _runnable(name)
    run, proof = cards.run_fixed(one)
    assert not cards.complaints_fixed(one, run, proof), str(ddt.diagnose(run))
