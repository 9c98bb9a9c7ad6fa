"""Says whether a report explains why ranks are out of step."""

from __future__ import annotations

from ddt_notebook.model import Fact, Finding, Report
from ddt_notebook.program.escape_paths import SUPPOSED

from .silent_partings import CAME_APART
from .wording import is_reason

#: Kinds of findings that a parting explains.
_OUT_OF_STEP = frozenset({"never-entered", "different-collectives", "out-of-step"})
#: Facts that show without branch events what keeps a rank away.
_SEEN = frozenset({"ended-itself", "thread-ended", "file-lock-held"})


def lacks_reason(report: Report) -> bool:
    """Whether ranks were found out of step, and it was neither observed nor is it clear why.

    The source alone shows conditions that *may* come out differently on each rank, and loops that
    may have other rounds. In a trainer, a condition elsewhere is often the reason.
    """
    return any(
        _out_of_step(finding) and not any(map(_explains, finding.facts))
        for finding in report.findings
    )


def _out_of_step(finding: Finding) -> bool:
    """Whether ranks came to different lines, as with arguments that differ between two lines."""
    lines = {(place.file, place.line) for place in finding.places.values()}
    if finding.kind == "raised" and "trainer" in finding.values:
        return len(lines) == 1  # the line at which the others wait does not say why
    if finding.kind == "died":  # the reason of another error may be none of this kind
        supposed = any(fact.kind in SUPPOSED for fact in finding.facts)
        return supposed or finding.cause == "different-collectives"
    if any(fact.kind == CAME_APART for fact in finding.facts):
        return True
    return finding.kind in _OUT_OF_STEP or (
        (len(lines) > 1 or finding.values.get("varied") is True)
        and (finding.kind == "arguments-differ" or finding.cause == "different-collectives")
    )


def _explains(fact: Fact) -> bool:
    if fact.kind in _SEEN:
        return True
    place = fact.place
    in_program = place is not None and (place.cell is None or place.function != "<module>")
    one_of_several = "others" in fact.values
    return is_reason(fact) and not (fact.kind in SUPPOSED and (in_program or one_of_several))
