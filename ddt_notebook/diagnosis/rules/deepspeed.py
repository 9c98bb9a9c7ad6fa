"""What DeepSpeed's engines show of a finding: other settings, or a checkpoint on some ranks."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from ddt_notebook import faults
from ddt_notebook.diagnosis.advice import fixes
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding
from ddt_notebook.model.frameworks.deepspeed import ENGINE, MEMBERS, SAVE_CHECKPOINT

#: Causes that only say that ranks made other calls.
_OUT_OF_STEP = frozenset(
    {"different-collectives", "dtype-differs", "shape-differs", "rank-skips-collective"}
)
_CONFIG, _CHECKPOINT = "deepspeed-config-differs", "deepspeed-checkpoint-on-some-ranks"
_UNDER_CONDITION = "collective-under-rank-condition"


def explained(context: Context, finding: Finding) -> Finding:
    """Return a finding with the reason, or the card, that DeepSpeed's engines give it."""
    if not _is_of_deepspeed(context, finding):
        return finding
    cause = finding.cause or ""
    if cause in _OUT_OF_STEP and (fact := _differing(context)) is not None:
        return _with_cause(finding, _CONFIG, fact)
    if cause == _UNDER_CONDITION and _some_save(context, finding):
        return _with_cause(finding, _CHECKPOINT)
    stand_in = faults.stand_in(cause, "deepspeed")
    return _with_cause(finding, stand_in) if stand_in is not None else finding


def _with_cause(finding: Finding, cause: str, *facts: Fact) -> Finding:
    return replace(
        finding,
        cause=cause,
        facts=[*facts, *finding.facts],
        fixes=fixes(finding.symptom, cause),
    )


def _is_of_deepspeed(context: Context, finding: Finding) -> bool:
    """Whether DeepSpeed made the calls in which ranks wait, or which do not fit."""
    ranks = {*finding.ranks, *finding.waiting}
    last = [calls[-1] for rank in ranks if (calls := _calls(context, rank))]
    halted = [context.halted[rank] for rank in ranks if rank in context.halted]
    return any((call.called_from or "").startswith("deepspeed/") for call in halted or last)


def _calls(context: Context, rank: int) -> list[Call]:
    report = context.reports.get(rank)
    return [call for call in report.calls if call.kind != "setup"] if report is not None else []


def _differing(context: Context) -> Fact | None:
    """Return the first setting in which the engines that ranks made last differ."""
    settings: dict[int, dict[str, Any]] = {}
    for rank, report in context.reports.items():
        engines = [call for call in report.calls if call.op == ENGINE and call.reduce_op]
        if not engines:
            return None
        settings[rank] = json.loads(engines[-1].reduce_op or "{}")
    for name in next(iter(settings.values()), {}):
        if name == MEMBERS:
            continue
        given = [known.get(name, "") for known in settings.values()]
        if len(set(given)) > 1:
            values = {"setting": name, "given": tuple(given)}
            return Fact(kind="engines-differ", ranks=tuple(settings), values=values)
    return None


def _some_save(context: Context, finding: Finding) -> bool:
    """Whether the ranks that wait do so in a checkpoint, which others have not begun."""
    for rank in finding.waiting:
        saves = [call for call in context.reports[rank].calls if call.op == SAVE_CHECKPOINT]
        blocked = context.halted.get(rank)
        if not saves or blocked is None or blocked.where is None or saves[-1].where is None:
            return False
        if not saves[-1].where.is_same_line(blocked.where):
            return False
    return bool(finding.waiting)
