"""A source text, parsed, and followed on every rank."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from .facts import Event, Facts
from .follow import Follower
from .shape import written
from .statements import TooLong
from .trace import Walk
from .values import Scope, Value
from .worlds import world_size

_MAGIC = re.compile(r"^(\s*)(?:[%!?]|\w[\w, ]*=\s*[%!]).*$|^(\s*)[\w.]+\?{1,2}\s*$")


def parsed(source: str) -> tuple[ast.Module, str]:
    """The syntax tree and the text that it belongs to; raises `SyntaxError`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        try:
            return ast.parse(source), source
        except SyntaxError:
            text = _blanked(source)
            return ast.parse(text), text


def _blanked(source: str) -> str:
    """The source with the lines that only IPython understands made harmless."""
    lines = []
    for line in source.split("\n"):
        timed = re.match(r"^(\s*)%(?:time|timeit)\s+(.*)$", line)
        if line.startswith("%%"):
            lines.append("pass")
        elif timed:
            lines.append(timed[1] + timed[2])
        else:
            found = _MAGIC.match(line)
            lines.append((found[1] or found[2] or "") + "pass" if found else line)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Passage:
    """The program, or a function of it that nothing calls, followed on every rank."""

    walks: tuple[Walk, ...]
    facts: tuple[Facts, ...]
    called: bool


@dataclass
class Program:
    """A program as far as it can be known without running it.

    Attributes
    ----------
    tree
        The syntax tree.
    source
        The text, magics blanked.
    world
        How many ranks are assumed; 0 stands for as many as the source names.
    """

    tree: ast.Module
    source: str
    world: int = 0

    def __post_init__(self) -> None:
        self.world = self.world or world_size(self.tree)

    @property
    def facts(self) -> list[Facts]:
        """What each rank noted in the program itself."""
        return list(self.passages[0].facts) if self.passages else []

    def is_alone(self, event: Event) -> bool:
        """Whether what happened at a line happens on some ranks and not on all."""
        return not all(
            any(other.what == event.what and other.line == event.line for other in facts.events)
            for facts in self.facts
        )

    def mentions(self, pattern: str) -> bool:
        """Whether the text matches a regular expression somewhere."""
        return re.search(pattern, self.source) is not None

    @cached_property
    def lines(self) -> list[str]:
        return self.source.split("\n")

    def line(self, number: int) -> str:
        """A line without its indentation."""
        return self.lines[number - 1].strip() if 0 < number <= len(self.lines) else ""

    @cached_property
    def statements(self) -> list[ast.stmt]:
        return [node for node in ast.walk(self.tree) if isinstance(node, ast.stmt)]

    def statement(self, number: int) -> str:
        """The text of the smallest statement that a line belongs to."""
        found = [
            node for node in self.statements if node.lineno <= number <= (node.end_lineno or 0)
        ]
        smallest = min(found, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)
        return written(smallest) if smallest is not None else ""

    @cached_property
    def passages(self) -> list[Passage]:
        """The program itself first."""
        found = []
        try:
            for passage in self._follow():
                found.append(passage)
        except (TooLong, RecursionError):
            return found
        return found

    def _follow(self) -> Iterator[Passage]:
        ready = "init_process_group(" not in self.source
        followers = [Follower(rank, self.world, ready) for rank in range(self.world)]
        scopes = [Scope({"__name__": Value("__main__")}) for _ in followers]
        for follower, scope in zip(followers, scopes, strict=True):
            ended = follower.block(self.tree.body, scope)
            follower.walk.raised = ended == "raise" and not follower.ended
        called = {node for follower in followers for node in follower.called}
        yield Passage(
            tuple(follower.walk for follower in followers),
            tuple(follower.facts for follower in followers),
            called=True,
        )
        for follower in followers:
            follower.called = set(called)
        rest = [
            list(follower.entries(scope)) for follower, scope in zip(followers, scopes, strict=True)
        ]
        for functions in zip(*rest, strict=False):
            if len({function.node for function in functions}) > 1:
                return  # the ranks have defined different functions
            if functions[0].node in followers[0].called:
                continue
            try:
                for follower, function in zip(followers, functions, strict=True):
                    follower.begin()
                    follower.call_function(function, [], {})
            except TooLong:
                continue
            yield Passage(
                tuple(follower.walk for follower in followers),
                tuple(follower.facts for follower in followers),
                called=False,
            )
