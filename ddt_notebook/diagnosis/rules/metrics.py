"""Rules about values of one rank that are shown or used as those of all ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding
from ddt_notebook.program.parse import Document
from ddt_notebook.program.result_use import Use
from ddt_notebook.program.sharded_values import ShardedValue, ShardedValues

#: Metric names must end where a word ends: `val_acc` and `accuracy` are metrics, `accumulate` is
#: not.
_METRIC = re.compile(
    r"(?<![a-z])(accuracy|acc|correct|hits|precision|recall|f1|auc|iou|top[15]|bleu|score)(?![a-z])",
    re.IGNORECASE,
)
_LOSS = re.compile(r"(?<![a-z])(loss|losses|error)(?![a-z])", re.IGNORECASE)
#: Words that show whether a text is about one rank or about all ranks.
_LOCAL = re.compile(
    r"(?<![a-z])(rank|local|shard|own|mine|my|partial|worker|share|subset|fold)(?![a-z])",
    re.IGNORECASE,
)
_GLOBAL = re.compile(
    r"(?<![a-z])(global(?!_(step|batch|rank|epoch|iter))|overall|across"
    r"|all (the )?(ranks|workers|processes|gpus|devices))(?![a-z])",
    re.IGNORECASE,
)
_Shown = tuple[ShardedValue, str, dict[int, Use]]


def local_values(context: Context) -> Iterator[Finding]:
    """Report metrics of an evaluation on divided data in which one rank's part stands for all.

    A loss may be intended as an estimate: it is a hint, if its text is about all ranks or it comes
    from an evaluation.
    """
    hint: Finding | None = None
    for value, names, uses in _shown(context):
        text = " ".join(use.text for use in uses.values())
        metric = _METRIC.search(names)
        if metric and not value.trains:
            yield _finding(context, uses, "metric-not-reduced")
            return
        claims = _GLOBAL.search(text) or not value.trains
        if claims and (metric or _LOSS.search(names)):
            hint = hint or _finding(context, uses, "local-loss-as-global")
    if hint is not None:
        yield hint


def _shown(context: Context) -> Iterator[_Shown]:
    """Yield values of a rank's shard that ranks show for all or use in decisions, with names."""
    snapshot = context.snapshot
    states = {report.state for report in snapshot.ranks}
    if snapshot.outcome != "ok" or states != {"finished"} or len(snapshot.ranks) < 2:
        return
    cell = Document.of(snapshot.cell).name
    values = ShardedValues(context.program)
    for value in values:
        if _LOCAL.search(" ".join(value.origin)):
            continue
        for name in value.names:
            uses: dict[int, Use] = {}
            for rank in context.reports:
                use = next(filter(_counts, values.uses(value, name, rank)), None)
                if use is not None and use.place.file == cell:
                    uses[rank] = use
            printed = {rank: use for rank, use in uses.items() if use.kind == "print"}
            decided = {rank: use for rank, use in uses.items() if use.kind == "decision"}
            if decided or 0 < len(printed) < len(context.reports):
                chosen = decided or printed
                read = (one for use in chosen.values() for one in use.keys)
                names = {name, *value.origin, *read}
                yield value, " ".join(sorted(names)), chosen


def _counts(use: Use) -> bool:
    """Whether a use treats the value as that of all ranks."""
    if use.kind == "print":
        return not _LOCAL.search(use.text)
    # `if correct:` tests whether there is a value, not how good it is
    return use.kind == "decision" and use.compares and use.stops_or_saves


def _finding(context: Context, uses: dict[int, Use], cause: str) -> Finding:
    ranks = sorted(uses)
    use = uses[ranks[0]]
    return conclude(
        "D.2.4",
        "prints-own-share" if use.kind == "print" else "decides-by-own-share",
        cause=cause,
        ranks=ranks,
        values={
            "what": "metric" if cause == "metric-not-reduced" else "loss",
            "line": use.place.line,
        },
        places=dict.fromkeys(ranks, use.place),
        facts=[Fact(kind="data-divided"), Fact(kind="no-collective-before")],
        confidence="likely" if cause == "metric-not-reduced" else "possible",
        op="all_reduce",
    )


RULES = (local_values,)
