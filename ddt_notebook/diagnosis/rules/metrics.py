"""A rank's own value that is shown, or used, as if it were that of all ranks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.cells import syntax
from ddt_notebook.diagnosis.cells.shares import Share, Shares
from ddt_notebook.diagnosis.cells.usage import Use
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding

#: Where letters end a word: `val_acc` and `accuracy` are metrics, `accumulate` is not.
_METRIC = re.compile(
    r"(?<![a-z])(accuracy|acc|correct|hits|precision|recall|f1|auc|iou|top[15]|bleu|score)(?![a-z])",
    re.IGNORECASE,
)
_LOSS = re.compile(r"(?<![a-z])(loss|losses|error)(?![a-z])", re.IGNORECASE)
#: Words by which a text says that it speaks of one rank, or of all.
_LOCAL = re.compile(
    r"(?<![a-z])(rank|local|shard|own|mine|my|partial|worker|share|subset|fold)(?![a-z])",
    re.IGNORECASE,
)
_GLOBAL = re.compile(
    r"(?<![a-z])(global(?!_(step|batch|rank|epoch|iter))|overall|across"
    r"|all (the )?(ranks|workers|processes|gpus|devices))(?![a-z])",
    re.IGNORECASE,
)
_USES = re.compile(r"\b(print|break|return|save)\b")
_DIVIDES = re.compile(r"DistributedSampler|\w*rank\w*", re.IGNORECASE)
_Shown = tuple[Share, str, dict[int, Use]]


def local_values(context: Context) -> Iterator[Finding]:
    """A metric of an evaluation on divided data, of which one rank's part stands for the whole.

    A loss may well be meant as an estimate: that is a hint, where its text speaks of all ranks or
    it comes from an evaluation.
    """
    hint: Finding | None = None
    for share, names, uses in _shown(context):
        text = " ".join(use.text for use in uses.values())
        metric = _METRIC.search(names)
        if metric and not share.trains:
            yield _finding(context, uses, "metric-not-reduced")
            return
        claims = _GLOBAL.search(text) or not share.trains
        if claims and (metric or _LOSS.search(names)):
            hint = hint or _finding(context, uses, "local-loss-as-global")
    if hint is not None:
        yield hint


def _shown(context: Context) -> Iterator[_Shown]:
    """Values of a rank's share that some ranks show for all, or decide by, and their names."""
    snapshot = context.snapshot
    states = {report.state for report in snapshot.ranks}
    if snapshot.outcome != "ok" or states != {"finished"} or len(snapshot.ranks) < 2:
        return
    text = "\n".join(cell.source for cell in (snapshot.cell, *snapshot.earlier_cells))
    # Reading all cells takes its time: first see whether there is anything to find.
    if not _USES.search(snapshot.cell.source) or not _DIVIDES.search(text):
        return
    if not _METRIC.search(text) and not _LOSS.search(text):
        return
    shares = Shares(context.sources)
    for share in shares:
        if _LOCAL.search(" ".join(share.origin)):
            continue
        for name in share.names:
            uses: dict[int, Use] = {}
            for rank in context.reports:
                for cell, use in shares.uses(share, name, rank):
                    if _counts(use):
                        if cell == snapshot.cell.number:
                            uses[rank] = use
                        break
            printed = {rank: use for rank, use in uses.items() if use.kind == "print"}
            decided = {rank: use for rank, use in uses.items() if use.kind == "decision"}
            if decided or 0 < len(printed) < len(context.reports):
                chosen = decided or printed
                names = {name, *share.origin, *(one for use in chosen.values() for one in use.keys)}
                yield share, " ".join(sorted(names)), chosen


def _counts(use: Use) -> bool:
    """Whether a use takes the value for that of all ranks."""
    if use.kind == "print":
        return not _LOCAL.search(use.text)
    if use.kind != "decision":
        return False
    statement = ast.parse(use.text).body[0]
    # `if correct:` asks whether there is anything, and decides nothing by how good it is
    compared = isinstance(statement, ast.If) and any(
        isinstance(node, ast.Compare) for node in ast.walk(statement.test)
    )
    return (
        compared
        and isinstance(statement, ast.If)
        and any(
            isinstance(node, (ast.Break, ast.Return))
            or (isinstance(node, ast.Call) and syntax.calls(node, "save"))
            for inner in statement.body
            for node in ast.walk(inner)
        )
    )


def _finding(context: Context, uses: dict[int, Use], cause: str) -> Finding:
    ranks = sorted(uses)
    use = uses[ranks[0]]
    place = context.sources.place(context.snapshot.cell.number, use.line, "reads")
    return conclude(
        "D.2.4",
        "prints-own-share" if use.kind == "print" else "decides-by-own-share",
        cause=cause,
        ranks=ranks,
        values={"what": "metric" if cause == "metric-not-reduced" else "loss", "line": use.line},
        places=dict.fromkeys(ranks, place),
        facts=[Fact(kind="data-divided"), Fact(kind="no-collective-before")],
        confidence="likely" if cause == "metric-not-reduced" else "possible",
        op="all_reduce",
    )
