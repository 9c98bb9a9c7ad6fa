"""Rules about results that are read too early, on the wrong rank, or never waited for."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .note import Note
from .program import Program
from .values import LOCAL

_METRIC = re.compile(
    r"accuracy|\bacc\b|f1|bleu|recall|precision|\bauc\b|miou|perplexity", re.IGNORECASE
)


def too_early(program: Program) -> Iterator[Note]:
    """A tensor that is read while a collective still works on it."""
    for passage in program.passages:
        for event in passage.facts[0].of("read pending"):
            mark, _, text = event.text.rpartition("\0")
            _, line, op, _ = mark.split("\0")
            yield Note(
                symptom="D.2.4",
                title=f"{text} is read before {op} has finished",
                cause="result-read-before-wait",
                line=event.line,
                also=((int(line), "has not been waited for"),),
                op=op,
            )


def changed(program: Program) -> Iterator[Note]:
    """A tensor that is changed while it is still being sent or reduced."""
    for passage in program.passages:
        for event in passage.facts[0].of("changed pending"):
            _, line, op, name = event.text.split("\0")
            yield Note(
                symptom="D.2.4",
                title=f"{name} is changed before {op} has finished",
                cause="buffer-changed-before-wait",
                line=event.line,
                also=((int(line), "has not been waited for"),),
                op=op,
            )


def on_other_ranks(program: Program) -> Iterator[Note]:
    """The result of a reduce, read where it is not."""
    seen: set[int] = set()
    for passage in program.passages:
        for facts in passage.facts:
            for event in facts.of("read stale"):
                mark, _, text = event.text.rpartition("\0")
                _, line, target = mark.split("\0")
                if int(line) not in seen:
                    seen.add(int(line))
                    yield Note(
                        symptom="D.2.4",
                        title=f"{text} holds the result on rank {target} alone, others read it too",
                        cause="reduce-read-on-wrong-rank",
                        line=event.line,
                        also=((int(line), f"leaves the result on rank {target}"),),
                        op="reduce",
                    )


def never_waited(program: Program) -> Iterator[Note]:
    """Asynchronous collectives of which the handle is dropped."""
    if program.mentions(r"wait|is_completed|synchronize|get_future"):
        return
    seen: set[int] = set()
    for passage in program.passages:
        for handle in passage.facts[0].handles:
            kept = re.match(r"(\w+)\s*=", program.line(handle.line))
            used = kept is not None and len(re.findall(rf"\b{kept[1]}\b", program.source)) > 1
            if handle.line not in seen and not used:
                seen.add(handle.line)
                yield Note(
                    symptom="D.2.4",
                    title=f"nothing waits for the asynchronous {handle.op}",
                    cause="handle-not-waited",
                    line=handle.line,
                    confidence="possible",
                    op=handle.op,
                )


def own_metric(program: Program) -> Iterator[Note]:
    """A figure of one rank's share of the data, shown by one rank as if it were of all."""
    if not program.facts:
        return
    for event in program.facts[0].of("shown"):
        if (
            program.is_alone(event)
            and LOCAL in event.values[0].marks
            and _METRIC.search(event.text)
        ):
            yield Note(
                symptom="D.2.4",
                title="one rank shows a figure of its own share of the data",
                cause="metric-not-reduced",
                line=event.line,
                confidence="possible",
            )
