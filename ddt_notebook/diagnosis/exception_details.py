"""What the text of an exception and the source tell beyond its kind: names, and a nearer cause."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from ddt_notebook.model import Fact, Place, Position, RankError
from ddt_notebook.model.checkpoints import CheckpointUse

from .advice import NAME_NOT_DEFINED, SYNTAX
from .attributes import plain_tensor
from .context import Context
from .errors import Meaning
from .modules import module_names

_UNUSED = re.compile(r"did not receive grad for rank \d+: ([\w., ]+)")
_TWICE = re.compile(r"Parameter at index \d+ with name ([\w.]+) has been marked")
_OWN_NUMBER = re.compile(r"^\[\d+\]:")
_CELL_LINE = re.compile(r'File "(cell\[\d+\])", line (\d+)')
_NO_NAME = re.compile(r"name '\w+' is not defined")
#: Python tells the file of a syntax error at the end: text that the cell gives to eval has another.
_IN_CELL = re.compile(r"\(cell\[\d+\], line \d+\)$")
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
#: What turns a tensor into a number, or cuts it from its graph.
_DETACHED = frozenset({"item", "detach", "tolist", "numpy", "float", "int", "no_grad", "data"})


def details(context: Context, error: RankError, meaning: Meaning) -> tuple[Meaning, list[Fact]]:
    """A nearer cause, where the source shows one, and the facts that show it."""
    if meaning.symptom == "D.1.11" and meaning.cause is None:
        return replace(meaning, cause=_of_the_cell(error)), []
    if meaning.cause == "out-of-memory":
        for place in _kept_graphs(context, error):
            likely = replace(meaning, cause="loss-keeps-graph", confidence="likely")
            return likely, [Fact(kind="keeps-graph", place=place)]
    if meaning.cause in ("path-missing", "checkpoint-unreadable"):
        return _too_early(context, error, meaning)
    if meaning.cause == "folder-made-by-every-rank" and _on_all_ranks(context, error):
        return replace(meaning, cause=None), [Fact(kind="existed-before")]
    if meaning.cause == "tensors-on-two-devices" and (kept := plain_tensor(context, error)):
        likely = replace(meaning, cause="tensor-attribute-not-registered", confidence="likely")
        place, attribute = kept
        return likely, [Fact(kind="plain-attribute", place=place, values={"name": attribute})]
    if meaning.cause == "dataloader-worker":
        return meaning, _in_worker(context, error)
    if meaning.cause == "models-differ":
        return meaning, _odd_first_rank(context)
    if meaning.cause == "unused-parameters" and (found := _UNUSED.search(error.message)):
        names = tuple(name.strip(" .") for name in found[1].split(","))
        return meaning, [Fact(kind="without-gradient", values={"parameters": names})]
    if meaning.cause == "parameter-ready-twice" and (found := _TWICE.search(error.message)):
        return meaning, [Fact(kind="ready-twice", values={"parameter": found[1].strip(".")})]
    return meaning, []


def _of_the_cell(error: RankError) -> str | None:
    """What the study has no class for, but what to do about it is plain."""
    innermost = error.frames[-1] if error.frames else error.where
    if innermost is None or innermost.cell is None:
        return None
    if error.type == "NameError" and _NO_NAME.match(error.message):
        return NAME_NOT_DEFINED
    syntax = error.type in ("SyntaxError", "IndentationError", "TabError")
    return SYNTAX if syntax and _IN_CELL.search(error.message) else None


def _too_early(context: Context, error: RankError, meaning: Meaning) -> tuple[Meaning, list[Fact]]:
    """Whether another rank wrote the checkpoint that could not be loaded, but later."""
    for report in context.snapshot.checkpoints:
        for use in report.uses:
            failed = _failed_load(context, error, use.path)
            if use.action != "save" or failed is None or use.ended_s <= failed.began_s:
                continue
            fact = Fact(
                kind="written-later",
                place=context.place(use.where, "saves"),
                ranks=(report.rank,),
                values={"later_s": use.ended_s - failed.began_s},
            )
            if meaning.cause == "path-missing":
                meaning = Meaning("D.1.6", "checkpoint-read-too-early")
            return meaning, [fact]
    return meaning, []


def _failed_load(context: Context, error: RankError, path: str) -> CheckpointUse | None:
    """The load of a file in which an exception was raised."""
    for report in context.snapshot.checkpoints:
        if context.reports[report.rank].error is not error or not report.uses:
            continue
        last = report.uses[-1]
        if last.action == "load" and last.path == path and not last.done:
            return last
    return None


def _in_worker(context: Context, error: RankError) -> list[Fact]:
    """What was raised in a worker of a DataLoader, and at which line of a cell."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    if "Original Traceback" not in error.message or len(lines) < 2:
        return []
    places = _CELL_LINE.findall(error.message)
    at = Position(file=places[-1][0], line=int(places[-1][1])) if places else None
    raised = context.place(at, "raised")
    return [Fact(kind="raised-in-worker", place=raised, values={"error": lines[-1]})]


