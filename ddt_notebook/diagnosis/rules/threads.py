"""Rules about threads that enter collectives beside the main thread."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Fact, Finding, Place, Position
from ddt_notebook.model.finding import Values

from .facts import blocked_in, of_wait


def in_threads(context: Context) -> Iterator[Finding]:
    """Report a collective of a thread that met the collectives of the main threads."""
    clash = context.thread_clash
    if clash is None:
        return
    ranks = sorted(clash.calls)
    call = clash.calls[ranks[0]]
    waiting = sorted({*context.victims(ranks), *context.halted} - set(ranks))
    values: Values = {"op": call.op, "thread": call.thread}
    if clash.others:
        values["others"] = clash.others
    facts = [
        Fact(kind="thread-started", place=context.place(at, "created"), ranks=(rank,))
        for rank, one in clash.calls.items()
        for at in one.started[:1]
    ]
    facts += [
        Fact(kind="start-depends-on-rank", place=place, ranks=tuple(ranks))
        for place in _decided_at(context, call.started)
        if clash.others
    ]
    died = [rank for rank in ranks if context.reports[rank].state == "died"]
    facts += [
        Fact(
            kind="process-ended",
            ranks=(rank,),
            values={
                "signal": context.reports[rank].exit_signal,
                "exit_code": context.reports[rank].exit_code,
            },
        )
        for rank in died
    ]
    facts += blocked_in(context, [*(r for r in ranks if r in context.halted), *waiting])
    yield conclude(
        "D.1.1" if died else "D.2.1",
        "thread-without-partners" if clash.others else "thread-shares-group",
        cause="collective-in-a-thread",
        ranks=ranks,
        waiting=waiting,
        values=values | of_wait(context, waiting),
        places={
            **context.places(waiting),
            **{rank: context.place(one.where, "called") for rank, one in clash.calls.items()},
        },
        facts=facts,
        confidence="certain" if clash.certain else "likely",
        op=call.op,
    )


def _decided_at(context: Context, lines: Iterable[Position]) -> Iterator[Place]:
    """Yield the innermost condition on the rank under which the thread was started."""
    program = context.program
    for line in lines:
        statement = program.statement_at(line)
        if statement is None:
            continue
        tests = [one.test for one in ast.walk(statement) if isinstance(one, ast.IfExp)]
        tests += [b.owner.test for b in program.blocks(statement) if isinstance(b.owner, ast.If)]
        for test in tests:
            if program.conditions.reads_rank(test):
                yield program.place(test, "passed")
                return


RULES = (in_threads,)
