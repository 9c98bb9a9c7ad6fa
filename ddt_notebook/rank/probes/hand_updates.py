"""Notices parameters that the user's code updates itself, without an optimizer."""

from __future__ import annotations

import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch
from torch.optim import Optimizer

from ...model import Position
from ...model.training import OptimizerTraining, TrainingState
from .fingerprints import choose, next_sampled, shape_text, sketches
from .frames import local_variables, user_frames, user_line
from .objects import find
from .optimizers import OptimizerLog

#: The most nodes of a graph that are visited, and frames in which names are searched.
_MAX_NODES = 20_000
_FRAMES = 6
#: One change may be the initialisation of the parameters.
_CHANGES = 2
_ELEMENTS = 1024
#: Parameters of optimizers of which sketches are taken before the first pass.
_FIRST = 64


class HandUpdates:
    """The leaves of the first loss of a run, and whether they change between passes.

    Their values are compared and not the counts of writes, which leave out those to ``data``.
    """

    def __init__(self) -> None:
        #: False once it is known that nothing is updated by hand.
        self.watches = True
        self._references: list[weakref.ref[torch.Tensor]] = []
        #: Whether an optimizer holds the leaves, which may not have stepped before the next pass.
        self._may_be_unused = False
        #: The ``id`` of each parameter of optimizers that take no steps.
        self._unused: set[int] = set()
        #: Sketches of these before the first pass, by the ``id`` of the parameter.
        self._first: dict[int, int] = {}
        self._begins: tuple[int, ...] = ()
        self._last: tuple[int, ...] = ()
        self._passes = 0
        self._sampled_at = 0
        self._changes = 0
        self._names: tuple[str, ...] = ()
        self._shapes: dict[str, int] = {}
        self._model = ""
        self._where: Position | None = None

    def backward(
        self, loss: torch.Tensor, optimizers: Iterable[Optimizer], stepped: Sequence[OptimizerLog]
    ) -> None:
        """Called before each backward pass of a run.

        Parameters
        ----------
        loss
            The loss of the pass.
        optimizers
            The optimizers that exist. Those of which none has stepped before the second pass count
            as unused: the program updates what they hold.
        stepped
            The records of those that have stepped in this run.
        """
        if not self._passes:
            self._begin(loss, _held(optimizers))
            self._may_be_unused = not self._references
            if self._may_be_unused:
                self._first = _first_values(optimizers)
        elif self._may_be_unused:
            self._may_be_unused = False
            if not stepped:
                self._unused = _held(optimizers)
                self._sampled_at = self._passes
                self._begin(loss, set())
                held = [reference() for reference in self._references]
                self._begins = tuple(
                    self._first.get(id(one), now) for one, now in zip(held, self._last, strict=True)
                )
        elif self._passes == self._sampled_at:
            self._leave_to(optimizers, stepped)
            self._look()
        self.watches = bool(self._references) or self._may_be_unused
        if self._passes == self._sampled_at:
            self._sampled_at = next_sampled(self._passes)
        self._passes += 1

    def _begin(self, loss: torch.Tensor, held: set[int]) -> None:
        leaves = _leaves(loss, held)
        if not leaves or any(type(x) not in _PLAIN or not x.is_cpu for x in leaves):
            return
        self._where = user_line(sys._getframe())
        self._shapes = dict(Counter(map(shape_text, leaves)))
        names = self._find_names()
        watched = [leaves[at] for at in choose(len(leaves))]
        self._names = tuple(names.get(id(x), f"tensor {at}") for at, x in enumerate(watched))
        self._model = self._names[0].partition(".")[0] if id(watched[0]) in names else ""
        self._references = [weakref.ref(leaf) for leaf in watched]
        self._begins = self._last = _values(watched)

    def _find_names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for frame in list(user_frames(sys._getframe()))[:_FRAMES]:
            for variables in (local_variables(frame), frame.f_globals):
                found = find({n: v for n, v in variables.items() if not n.startswith("_")})
                for one, name in found.parameter_names().items():
                    names.setdefault(one, name)
        for name, tensor in found.tensors.items():  # a function's may be loop variables
            names.setdefault(id(tensor), name)
        return names

    def _leave_to(self, optimizers: Iterable[Optimizer], stepped: Sequence[OptimizerLog]) -> None:
        """Watch nothing more if an optimizer steps what is watched, or one made later holds it."""
        held: set[int] = set()
        if self._references:
            held = _held(one for log in stepped if (one := log.optimizer()) is not None)
            held |= _held(optimizers) - self._unused
        if any(id(reference()) in held for reference in self._references):
            self._references, self._begins, self._last = [], (), ()

    def _look(self) -> None:
        alive = [leaf for reference in self._references if (leaf := reference()) is not None]
        if len(alive) < len(self._references):
            self._references = []  # the code makes new tensors in each step
        elif alive:
            values = _values(alive)
            self._changes += values != self._last
            self._last = values

    def observed(
        self, optimizers: Iterable[Optimizer], stepped: Sequence[OptimizerLog]
    ) -> OptimizerTraining | None:
        """What was updated by hand in this run; None if nothing was."""
        self._leave_to(optimizers, stepped)
        self._look()
        changed = sum(a != b for a, b in zip(self._begins, self._last, strict=True))
        if self._changes < _CHANGES or 2 * changed <= len(self._begins):
            return None  # such as an input that is optimised while the model stays
        return OptimizerTraining(
            name="",
            steps=self._passes,
            where=self._where,
            parameters=sum(self._shapes.values()),
            model=self._model,
            shapes=self._shapes,
            watched=self._names,
            states=(
                TrainingState(step=0, values=self._begins),
                TrainingState(step=self._passes, values=self._last),
            ),
        )


#: Subclasses stand for parts of a model on several ranks.
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _held(optimizers: Iterable[Optimizer]) -> set[int]:
    """The ``id`` of each parameter that an optimizer steps."""
    return {
        id(parameter)
        for optimizer in list(optimizers)
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def _first_values(optimizers: Iterable[Optimizer]) -> dict[int, int]:
    """Sketches of the first parameters of optimizers, by their ``id``."""
    parameters = (
        parameter
        for optimizer in list(optimizers)
        for group in optimizer.param_groups
        for parameter in group["params"]
        if type(parameter) in _PLAIN and parameter.is_cpu
    )
    first = list(islice(parameters, _FIRST))
    return dict(zip(map(id, first), _values(first), strict=True))


def _leaves(loss: torch.Tensor, held: set[int]) -> list[Any]:
    """The tensors that a loss's graph ends in, in the order in which they are reached.

    There are none if an optimizer holds one of them.
    """
    found: dict[int, Any] = {}
    seen: set[Any] = set()
    waiting = [loss.grad_fn]
    while waiting and len(seen) < _MAX_NODES:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        variable = getattr(node, "variable", None)
        if variable is not None:
            if id(variable) in held:
                return []
            found[id(variable)] = variable
        waiting += [after for after, _ in node.next_functions]
    return list(found.values())


def _values(tensors: list[torch.Tensor]) -> tuple[int, ...]:
    """Sketches of copies of the first elements.

    A tensor that NumPy has looked at can no longer be resized, as libraries do with parameters that
    they divide among the ranks; the memory of such a one may be gone.
    """
    return tuple(sketches([_first_elements(tensor) for tensor in tensors]))


def _first_elements(tensor: torch.Tensor) -> torch.Tensor | None:
    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    if not tensor.is_contiguous() or tensor.untyped_storage().nbytes() < end:
        return None
    return tensor.detach().reshape(-1)[:_ELEMENTS].clone()
