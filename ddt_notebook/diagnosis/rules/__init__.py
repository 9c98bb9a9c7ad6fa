"""The rules: each looks for one kind of fault in a prepared snapshot and yields findings as data.

A rule is a function ``(context: Context) -> Iterator[Finding]``. Its module lists it below, in
``RULES``, or in ``HINTS`` if all that it yields is only possible. It contains no English::

    yield conclude(
        "D.2.4",                                  # the symptom of the study
        "changed-before-wait",                    # kind: what happened
        cause="buffer-changed-before-wait",       # id of the fault card: adds what to change
        ranks=calls,
        values=of_call(context, call) | {"line": 7},
        places={rank: context.place(position, "changes") for rank in calls},
        facts=[
            Fact(kind="sent-at", place=context.place(where, "called")),
            Fact(kind="no-wait-between"),
        ],
        confidence="likely",
    )

The kind of the finding has a title in `wording.TITLES`, and the kind of each fact a sentence in
`wording.FACTS`, or in `wording.REASONS` if it is a likely reason that was read from the source.
These entries are templates with the names of the values::

    TITLES["changed-before-wait"] = "{ranks} {changes|change} in line {line} the tensor that …"
    FACTS["sent-at"] = "sent at {place}"

So a rule touches two places: its own file and `wording`. Names of values have their unit
(``waited_s``, ``size_bytes``) and hold plain data: numbers, names, tuples. What a title needs and
the facts hold already is taken from the facts. A place is made by `Context.place` or
`Sources.place`, with what the rank did there (`model.Place`). `facts` has what several rules
report: the call in which ranks are blocked, what the others did instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ddt_notebook.diagnosis import of_frameworks
from ddt_notebook.diagnosis.context import Context
from ddt_notebook.model import Finding

from . import (
    agreements,
    building,
    checkpoints,
    contrasts,
    counted_alone,
    crash,
    cycle,
    data,
    diverged,
    economy,
    epochs,
    evaluations,
    exception,
    exchanged,
    gradients,
    groups,
    hang,
    kept_states,
    metrics,
    mismatch,
    normalisation,
    performance,
    placing,
    random_numbers,
    rates,
    reading,
    scaling,
    setup,
    silent,
    stage_data,
    standing,
    steps,
    threads,
    unwrapped,
    used_modules,
    values,
)

Rule = Callable[[Context], Iterable[Finding]]

#: Every module with rules, in the order of their findings: a cause comes before its consequences.
#: A rule leaves out what a finding of another rule explains.
_MODULES = (
    crash,
    exception,
    setup,
    building,
    agreements,
    stage_data,
    threads,
    mismatch,
    groups,
    hang,
    standing,
    cycle,
    silent,
    reading,
    exchanged,
    metrics,
    values,
    diverged,
    used_modules,
    kept_states,
    contrasts,
    steps,
    counted_alone,
    unwrapped,
    *of_frameworks.rule_modules(),
    gradients,
    normalisation,
    random_numbers,
    data,
    epochs,
    evaluations,
    placing,
    checkpoints,
    performance,
    rates,
    scaling,
    economy,
)
RULES: tuple[Rule, ...] = tuple(
    rule for module in _MODULES for rule in getattr(module, "RULES", ())
)
HINTS: tuple[Rule, ...] = tuple(
    rule for module in _MODULES for rule in getattr(module, "HINTS", ())
)
