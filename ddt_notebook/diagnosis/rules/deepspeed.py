"""Rules about DeepSpeed's engines, and what these show of other findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ddt_notebook import faults
from ddt_notebook.diagnosis.advice import conclude, fixes
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Call, Fact, Finding
from ddt_notebook.model.frameworks.deepspeed import (
    CHANGE_LOST,
    EMPTY_STEP,
    ENGINE,
    ENGINE_GIVEN,
    LATE_STEP,
    LOAD_CHECKPOINT,
    SAVE_CHECKPOINT,
    ZERO_INIT,
)
from ddt_notebook.symptoms.loader import symptom

from . import deepspeed_engines, deepspeed_sequences

#: Causes that only say that ranks made other calls.
_OUT_OF_STEP = frozenset(
    {
        *("different-collectives", "dtype-differs", "shape-differs", "rank-skips-collective"),
        *("different-groups", "groups-in-opposite-order", "wait-cycle"),
    }
)
_CONFIG, _CHECKPOINT = "deepspeed-config-differs", "deepspeed-checkpoint-on-some-ranks"
_NOT_FOUND, _ZERO_INIT = "deepspeed-checkpoint-not-found", "deepspeed-zero-init-on-some-ranks"
_UNDER_CONDITION = frozenset(
    {"collective-under-rank-condition", "collective-under-local-condition"}
)
#: Causes that say that ranks made other numbers of steps.
_UNEVEN = frozenset({"uneven-iterations"})
#: The setting by which loaders give ranks other numbers of batches.
_BATCH = "train_micro_batch_size_per_gpu"


def tags_differ(context: Context) -> Iterator[Finding]:
    """Report a checkpoint that ranks saved at one line under different tags."""
    made = {
        rank: [call for call in report.calls if call.op == SAVE_CHECKPOINT]
        for rank, report in context.reports.items()
    }
    if context.snapshot.outcome != "ok" or not made:
        return
    for saves in zip(*made.values(), strict=False):
        tags = {rank: call.detail for rank, call in zip(made, saves, strict=True)}
        if len(set(tags.values())) == 1 or len({call.where for call in saves}) > 1:
            continue
        yield conclude(
            "D.1.6",
            "checkpoint-tags-differ",
            cause="deepspeed-checkpoint-tags-differ",
            ranks=made,
            places={
                rank: context.place(call.where, "saves")
                for rank, call in zip(made, saves, strict=True)
            },
            facts=[
                Fact(kind="saved-under", ranks=(rank,), values={"tag": tag})
                for rank, tag in tags.items()
                if tag is not None
            ],
        )
        return


def loads_differ(context: Context) -> Iterator[Finding]:
    """Report ranks that loaded checkpoints with other tags at one line.

    The folders of nodes may differ, and files of the stages of a pipeline do.
    """
    loaded = _loads(context)
    tags = {
        rank: PurePath(call.detail).parent.name
        for rank, call in loaded.items()
        if call.detail is not None
    }
    alone = len({call.where for call in loaded.values()}) == 1
    if context.snapshot.outcome != "ok" or not alone or len(set(tags.values())) < 2:
        return
    by_tag: dict[str, list[int]] = {}
    for rank, tag in tags.items():
        by_tag.setdefault(tag, []).append(rank)
    yield conclude(
        "D.1.6",
        "checkpoint-loads-differ",
        cause="deepspeed-checkpoint-tags-differ",
        ranks=tags,
        places={rank: context.place(loaded[rank].where, "called") for rank in tags},
        facts=[
            Fact(kind="loaded-tag", ranks=tuple(ranks), values={"tag": tag})
            for tag, ranks in by_tag.items()
        ],
    )


def late_steps(context: Context) -> Iterator[Finding]:
    """Report steps that follow as many passes as the engine already accumulates by itself."""
    late = {
        rank: call
        for rank, report in context.reports.items()
        if (call := next((one for one in report.calls if one.op == LATE_STEP), None)) is not None
    }
    if late and context.snapshot.outcome == "ok":
        accumulates = int(next(iter(late.values())).detail or 1)
        yield conclude(
            "D.2.4",
            "accumulated-twice",
            cause="deepspeed-accumulated-twice",
            ranks=late,
            values={"passes": accumulates, "all": accumulates**2},
            places={rank: context.place(call.where, "steps") for rank, call in late.items()},
            facts=[Fact(kind="engine-accumulates", values={"passes": accumulates})],
            confidence="likely",
        )


def changes_lost(context: Context) -> Iterator[Finding]:
    """Report changes of gathered parameters that no rank keeps."""
    lost = {
        rank: call
        for rank, report in context.reports.items()
        if (call := next((one for one in report.calls if one.op == CHANGE_LOST), None)) is not None
    }
    if lost and context.snapshot.outcome == "ok":
        yield conclude(
            "D.2.4",
            "gathered-change-lost",
            cause="deepspeed-gathered-change-lost",
            ranks=lost,
            places={rank: context.place(call.where, "called") for rank, call in lost.items()},
            facts=[Fact(kind="gathered-changed", ranks=tuple(lost))],
            confidence="likely",
        )


def explained(context: Context, finding: Finding) -> Finding:
    """Return a finding with the reason, or the card, that DeepSpeed's engines give it."""
    loaded = _loads(context)
    if finding.kind == "raised" and (missed := _found_nothing(context, finding, loaded)):
        finding = replace(finding, symptom="D.1.6", stage=symptom("D.1.6").stage_title)
        return replace(_with_cause(finding, _NOT_FOUND, *missed), confidence="likely")
    if finding.kind == "raised" and (empty := _stepped_without_pass(context, finding)):
        return replace(finding, facts=[*empty, *finding.facts])
    if not _is_of_deepspeed(context, finding):
        return finding
    cause = finding.cause or ""
    if cause in _OUT_OF_STEP and (begun := _built_in_parts(context)) is not None:
        more, fewer = begun.ranks, begun.values["others"]
        return replace(
            _with_cause(finding, _ZERO_INIT, begun), ranks=list(fewer), waiting=list(more)
        )
    if cause in _OUT_OF_STEP | _UNEVEN and (resumed := _resumed_apart(context, loaded)):
        return _with_cause(finding, _NOT_FOUND, *resumed)
    fact = _differing(context) if cause in _OUT_OF_STEP | _UNEVEN else None
    if fact is not None and (cause in _OUT_OF_STEP or fact.values["setting"] == _BATCH):
        return _with_cause(finding, _CONFIG, fact)
    if cause in _UNDER_CONDITION and _some_save(context, finding):
        return _with_cause(finding, _CHECKPOINT)
    if cause in _OUT_OF_STEP and (given := _given_apart(context)) is not None:
        return replace(finding, facts=[given, *finding.facts])
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
    made: dict[int, Call] = {}
    for rank, report in context.reports.items():
        engines = [call for call in report.calls if call.op == ENGINE and call.detail]
        if not engines:
            return None
        made[rank] = engines[-1]
        settings[rank] = json.loads(engines[-1].detail or "{}")
    for name in next(iter(settings.values()), {}):
        given = [known.get(name, "") for known in settings.values()]
        if len(set(given)) > 1:
            values = {"setting": name, "given": tuple(given)}
            place = context.place(made[min(made)].where, "called")
            return Fact(kind="engines-differ", place=place, ranks=tuple(settings), values=values)
    return None


