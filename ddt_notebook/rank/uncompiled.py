"""Keeps ``torch.compile`` from compiling what records a run.

Inside a compiled function, the compiler examines each Python function that is called between two
graphs: also trace functions, hooks, and the functions that replace those of PyTorch. It cannot
trace all of them, and what it makes of them may fail. Debuggers are on its list of files to skip;
here each code object of this package is marked instead, since the list also says what the compiler
must not inline, and ``dist.all_reduce`` has to stay a collective of the graph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType, FunctionType

from . import torch_private

_PACKAGE = __package__.partition(".")[0]
#: A local variable of the functions through which the user's calls reach those of PyTorch.
_PASSES_ON = "__tracebackhide__"


def leave_recorder_uncompiled() -> None:
    """Mark the functions of all modules of this package that have been imported."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == _PACKAGE:
            for value in list(vars(module).values()):
                for code in _codes(value, name):
                    # what PyTorch calls from there, such as the model inside DDP, is compiled
                    callees = _PASSES_ON not in code.co_varnames
                    torch_private.leave_uncompiled(code, callees=callees)


def _codes(value: object, module: str) -> Iterator[CodeType]:
    """The code of a function or a class of a module, and of the functions in it."""
    value = getattr(value, "__wrapped__", value)
    if getattr(value, "__module__", None) != module:
        return
    if isinstance(value, type):
        for member in list(vars(value).values()):
            if isinstance(member, property):
                member = member.fget
            yield from _codes(getattr(member, "__func__", member), module)
    elif isinstance(value, FunctionType):
        yield from _nested(value.__code__)


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
