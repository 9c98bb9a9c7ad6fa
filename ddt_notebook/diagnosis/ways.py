"""Compares the lines from which ranks came to one line that makes a collective.

A helper, such as one that calls ``barrier()``, is called from many lines. Ranks that meet in it may
have come from different ones, and then they were out of step before any call did not fit.
"""

from __future__ import annotations

import ast
from functools import cache

from ddt_notebook.model import Call, Position
from ddt_notebook.program.nodes import LEAVES, calls_once
from ddt_notebook.program.program import Program
from ddt_notebook.program.tree import Block


class Ways:
    """The ways of one run's calls.

    Parameters
    ----------
    program
        What the ranks ran; without it, no two lines are known to be alternatives.
    """

    def __init__(self, program: Program | None = None) -> None:
        self._program = program
        self._known = cache(self._are_alternatives)

    def apart(self, call: Call, other: Call) -> Position | None:
        """The line of a call's way at which it was not on the way of another call of its line.

        It is the outermost line that differs. None if there is none, if a way is not known, or if
        that line and the other call's are in the two arms of one condition and call one function:
        both lead on to the collective.
        """
        if call.where is None or other.where is None or not call.where.is_same_line(other.where):
            return None
        mine, theirs = ((one.where, *one.callers) for one in (call, other))
        inner = [(one.file, one.function) for one in mine if one is not None]
        also = [(one.file, one.function) for one in theirs if one is not None]
        pairs = zip(
            reversed(call.callers),
            reversed(other.callers),
            inner[-2::-1],
            also[-2::-1],
            strict=False,
        )
        for one, two, function, its in pairs:
            if not one.is_same_line(two):
                same = function == its and self.are_alternatives(one, two, function[1])
                return None if same else one
        return None

    def meet(self, call: Call, other: Call) -> bool:
        """Whether two ranks came to a collective at one line, on the same way if it is known."""
        if call.where is None or other.where is None:
            return call.where is other.where
        return call.where.is_same_line(other.where) and self.apart(call, other) is None

    def are_alternatives(self, one: Position, two: Position, function: str) -> bool:
        """Whether lines are in different arms of one condition, each of which calls ``function``.

        An arm that calls it several times may do so in another order.
        """
        return self._known(one, two, function)

    def _are_alternatives(self, one: Position, two: Position, function: str) -> bool:
        if self._program is None or one.file != two.file:
            return False
        around = {block.owner: block for block in self._blocks(one)}
        for block in self._blocks(two):
            mine = around.get(block.owner)
            if mine is None:
                continue
            if mine.field != block.field:
                arms = mine.statements, block.statements
                once = all(calls_once(arm, function) for arm in arms)
                return once and isinstance(block.owner, ast.If)
            first, last = sorted((mine.at, block.at))
            earlier = block.statements[first]
            return (
                first < last
                and isinstance(earlier, ast.If)
                and isinstance(earlier.body[-1], LEAVES)
                and calls_once(earlier.body, function)
                and calls_once(block.statements[first + 1 :], function)
            )
        return False

    def _blocks(self, place: Position) -> list[Block]:
        assert self._program is not None
        return self._program.blocks(self._program.statement_at(place))
