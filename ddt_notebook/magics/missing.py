"""A name that the ranks do not know, and the notebook or an exercise does: what to do is plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

from ..classroom.exercise import named_in
from ..diagnosis.advice import NAME_NOT_DEFINED
from ..model import Finding
from ..views import words
from ..views.report import DisplayedReport

#: In it an exercise's ranks have their data; fresh ranks have it not.
_DATA = "exercise"


def with_variables(report: DisplayedReport, variables: Mapping[str, object]) -> DisplayedReport:
    """A report that says which missing names are variables of the notebook, or of an exercise.

    Parameters
    ----------
    variables
        The notebook's.
    """
    snapshot = report.snapshot
    ran = {r.rank for r in snapshot.ranks if r.state != "idle"} if snapshot is not None else set()
    begun = named_in(snapshot.cell.source) if snapshot is not None else ""
    known = dict(variables) | ({_DATA: begun} if begun else {})
    findings = [_with_variables(finding, known, ran, begun) for finding in report.findings]
    return replace(report, findings=findings)


def _with_variables(
    finding: Finding, variables: Mapping[str, object], ran: set[int], begun: str
) -> Finding:
    name = finding.values.get("name")
    if finding.cause != NAME_NOT_DEFINED or name is None or name not in variables:
        return finding
    everywhere = ran <= set(finding.ranks)
    theirs = "the ranks" if everywhere else words.ranks(finding.ranks)
    if name == _DATA and begun:
        says = (
            f"`{name}` is the data of {begun}, which fresh ranks lack: "
            f"`%ddt_exercise {begun} --prepare`"
        )
    elif isinstance(variables[name], ModuleType):
        says = f"`{name}` is imported in the notebook, not on {theirs}: import it in a `%%ddt` cell"
    else:
        choice = "" if everywhere else f" -r {words.rank_list(finding.ranks).replace(' ', '')}"
        says = (
            f"`{name}` is a variable of the notebook, not of {theirs}: `%ddt_push {name}{choice}`"
        )
    return replace(finding, fixes=[replace(finding.fixes[0], advice=says)])
