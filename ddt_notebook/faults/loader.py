"""Finds the cards, and imports each only when it is needed."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Iterator
from pathlib import Path

from ddt_notebook.model.errors import DdtError
from ddt_notebook.model.frameworks import known_frameworks
from ddt_notebook.spelling import similar_names

from .card import Advice, FaultCard, InvalidCard
from .host_card import HostCard

#: Folders of cards, in the order of the study's stages.
FOLDERS = ("package", "communication", "preparation", "training")


class UnknownCard(DdtError, LookupError):
    """An id that no card has; the text names similar ids."""


@functools.cache
def _modules() -> dict[str, str]:
    """Map the id of each card to the name of its module."""
    here = Path(__file__).parent
    found = {}
    for folder in FOLDERS:
        for path in sorted((here / folder).glob("[!_]*.py")):
            found[path.stem.replace("_", "-")] = f"{__package__}.{folder}.{path.stem}"
    for framework in known_frameworks().values():
        for path in _folders(framework.cards):
            for module in sorted(path.glob("[!_]*.py")):
                found[module.stem.replace("_", "-")] = f"{framework.cards}.{module.stem}"
    return found


def _folders(package: str) -> Iterator[Path]:
    spec = importlib.util.find_spec(package) if package else None
    yield from map(Path, (spec.submodule_search_locations or ()) if spec is not None else ())


def card_ids() -> tuple[str, ...]:
    """Ids of all cards, by stage and name."""
    return tuple(_modules())


@functools.cache
def card(name: str) -> FaultCard:
    """One card.

    Parameters
    ----------
    name
        Its id, such as ``"collective-under-rank-condition"``.

    Raises
    ------
    UnknownCard
        If no card has that id.
    InvalidCard
        If the card is not complete.
    """
    if name not in _modules():
        near = similar_names(name, _modules(), most=3)
        there = f"did you mean {', '.join(near)}?" if near else "ddt.fault_cards() lists them"
        raise UnknownCard(f"there is no fault card {name!r}: {there}")
    found = getattr(importlib.import_module(_modules()[name]), "CARD", None)
    if not isinstance(found, FaultCard):
        raise InvalidCard(f"card {name!r}: its module defines no CARD")
    if found.id != name:
        raise InvalidCard(f"card {name!r}: its module holds {found.id!r}")
    return found


def cards() -> list[FaultCard]:
    """All cards, by stage and name."""
    return [card(name) for name in card_ids()]


@functools.cache
def host_cards() -> dict[str, HostCard]:
    """The faults that only several hosts can have, by id."""
    found = {}
    for path in sorted((Path(__file__).parent / "hosts").glob("[!_]*.py")):
        name = path.stem.replace("_", "-")
        one = getattr(importlib.import_module(f"{__package__}.hosts.{path.stem}"), "CARD", None)
        if not isinstance(one, HostCard) or one.id != name:
            raise InvalidCard(f"card {name!r}: its module defines no such CARD")
        found[name] = one
    return found


def page_ids() -> tuple[str, ...]:
    """Ids of all faults that ``%ddt_explain`` has a page for."""
    return (*card_ids(), *host_cards())


def advice_of(name: str) -> tuple[Advice, ...]:
    """What to change against a fault, best first; empty if no card has this id."""
    if name in card_ids():
        return card(name).fixes
    return host_cards()[name].fixes if name in host_cards() else ()
