"""Rules about results that are read too early, on the wrong rank, or with a wrong meaning."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from ddt_notebook.model.operations import MESSAGES
from ddt_notebook.program.names import WORLD_CALLS, WORLD_NAMES
from ddt_notebook.program.nodes import (
    called_name,
    calls_in,
    dotted_name,
    keyword,
    last_name,
    literals_of,
    names_in,
    occurs_in,
    source_of,
)
from ddt_notebook.program.trace import Kind
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.values import MEASURED, HeldElsewhere, InFlight

from . import proof
from .foreseen import Foreseen, foreseen, possible, shown, unless_doubted

_MEAN = re.compile(r"\b(mean|avg|averaged?)\b", re.IGNORECASE)
#: Data types that no backend reduces.
_NARROW = re.compile(r"torch\.(int16|short|uint16|float8_\w+)")
_WAITS = ("wait", "wait_all", "is_completed", "synchronize", "get_future")


def in_flight(program: TracedProgram) -> Iterator[Foreseen]:
    """Report tensors that are read or changed while an asynchronous call still uses them."""
    for event in program.events(Kind.READ_IN_FLIGHT, Kind.CHANGED_IN_FLIGHT):
        call = event.about
        assert isinstance(call, InFlight)
        issued = shown(call.line, "not-waited-for")
        if event.kind is Kind.READ_IN_FLIGHT:
            kind, cause, tensor = "read-in-flight", "result-read-before-wait", event.text
        else:
            kind, cause, tensor = "changed-in-flight", "buffer-changed-before-wait", call.name
        found = foreseen(kind, cause, event.line, issued, tensor=tensor, op=call.op)
        # Between two functions, another one may wait.
        yield unless_doubted(found, proof.in_one_function(program, event.line, call.line))


def read_elsewhere(program: TracedProgram) -> Iterator[Foreseen]:
    """Report reads of a ``reduce`` result on a rank that does not have it."""
    seen: set[int] = set()
    for passage in program.passages:
        for event in (one for trace in passage.traces for one in trace.of(Kind.READ_ELSEWHERE)):
            held = event.about
            assert isinstance(held, HeldElsewhere)
            if held.line not in seen:
                seen.add(held.line)
                reduced = shown(held.line, "leaves-result-on", rank=held.rank)
                values = {"tensor": event.text, "rank": held.rank, "op": "reduce"}
                cause = "reduce-read-on-wrong-rank"
                found = foreseen("read-elsewhere", cause, event.line, reduced, **values)
                together = proof.in_one_function(program, event.line, held.line)
                together = together or (passage.called and proof.is_cell(program))
                yield unless_doubted(found, event.op != "unknown" and together)


def never_waited(program: TracedProgram) -> Iterator[Foreseen]:
    """Report asynchronous collectives whose handle is dropped."""
    if not program.tree.names.isdisjoint(_WAITS):
        return
    kept = {
        node.value.lineno: last_name(node.targets[0])
        for node in program.tree.nodes
        if isinstance(node, ast.Assign)
    }
    seen: set[int] = set()
    for handle in (one for passage in program.passages for one in passage.traces[0].handles):
        used = kept.get(handle.line) in program.tree.variables_read or handle.op in MESSAGES
        if handle.line not in seen and not used:
            seen.add(handle.line)
            yield possible("never-waited-for", "handle-not-waited", handle.line, op=handle.op)


def own_metric(program: TracedProgram) -> Iterator[Foreseen]:
    """Report metrics of one rank's share of the data that are shown as those of all ranks."""
    for event in program.first.of(Kind.SHOWN):
        if MEASURED in event.values[0].marks and program.is_alone(event):
            yield possible("shows-own-share", "metric-not-reduced", event.line)


# -- sums, averages and element types --------------------------------------------------------------


