"""Sentences on why ranks parted, as it was observed.

They are part of the table `wording.FACTS`, which explains the templates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ddt_notebook.formatting import count, listing, ranks_text
from ddt_notebook.model import Fact, Place

#: Which way a rank went, if "yes" and "no" do not say it.
WAYS = {"not-raised": "caught nothing", "not-there": "did not reach it"}


def _at(place: Place | None) -> str:
    return place.label if place is not None else "an unknown line"


def _parted(fact: Fact) -> str:
    """Return ``train.py line 9: if loss < best:  rank 1 no (loss 0.31, best 0.3) · rank 0 yes``."""
    shown = list(fact.values["sides"])
    text = f"the ranks parted at {_at(fact.place)}  {_ways(shown)}"
    if "decided" in fact.values:
        line, code, sides = fact.values["decided"]
        shown += sides
        text += f"; within it at {line}: {code}  {_ways(sides)}"
    if any(values for _, _, values in shown):
        text += "; values are from each rank's last change of direction there, or from the end"
    return text


def _ways(sides: Iterable[tuple[str, tuple[int, ...], tuple[tuple[str, str], ...]]]) -> str:
    """Return ``rank 1 no (loss 0.31, best 0.3) · ranks 0 and 2 yes``."""
    texts = []
    for way, ranks, values in sides:
        known = ", ".join(f"{name} {value}" for name, value in values)
        texts.append(f"{ranks_text(ranks)} {WAYS.get(way, way)}" + (f" ({known})" if known else ""))
    return " · ".join(texts)


def _messages_left_out(fact: Fact) -> str:
    """Return ``… rank 0 made 3 of the 4 recv calls that rank 1 needs, and 2 for other ranks …``."""
    values = fact.values
    made = f"{ranks_text(fact.ranks)} made {values['answered']} of the {values['asked']}"
    others = f", and {values['others']} for other ranks" if values["others"] else ""
    return (
        f"since their last common collective, {made} {values['op']} calls that rank "
        f"{values['partner']} needs{others}: {_at(fact.place)}"
    )


def _met_elsewhere(fact: Fact) -> str:
    """Return ``… the irecv of rank 1 in train.py line 84 met a call of rank 0 in line 124``."""
    values = fact.values
    own = f"the {values['op']} of {ranks_text(fact.ranks)} in {_at(fact.place)}"
    met = f"a call of rank {values['partner']} in line {values['other_line']}"
    return f"until then the two were in the same lines; {own} met {met}"


def _called_back(fact: Fact) -> str:
    """Return ``the library calls loss() within train.py line 9, where rank 0 waits in isend …``."""
    values = fact.values
    waits = f"{ranks_text(fact.ranks)} {'waits' if len(fact.ranks) == 1 else 'wait'}"
    return (
        f"the library calls {values['function']}() within {_at(fact.place)}, where {waits} in "
        f"{' and '.join(values['ops'])}: it calls it at other times, or not at all, on these ranks"
    )


def _ends_framework(fact: Fact) -> str:
    """Return ``rank 1 ended Horovod for all ranks at cell[1] line 9: hvd.shutdown(), …``."""
    decided, title = fact.values["decided"], fact.values["framework"]
    under = f", under the condition of line {decided}" if decided is not None else ""
    return f"{ranks_text(fact.ranks)} ended {title} for all ranks at {_at(fact.place)}{under}"


def _loaders_differ(fact: Fact) -> str:
    """Return ``the loader made at line 9 has 5 batches on rank 0 and 4 on rank 1``."""
    (caller, theirs), mine = fact.values["other"], fact.values["batches"]
    return (
        f"the loader made at {_at(fact.place)} has {count(theirs, 'batch')} on rank {caller} and "
        f"{mine} on {ranks_text(fact.ranks)}"
    )


def came_apart(fact: Fact) -> str:
    """Return ``ranks came to barrier #18, the last … before, from different lines: rank 0 …``."""
    values = fact.values
    lines = listing(f"{ranks_text(ranks)} from {place}" for ranks, place in values["lines"])
    return (
        f"ranks came to {values['op']} #{values['sequence']}, the last collective before, from "
        f"different lines: {lines}"
    )


def _stored_by_some(fact: Fact) -> str:
    """Return ``is run by rank 0 only, and stores self.step (line 51)``."""
    values = fact.values
    names = listing(values["names"])
    at = f" (line {values['stored']})" if "stored" in values else ""
    text = f"is run by {ranks_text(fact.ranks)} only, and stores {names}{at}"
    if values["hook"]:
        text += f": {values['library']} calls {values['hook']}() on the first rank of each host"
    return text


#: Kind of a fact -> its sentence.
FACTS: dict[str, str | Callable[[Fact], str]] = {
    "parted": _parted,
    "loaders-differ": _loaders_differ,
    "stored-last": "{ranks} stored {name} last at {place}",
    "not-stored": "{ranks} did not store {name}",
    "called-back": _called_back,
    "ends-framework": _ends_framework,
    "callback-stops": "{callback} asked the trainer to stop on {ranks} alone, within {place}",
    "messages-left-out": _messages_left_out,
    "met-elsewhere": _met_elsewhere,
    "thread-started": "the thread was started at {place}",
    "start-depends-on-rank": "it depends on the rank whether the thread is started: {place}",
}


#: Kind of a fact about a line of the source -> what the line does on the ranks that it concerns.
REASONS: dict[str, str | Callable[[Fact], str]] = {
    "stored-by-some": _stored_by_some,
    "keeps-from-line": "keeps {ranks} from line {call_line}",
    "keeps-from-call": "keeps {ranks} from the call",
    "decided-by-each-rank": "may come out differently on each rank",
    "depends-on-clock": "depends on each rank's own clock",
    "ends-by-clock": "ends by each rank's own clock",
    "leaves-loop-by-clock": "leaves the loop by each rank's own clock",
    "lets-leave-loop": "lets {ranks} leave the loop",
    "leaves-loop-by-own-finding": "leaves the loop by a condition that each rank decides alone",
    "swallows-raise": "catches what is raised in line {raised_line}, and goes on",
    "swallows-before-call": "catches what is raised before the call, and goes on",
    "left-own-loop": (
        "ended on {ranks}, and until then its rounds made each {met} that rank {caller} made at "
        "lines of its own"
    ),
    "ends-with-its-data": "leaves when the rank's data end",
    "lets-leave": "lets {ranks} leave before line {call_line}",
    "leaves-by-own-finding": (
        "leaves before line {call_line} by a condition that each rank decides alone"
    ),
    "asks-to-stop": "lets {ranks} ask the trainer to stop in line {stop_line}",
    "uses-module": "decides whether {name} is used",
    "leads-to-no-result": "leads to the return without a result in line {return_line}",
    "returns-nothing": "returns no result",
}