def _given_apart(context: Context) -> Fact | None:
    """Return with what ranks asked for the last pass of their engines, if that differs."""
    last: dict[int, Call] = {}
    for rank, report in context.reports.items():
        given = [call for call in report.calls if call.op == ENGINE_GIVEN and call.detail]
        if not given:
            return None
        last[rank] = given[-1]
    asked = {rank: json.loads(call.detail or "{}") for rank, call in last.items()}
    if len({(one["engine"], one["group"]) for one in asked.values()}) > 1:
        return None
    texts = tuple(", ".join(one["given"]) for one in asked.values())
    if len(set(texts)) == 1 or len({call.where for call in last.values()}) > 1:
        return None
    return Fact(
        kind="engines-given",
        place=context.place(last[min(last)].where, "called"),
        ranks=tuple(last),
        values={"given": texts},
    )


def _loads(context: Context) -> dict[int, Call]:
    """Return the last load of a checkpoint of each rank that has made one."""
    found: dict[int, Call] = {}
    for rank, report in context.reports.items():
        loads = [call for call in report.calls if call.op == LOAD_CHECKPOINT]
        if loads:
            found[rank] = loads[-1]
    return found


def _loaded(context: Context, loaded: dict[int, Call]) -> list[Fact]:
    """Return what each rank has loaded: ranks with the same path share a fact."""
    by_path: dict[str | None, list[int]] = {}
    for rank, call in loaded.items():
        by_path.setdefault(call.detail, []).append(rank)
    return [
        Fact(
            kind="loaded" if path is not None else "loaded-nothing",
            place=context.place(loaded[ranks[0]].where, "called"),
            ranks=tuple(ranks),
            values={"path": path} if path is not None else {},
        )
        for path, ranks in by_path.items()
    ]