def _reduced(statement: ast.stmt) -> tuple[str, str]:
    """Return tensor and operation of a blocking ``all_reduce`` on all ranks, else empty strings."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or called_name(call) != "all_reduce" or not call.args:
        return "", ""
    if keyword(call, "group") is not None or keyword(call, "async_op") is not None:
        return "", ""
    given = keyword(call, "op") or (call.args[1] if len(call.args) > 1 else None)
    return source_of(call.args[0]), last_name(given) if given is not None else "SUM"


def averages(program: TracedProgram) -> Iterator[Foreseen]:
    """Report sums that are shown as means, and means that are divided again."""
    for block in program.tree.statement_lists:
        for index, statement in enumerate(block):
            tensor, op = _reduced(statement)
            for later in block[index + 1 :] if tensor else ():
                given = {"tensor": tensor, "op": "all_reduce"}
                if op == "AVG" and _divides_by_world_size(later, tensor):
                    averaged = shown(statement.lineno, "averages-it")
                    kind = "averaged-twice"
                    yield possible(kind, "averaged-twice", later.lineno, averaged, **given)
                elif op == "SUM" and _shows_mean(later, tensor):
                    summed = shown(statement.lineno, "sums-it")
                    kind = "sum-shown-as-mean"
                    yield possible(kind, "sum-shown-as-mean", later.lineno, summed, **given)
                if occurs_in(later, tensor):
                    break


def _divides_by_world_size(statement: ast.stmt, tensor: str) -> bool:
    match statement:
        case ast.AugAssign(op=ast.Div()) if source_of(statement.target) == tensor:
            return not set(names_in(statement.value)).isdisjoint(WORLD_NAMES | WORLD_CALLS)
    return False


def _shows_mean(statement: ast.stmt, tensor: str) -> bool:
    """Whether ``print`` shows it as a mean without a division."""
    for call in calls_in(statement):
        if called_name(call) == "print" and occurs_in(call, tensor):
            divided = any(isinstance(node, ast.BinOp) for node in ast.walk(call))
            divided = divided or any(called_name(inner) == "mean" for inner in calls_in(call))
            if not divided and _MEAN.search(literals_of(call)):
                return True
    return False


def narrow_types(program: TracedProgram) -> Iterator[Foreseen]:
    """Report collectives on data types that no backend reduces."""
    for block in program.tree.statement_lists:
        narrow: dict[str, bool] = {}
        for statement in block:
            tensor, _ = _reduced(statement)
            if narrow.get(tensor):
                given = {"tensor": tensor, "op": "all_reduce"}
                yield foreseen("type-not-reduced", "dtype-not-supported", statement.lineno, **given)
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    narrow[source_of(target)] = _is_narrow(statement.value)


def _is_narrow(value: ast.expr) -> bool:
    """Whether an expression makes a tensor of such a type."""
    if not isinstance(value, ast.Call):
        return False
    types = [*value.args, *(one.value for one in value.keywords)]
    narrow = any(_NARROW.fullmatch(dotted_name(one)) for one in types)
    return narrow or called_name(value) == "short"


def fixed_outputs(program: TracedProgram) -> Iterator[Foreseen]:
    """Report outputs whose number is fixed in the source instead of the number of ranks."""
    made = {
        source_of(target): _counted(node.value)
        for node in program.tree.nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
    }
    for call in program.tree.of_kind(ast.Call):
        op = called_name(call)
        if op not in ("all_gather", "all_gather_object") or not call.args:
            continue
        many = made.get(source_of(call.args[0])) or _counted(call.args[0])
        if many and len(call.args) < 3 and keyword(call, "group") is None:
            yield possible("outputs-fixed", "output-list-length", call.lineno, op=op, outputs=many)


def _counted(value: ast.expr) -> int | None:
    """Return the length of a list that a number in the source determines."""
    match value:
        case ast.ListComp(
            generators=[ast.comprehension(iter=ast.Call(args=[ast.Constant(value=int(many))]))]
        ):
            return many
        case ast.BinOp(left=ast.List(), op=ast.Mult(), right=ast.Constant(value=int(many))):
            return many
    return None


RULES = (
    in_flight, read_elsewhere, never_waited, own_metric, averages, narrow_types, fixed_outputs
)  # fmt: skip
