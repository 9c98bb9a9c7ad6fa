"""Lets the ranks agree when a loop ends that each of them ended by its own clock."""

from __future__ import annotations

import ast

from ddt_notebook.program.names import COMMUNICATING
from ddt_notebook.program.nodes import called_name, calls_in, end

from .fault import Correction, Fault

_ALL, _ANY = ("on_all_ranks", "MIN"), ("on_any_rank", "MAX")


def agree_on_end(fault: Fault) -> Correction | None:
    """Reduce the condition of the loop, or that of the ``if`` around ``break``, over all ranks."""
    finding, snapshot = fault.finding, fault.snapshot
    if {*finding.ranks, *finding.waiting} != set(range(snapshot.world_size)):
        return None  # a rank that is not in the loop would be missing in the reduction
    decides = fault.lines_of(finding.ranks)
    loops = [
        loop
        for loop in fault.tree.of_kind(ast.While)
        if decides <= set(range(loop.lineno, end(loop) + 1))
        and fault.lines_of(finding.waiting) <= set(range(loop.body[0].lineno, end(loop) + 1))
    ]
    if not loops or not decides or not _can_reduce(fault):
        return None
    loop = max(loops, key=lambda one: one.lineno)
    leaves = [one for one in ast.walk(loop) if isinstance(one, ast.Break | ast.Return)]
    test: ast.expr
    if not leaves and not loop.orelse and decides == {loop.lineno}:
        test, (name, operation) = loop.test, _ALL
        says = f"the loop goes on only while `{ast.unparse(test)}` holds on all ranks"
    else:
        ends = [one for one in loop.body if isinstance(one, ast.If) and one.body == leaves]
        if len(ends) != 1 or ends[0].orelse or not decides <= {ends[0].lineno, leaves[0].lineno}:
            return None
        test, (name, operation) = ends[0].test, _ANY
        says = f"all ranks leave the loop as soon as `{ast.unparse(test)}` holds on any of them"
    if any(called_name(call) in COMMUNICATING for call in calls_in(test)):
        return None
    (head,) = fault.slice(loop.lineno, loop.lineno)
    if name in fault.cell.source or head[: loop.col_offset].strip():
        return None
    changed = fault.replaced([(test, f"{name}({ast.unparse(test)})")], says)
    return Correction(_with_function(fault, changed.source, loop, name, operation), says)


def _with_function(fault: Fault, source: str, loop: ast.While, name: str, operation: str) -> str:
    """Return the source with the function that reduces a condition above the loop."""
    on_gpu = fault.snapshot.backend == "nccl" or fault.snapshot.device.startswith("cuda")
    where = ", device=device" if on_gpu else ""
    function = [
        f"def {name}(condition):",
        f"    agreed = torch.tensor(int(bool(condition)){where})",
        f"    dist.all_reduce(agreed, op=dist.ReduceOp.{operation})",
        "    return bool(agreed)",
        "",
    ]
    lines = source.split("\n")
    at = loop.lineno - fault.cell.first_line
    indentation = lines[at][: loop.col_offset]
    if at and lines[at - 1].strip() and not lines[at - 1].rstrip().endswith(":"):
        function.insert(0, "")
    lines[at:at] = [f"{indentation}{line}".rstrip() for line in function]
    return "\n".join(lines)


def _can_reduce(fault: Fault) -> bool:
    """Whether the names of the function mean in this source what they mean in a cell."""
    if not fault.cell.file:
        return True
    imported = {
        (alias.name, alias.asname)
        for node in fault.tree.of_kind(ast.Import)
        for alias in node.names
    }
    on_cpu = fault.snapshot.device == "cpu"  # a script names its device as it likes
    return on_cpu and {("torch", None), ("torch.distributed", "dist")} <= imported