def _found_nothing(context: Context, finding: Finding, loaded: dict[int, Call]) -> list[Fact]:
    """Return the loads that found nothing, if each of these ranks failed for a missing value."""
    for rank in finding.ranks:
        error = context.reports[rank].error
        call = loaded.get(rank)
        if error is None or "NoneType" not in error.message:
            return []
        if call is None or call.detail is not None:
            return []
    return _loaded(context, {rank: loaded[rank] for rank in finding.ranks})


def _stepped_without_pass(context: Context, finding: Finding) -> list[Fact]:
    """Return where ranks that raised asked for an update without a backward pass before it."""
    found = []
    for rank in finding.ranks:
        steps = [call for call in context.reports[rank].calls if call.op == EMPTY_STEP]
        if not steps:
            return []
        # at the line that the finding shows anyway, a fact with that line would be left out
        shown = {(one.file, one.line) for one in finding.places.values()}
        at = context.place(steps[-1].where, "called")
        at = None if at is None or (at.file, at.line) in shown else at
        found.append(Fact(kind="step-without-backward", place=at, ranks=(rank,)))
    return found


def _resumed_apart(context: Context, loaded: dict[int, Call]) -> list[Fact]:
    """Return what ranks have loaded, if at one line some found a checkpoint and others did not."""
    lines = {call.where for call in loaded.values()}
    found = {call.detail is not None for call in loaded.values()}
    if len(loaded) < len(context.reports) or len(lines) != 1 or len(found) == 1:
        return []
    return _loaded(context, loaded)


def _built_in_parts(context: Context) -> Fact | None:
    """Return where some ranks began `deepspeed.zero.Init`, if others have made an engine without.

    An engine divides the parameters that are not divided yet, so each way alone is right.
    """
    begun, made = (
        {
            rank: [call for call in report.calls if call.op == op]
            for rank, report in context.reports.items()
        }
        for op in (ZERO_INIT, ENGINE)
    )
    most = max(map(len, begun.values()), default=0)
    more = [rank for rank, calls in begun.items() if len(calls) == most]
    fewer = [rank for rank in begun if rank not in more]
    if not fewer or min(len(made[rank]) for rank in fewer) < max(len(made[rank]) for rank in more):
        return None
    if any(not made[rank] for rank in fewer):
        return None
    return Fact(
        kind="zero-init-begun",
        place=context.place(begun[more[0]][-1].where, "called"),
        ranks=tuple(more),
        values={"others": tuple(fewer)},
    )


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


RULES = (
    *(tags_differ, loads_differ, late_steps, changes_lost),
    *deepspeed_engines.RULES,
    *deepspeed_sequences.RULES,
)