def _odd_first_rank(context: Context) -> list[Fact]:
    """DDP compares with rank 0: if all others raise, and alike, it is rank 0 that differs."""
    told = set()
    for rank, report in context.reports.items():
        text = report.error.message if report.error is not None else ""
        if rank and "not to match sizes of the same param" in text:
            told.add(_OWN_NUMBER.sub("", text))
        elif rank:
            return []
    if len(told) == 1 and len(context.reports) > 2:
        return [Fact(kind="rank-0-is-odd", ranks=(0,))]
    return []


def _on_all_ranks(context: Context, error: RankError) -> bool:
    errors = [report.error for report in context.reports.values()]
    return all(other is not None and other.type == error.type for other in errors)


def _kept_graphs(context: Context, error: RankError) -> Iterator[Place]:
    """Lines of the loops around the exception that collect tensors with their graph."""
    modules = module_names(context, error)
    for frame in error.frames:
        if frame.cell is None:
            continue
        blocks = [node for node, _ in context.sources.chain(frame)]
        loops = [node for node in blocks if isinstance(node, _LOOPS)]
        if any(isinstance(node, ast.With) and _cuts(node) for node in blocks):
            continue
        for loop in reversed(loops):
            for node in ast.walk(loop):
                if isinstance(node, ast.stmt) and _collects(node, loop, modules):
                    yield Place(file=frame.file, line=node.lineno, code=ast.unparse(node))


def _cuts(block: ast.With) -> bool:
    """Whether it is ``with torch.no_grad():`` or the like."""
    text = " ".join(ast.unparse(item.context_expr) for item in block.items)
    return "no_grad" in text or "inference_mode" in text


def _collects(node: ast.stmt, loop: ast.AST, modules: frozenset[str]) -> bool:
    """Whether a statement adds what a module computed to a sum or a list."""
    match node:
        case ast.AugAssign(target=ast.Name(name), op=ast.Add(), value=value):
            return _has_graph(value, loop, modules) and not _starts_anew(name, loop)
        case ast.Assign(targets=[ast.Name(name)], value=ast.BinOp(op=ast.Add()) as value):
            rest = [side for side in (value.left, value.right) if not _is(side, name)]
            return len(rest) == 1 and _has_graph(rest[0], loop, modules)
        case ast.Expr(ast.Call(func=ast.Attribute(ast.Name(name), "append"), args=[value])):
            return _has_graph(value, loop, modules) and not _starts_anew(name, loop)
    return False


def _starts_anew(name: str, loop: ast.AST) -> bool:
    """Whether a variable gets a new value in each round."""
    assigned = (node for node in ast.walk(loop) if isinstance(node, ast.Assign))
    return any(_is(target, name) for node in assigned for target in node.targets)


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _has_graph(value: ast.expr, loop: ast.AST, modules: frozenset[str]) -> bool:
    """Whether an expression is computed by a module in this round, and still has its graph."""
    assigned = _assigned(loop)
    freed = _freed(loop, assigned)
    pending = [value]
    while pending:
        part = pending.pop()
        variables = _variables(part)
        names = variables | {
            node.attr for node in ast.walk(part) if isinstance(node, ast.Attribute)
        }
        compared = any(isinstance(node, ast.Compare) for node in ast.walk(part))
        if compared or _DETACHED & names or freed & variables:
            continue
        if names & modules:
            return True
        pending += [assigned.pop(name) for name in variables & assigned.keys()]
    return False


def _assigned(loop: ast.AST) -> dict[str, ast.expr]:
    """The variables that a loop assigns, and what."""
    return {
        target.id: node.value
        for node in ast.walk(loop)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _freed(loop: ast.AST, assigned: dict[str, ast.expr]) -> set[str]:
    """Variables of which ``backward`` frees what the graph holds, and those they come from."""
    calls = (node for node in ast.walk(loop) if isinstance(node, ast.Call) and not node.keywords)
    pending = [
        call.func.value.id
        for call in calls
        if isinstance(call.func, ast.Attribute)
        and call.func.attr == "backward"
        and isinstance(call.func.value, ast.Name)
    ]
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending += _variables(assigned[name]) & assigned.keys() if name in assigned else ()
    return found


def _variables(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
