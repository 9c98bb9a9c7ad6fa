"""Rules about single lines: names that torch no longer has, averages, levels, and ends."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .note import Note
from .program import Program
from .shape import written

#: Names that torch has had, and what took their place.
_GONE = {
    "all_gather_base": "all_gather_into_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_multigpu": "all_reduce",
    "broadcast_multigpu": "broadcast",
    "reduce_multigpu": "reduce",
    "all_gather_multigpu": "all_gather",
    "reduce_scatter_multigpu": "reduce_scatter",
    "get_default_group": "group.WORLD",
}
_GONE_MODULES = ("torch._six", "torch.utils.data.dataloader._SingleProcessDataLoaderIter")
_NARROW = r"torch\.(int16|short|float8_\w+|uint16)|\.short\(\)"
_MEAN = re.compile(r"\b(mean|avg|average[d]?)\b", re.IGNORECASE)
_SHARES = re.compile(r"world_size|get_world_size|\bn_?procs\b|hvd\.size", re.IGNORECASE)


def gone(program: Program) -> Iterator[Note]:
    """Modules and functions that today's torch does not have."""
    for node in ast.walk(program.tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or node.names[0].name
            if module in _GONE_MODULES:
                yield Note(
                    symptom="A.2",
                    title=f"torch no longer has {module}",
                    cause="package-version",
                    line=node.lineno,
                )
        elif isinstance(node, ast.Attribute) and node.attr in _GONE:
            if written(node.value) not in ("dist", "torch.distributed", "c10d"):
                continue
            yield Note(
                symptom="D.1.8",
                title=f"torch.distributed has no {node.attr}; it has {_GONE[node.attr]}",
                cause="attribute-missing",
                line=node.lineno,
            )


def _blocks(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list):
                yield block


def _reduced(statement: ast.stmt) -> tuple[str, str] | None:
    """The tensor and the operation of a blocking ``all_reduce``."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not call.args:
        return None
    if getattr(call.func, "attr", getattr(call.func, "id", "")) != "all_reduce":
        return None
    text = written(call)
    if "group" in text or "async_op" in text:
        return None
    named = re.search(r"SUM|MAX|MIN|PRODUCT|AVG|BAND|BOR", text)
    return written(call.args[0]), named[0] if named else "" if "op=" in text else "SUM"


def averages(program: Program) -> Iterator[Note]:
    """Sums that are shown as means, and means that are divided once more."""
    for block in _blocks(program.tree):
        for index, statement in enumerate(block):
            reduced = _reduced(statement)
            if reduced is None:
                continue
            tensor, op = reduced
            for later in block[index + 1 :]:
                text = written(later)
                if op == "AVG" and _divides(later, tensor):
                    yield Note(
                        symptom="D.2.4",
                        title=f"{tensor} is averaged by the collective and divided once more",
                        cause="averaged-twice",
                        line=later.lineno,
                        also=((statement.lineno, "averages it"),),
                        confidence="possible",
                        op="all_reduce",
                    )
                elif op == "SUM" and _shows_mean(later, tensor):
                    yield Note(
                        symptom="D.2.4",
                        title=f"{tensor} is a sum over the ranks and is shown as a mean",
                        cause="sum-shown-as-mean",
                        line=later.lineno,
                        also=((statement.lineno, "sums it"),),
                        confidence="possible",
                        op="all_reduce",
                    )
                if re.search(rf"(?<![\w.]){re.escape(tensor)}\b", text):
                    break


def _divides(statement: ast.stmt, tensor: str) -> bool:
    divided = isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Div)
    if divided and written(statement.target) == tensor:  # type: ignore[attr-defined]
        return _SHARES.search(written(statement.value)) is not None  # type: ignore[attr-defined]
    return False


def _shows_mean(statement: ast.stmt, tensor: str) -> bool:
    """Whether ``print`` calls it a mean without dividing by anything."""
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or getattr(node.func, "id", "") != "print":
            continue
        text = written(node)
        named = re.search(rf"(?<![\w.]){re.escape(tensor)}\b", text)
        divided = any(isinstance(n, ast.BinOp) for n in ast.walk(node)) or ".mean(" in text
        if named and not divided and _MEAN.search(text.replace(tensor, "")):
            return True
    return False


def narrow(program: Program) -> Iterator[Note]:
    """Collectives on element types that the backends do not reduce."""
    for block in _blocks(program.tree):
        kinds: dict[str, bool] = {}
        for statement in block:
            reduced = _reduced(statement)
            if reduced is not None and kinds.get(reduced[0]):
                yield Note(
                    symptom="D.1.10",
                    title=f"{reduced[0]} is of a type that no backend reduces",
                    cause="dtype-not-supported",
                    line=statement.lineno,
                    op="all_reduce",
                )
            elif isinstance(statement, ast.Assign):
                for target in statement.targets:
                    text = written(statement.value)
                    kinds[written(target)] = re.search(rf"({_NARROW})\)*$", text) is not None


def debugging(program: Program) -> Iterator[Note]:
    """The debug level at which DDP on gloo crashes."""
    if program.mentions("nccl") or not program.mentions(r"DDP\(|DistributedDataParallel\("):
        return
    for number, line in enumerate(program.lines, 1):
        level = re.search(r"set_debug_level\(.*DETAIL", line)
        variable = re.search(r"TORCH_DISTRIBUTED_DEBUG[\"']\]\s*=\s*[\"']DETAIL", line)
        if (level or variable) and not line.lstrip().startswith("#"):
            yield Note(
                symptom="D.1.7",
                title="DDP on gloo crashes at the debug level DETAIL",
                cause="debug-level-detail",
                line=number,
            )


def ends(program: Program) -> Iterator[Note]:
    """A process that ends under a condition, while others go on."""
    for passage in program.passages:
        for facts in passage.facts[:1]:
            for event in facts.of("exit"):
                conditions = [around for around in event.around if not around.loop]
                if conditions and facts.of("issue"):
                    yield Note(
                        symptom="D.1.11",
                        title="a rank may end its process while others wait for it",
                        cause="process-exit",
                        line=event.line,
                        also=((conditions[-1].line, "decides it on each rank"),),
                    )


def checkpointed(program: Program) -> Iterator[Note]:
    """Parameters that are used several times inside reentrant checkpoints."""
    if not program.mentions(r"DDP\(|DistributedDataParallel\(") or program.mentions("static_graph"):
        return
    for loop in ast.walk(program.tree):
        if not isinstance(loop, ast.For):
            continue
        for node in ast.walk(loop):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            reentrant = any(
                k.arg == "use_reentrant" and getattr(k.value, "value", None) is True
                for k in node.keywords
            )
            same = re.fullmatch(r"self\.\w+", written(node.args[0]))
            if name == "checkpoint" and reentrant and same:
                yield Note(
                    symptom="D.1.4",
                    title=f"{same[0]} is used in every round, inside a reentrant checkpoint",
                    cause="parameter-ready-twice",
                    line=node.lineno,
                    also=((loop.lineno, "repeats it"),),
                )


def kept_graphs(program: Program) -> Iterator[Note]:
    """Losses that are added up together with the graph of each batch."""
    lines = {
        event.line
        for passage in program.passages
        for event in passage.facts[0].events
        if event.what in ("called", "module called")
    }
    done: set[int] = set()
    for loop in ast.walk(program.tree) if lines else ():
        if not isinstance(loop, (ast.For, ast.While)) or "backward" in written(loop):
            continue
        inside = list(ast.walk(loop))
        losses = {
            written(target)
            for node in inside
            if isinstance(node, ast.Assign)
            and lines & set(range(node.lineno, (node.end_lineno or 0) + 1))
            and not re.search(r"\.(item|detach|argmax|max|tolist)\(", written(node.value))
            for target in node.targets
        }
        for node in inside if losses else ():
            if not isinstance(node, ast.AugAssign) or node.lineno in done:
                continue
            total, added = written(node.target), written(node.value)
            shown = program.mentions(rf"(print|log|info|append|float)\(.*\b{re.escape(total)}\b")
            if not isinstance(node.op, ast.Add) or added not in losses:
                continue
            if shown and not _trained(program, total):
                done.add(node.lineno)
                yield Note(
                    symptom="D.1.2",
                    title=f"{total} keeps the graph of every batch that is added to it",
                    cause="loss-keeps-graph",
                    line=node.lineno,
                )


def _trained(program: Program, total: str) -> bool:
    return program.mentions(rf"\b{re.escape(total)}(\s*/\s*\w+\))?\.backward\(")


def fixed_outputs(program: Program) -> Iterator[Note]:
    """As many outputs as a number says, whatever the number of ranks."""
    made = {
        written(target): many
        for node in program.statements
        if isinstance(node, ast.Assign) and (many := _counted(node.value))
        for target in node.targets
    }
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        op = getattr(node.func, "attr", getattr(node.func, "id", ""))
        many = made.get(written(node.args[0])) or _counted(node.args[0])
        in_group = len(node.args) > 2 or any(k.arg == "group" for k in node.keywords)
        if op in ("all_gather", "all_gather_object") and many and not in_group:
            yield Note(
                symptom="C.3",
                title=f"{op} is given {many} outputs, whatever the number of ranks",
                cause="output-list-length",
                line=node.lineno,
                confidence="possible",
                op=op,
            )


def _counted(value: ast.expr) -> int | None:
    """The length of a list that a number in the source has made."""
    match value:
        case ast.ListComp(
            generators=[ast.comprehension(iter=ast.Call(args=[ast.Constant(value=int(many))]))]
        ):
            return many
        case ast.BinOp(left=ast.List(), op=ast.Mult(), right=ast.Constant(value=int(many))):
            return many
    return None
