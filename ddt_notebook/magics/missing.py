"""A name that the ranks do not know, and the notebook does: what to do is then plain."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from types import ModuleType

from ..diagnose.advice import NAME_NOT_DEFINED
from ..model import Finding
from ..views import words
from ..views.report import DisplayedReport

_NAME = re.compile(r"NameError: name '(\w+)' is not defined")


def with_variables(report: DisplayedReport, variables: Mapping[str, object]) -> DisplayedReport:
    """A report that says which missing names are variables of the notebook.

    Parameters
    ----------
    variables
        The notebook's.
    """
    snapshot = report.snapshot
    ran = {r.rank for r in snapshot.ranks if r.state != "idle"} if snapshot is not None else set()
    findings = [_with_variables(finding, variables, ran) for finding in report.findings]
    return replace(report, findings=findings)


def _with_variables(finding: Finding, variables: Mapping[str, object], ran: set[int]) -> Finding:
    found = _NAME.search(finding.title)
    if finding.cause != NAME_NOT_DEFINED or found is None or found[1] not in variables:
        return finding
    name, everywhere = found[1], ran <= set(finding.ranks)
    theirs = "the ranks" if everywhere else words.ranks(finding.ranks)
    if isinstance(variables[name], ModuleType):
        says = f"`{name}` is imported in the notebook, not on {theirs}: import it in a `%%ddt` cell"
    else:
        choice = "" if everywhere else f" -r {words.rank_list(finding.ranks).replace(' ', '')}"
        says = (
            f"`{name}` is a variable of the notebook, not of {theirs}: `%ddt_push {name}{choice}`"
        )
    return replace(finding, fixes=[replace(finding.fixes[0], advice=says)])
