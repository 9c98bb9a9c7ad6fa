"""Notes which random numbers a program draws for a training step, and for what.

After a backward pass, a function mode of torch shows the functions that draw from torch's random
state, until the next pass begins: after the first pass and after the second, if it drew something.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from threading import get_ident
from types import FrameType
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from ...model.training import Drawn
from .. import torch_private
from ..user_signals import let_through
from .fingerprints import joint_content, on_cpu, shape_text
from .frames import path_in_torch, user_line

#: Passes after which draws are noted, and draws of one step. They bound the record and were chosen.
PASSES, _MOST = 2, 32
#: Functions that draw. A permutation or a number of the program's own, such as whether to leave out
#: a layer, is often meant to be equal on all ranks.
_DRAWS = frozenset(
    """bernoulli bernoulli_ exponential_ log_normal_ multinomial normal normal_ poisson rand
    rand_like randint randint_like randn randn_like random_ uniform_""".split()
)
#: How many callers are searched for the loader that makes a batch, and where it does that.
_FRAMES, _FETCHES = 24, "utils/data/_utils/fetch.py"


@dataclass(slots=True)
class _Draw:
    """Numbers that were drawn, which are kept until the pass that follows."""

    numbers: torch.Tensor
    about: Drawn
    in_loader: bool
    is_input: bool = False


class DrawnRecord:
    """The random numbers that this run drew for its first steps."""

    def __init__(self) -> None:
        self._mode = _Watching(self)
        #: Whether the mode is active.
        self.entered = False
        self.begin_run()

    def begin_run(self) -> None:
        """Begin a cell."""
        self.leave()
        self.thread, self.problem = get_ident(), ""
        self._number = 0
        self._open: list[_Draw] = []
        #: The rows of the last input of DDP.
        self._rows = 0
        self.draws: list[Drawn] = []

    def after_backward(self, number: int) -> None:
        """Called after one of the first `PASSES` backward passes of a run."""
        if number == 1 or self.draws:
            modes = torch_private.function_modes()
            if modes == 0 and not self.entered:
                self._number = number
                self.entered = True
                self._mode.__enter__()

    def leave(self) -> None:
        """Watch nothing more, until the next pass has ended."""
        if self.entered and torch_private.function_modes() == 1:  # else another one is on top
            self.entered = False
            self._mode.__exit__(None, None, None)

    def calls(self, function: Any, named: dict[str, Any], result: Any) -> None:
        """Note the result of a function of torch, if it drew numbers."""
        name = getattr(function, "__name__", "")
        if name not in _DRAWS or named.get("generator") is not None or get_ident() != self.thread:
            return
        if len(self._open) == _MOST or type(result) is not torch.Tensor:
            return
        try:
            numbers = next(iter(on_cpu([result])), None)
            if numbers is None or not numbers.numel():
                return
            frame = sys._getframe(1)
            about = Drawn(
                number=self._number,
                where=user_line(frame),
                function=name,
                shape=shape_text(numbers),
                content=joint_content([numbers]),
            )
            self._open.append(_Draw(result, about, _is_in_loader(frame)))
        except Exception as error:  # noqa: BLE001  (it must not reach the user's code)
            let_through(error)
            self.leave()
            self.problem = f"{type(error).__name__}: {error}"

    def passes(self, inputs: tuple[Any, ...]) -> None:
        """Called before a forward pass with gradients through DDP, while the mode is active."""
        tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
        self._rows = next((one.shape[0] for one in tensors if one.dim()), 0)
        for draw in self._open:
            draw.is_input |= any(one is draw.numbers for one in tensors)

    def ends(self) -> None:
        """Called when the next backward pass begins."""
        self.leave()
        self.draws += [replace(one.about, use=use) for one in self._open if (use := self._use(one))]
        self._open, self._rows = [], 0

    def _use(self, draw: _Draw) -> Literal["", "sample", "input", "batch"]:
        if draw.in_loader:
            return "sample"
        if draw.is_input:
            return "input"
        numbers = draw.numbers
        if numbers.is_floating_point() and numbers.dim() and numbers.shape[0] == self._rows > 1:
            return "batch"
        return ""


class _Watching(TorchFunctionMode):
    """Shows a record what functions of torch return."""

    def __init__(self, record: DrawnRecord) -> None:
        super().__init__()
        self._record = record

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Call the function, and show its result."""
        __tracebackhide__ = True
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._record.calls(func, kwargs, result)
        return result


def _is_in_loader(frame: FrameType | None) -> bool:
    """Whether a loader is making a batch."""
    for _ in range(_FRAMES):
        if frame is None:
            return False
        if path_in_torch(frame.f_code.co_filename) == _FETCHES:
            return True
        frame = frame.f_back
    return False


#: The record of this process.
RECORD = DrawnRecord()
