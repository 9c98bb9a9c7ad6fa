"""Parses the lines of magics: shared options, and one-line errors that say what to do."""

from __future__ import annotations

import argparse
import functools
import keyword
import re
import shlex
import tokenize
from collections.abc import Callable
from typing import Any, NoReturn

from IPython.core.displayhook import DisplayHook
from IPython.core.error import UsageError
from IPython.core.magic import no_var_expand
from IPython.core.magic_arguments import MagicArgumentParser

from ..argument_types import number_of_hosts, seconds, whole_number
from ..spelling import similar_names
from ..views.registry import VIEWS
from .config import DDT

Magic = Callable[..., Any]

#: How argparse begins to say what is missing.
_REQUIRED = "the following arguments are required: "
_RANKS = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_NEGATIVE = re.compile(r"-\d")
#: A comment after a name; in a longer text, ``#`` may be part of an error message.
_COMMENT = re.compile(r"^(\S+)\s+#.*")
#: Options that take all that follows.
_REST = ("--script", "--salloc")


def rank_list(text: str) -> tuple[int, ...]:
    """Ranks from ``"0,2-3"``, ascending, each once."""
    found: set[int] = set()
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        if match is None:
            raise argparse.ArgumentTypeError(
                f"{part.strip()!r} is not a rank; write a rank list like 0,2-3, without blanks"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise argparse.ArgumentTypeError(
                f"the range {part.strip()!r} is in the wrong order; write {last}-{first}"
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def one_rank(text: str) -> int:
    """A single rank."""
    ranks = rank_list(text)
    if len(ranks) != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is more than one rank; write one, such as 2")
    return ranks[0]


def name(text: str) -> str:
    """The name of a variable."""
    if not text.isidentifier() or keyword.iskeyword(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a variable")
    return text


class Option:
    """An argument that several magics share, as in ``argparse.ArgumentParser.add_argument``."""

    def __init__(self, *flags: str, **settings: Any) -> None:
        self._flags = flags
        self._settings = settings

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        """Declare it on a parser."""
        parser.add_argument(*self._flags, **self._settings)


def _default(name: str) -> str:
    """The built-in default: ``(default 2, %config DDT.ranks)``."""
    value = DDT.class_traits()[name].default_value
    shown = f"{value:g}" if isinstance(value, float) else value
    # argparse takes a single per cent sign for a place holder
    return f"(default {'none' if value is None else shown}, %%config DDT.{name})"


_WAITED = "longest wait for a rank in a collective, even if that rank is at work"
_NO_LIMIT = "; none: as long as PyTorch waits"

WORLD_SIZE = Option(
    "-n",
    "--world-size",
    type=whole_number,
    metavar="N",
    help=f"number of ranks {_default('ranks')}",
)
POSITIONAL_SIZE = Option(
    "number",
    nargs="?",
    type=whole_number,
    metavar="N",
    help="number of ranks, as with -n",
)
BACKEND = Option(
    "--backend", metavar="NAME", help=f"backend of the process group {_default('backend')}"
)
DEVICE = Option(
    "--device",
    metavar="NAME",
    help="device of the ranks, cpu or cuda (default cuda with nccl, else cpu; %%config DDT.device)",
)
TIMEOUT = Option(
    "-t",
    "--timeout",
    type=seconds,
    metavar="SECONDS",
    help=f"{_WAITED}{_NO_LIMIT} {_default('timeout')}",
)
CELL_TIMEOUT = Option(
    "-t",
    "--timeout",
    type=seconds,
    metavar="SECONDS",
    help=f"{_WAITED} (default that of %%ddt_start)",
)
HANG_AFTER = Option(
    "--hang-after",
    type=seconds,
    metavar="SECONDS",
    help="how long a wait that cannot end is observed before it is reported as a hang "
    + _default("hang_after"),
)
MEMORY = Option(
    "--memory",
    metavar="SIZE",
    help=f"limit for what each rank allocates, such as 512M {_default('memory')}",
)
NO_GROUP = Option(
    "--no-group",
    action="store_true",
    help="form no process group: the cells call init_process_group themselves",
)
SIMULATE = Option(
    "--simulate",
    metavar="cuda:N",
    help="pretend that there are N GPUs, to check where a cell puts its tensors (default: not)",
)
FRAMEWORK = Option(
    "--framework",
    metavar="NAME",
    help="prepare the ranks for this framework, such as tensorflow (it is imported, and TF_CONFIG "
    "is set) or horovod (hvd.init() finds the other ranks); no process group is formed",
)
JOIN = Option(
    "--join",
    nargs="?",
    const="",
    metavar="ADDRESS",
    help="run the ranks on other hosts: show the command that joins them, and wait for them at "
    "this address of the notebook (default: its address in the network)",
)
HOSTS = Option(
    "--hosts",
    metavar="LIST",
    help="run the ranks on these hosts, which ssh reaches: nodeA:4,nodeB:4",
)
SLURM = Option(
    "--slurm",
    nargs="?",
    const="",
    metavar="ADDRESS",
    help="run the ranks on the nodes of the Slurm allocation in which this notebook runs; they "
    "reach it at this address (default: its address in their network)",
)
SALLOC = Option(
    "--salloc",
    nargs=argparse.REMAINDER,
    metavar="OPTIONS",
    help="ask Slurm for an allocation and run the ranks on its nodes; all that follows are options "
    "of salloc: --nodes=2 --ntasks-per-node=4",
)
RAY = Option(
    "--ray",
    nargs="?",
    const="",
    metavar="ADDRESS",
    help="run the ranks on the nodes of the Ray cluster to which this machine belongs; they reach "
    "the notebook at this address (default: its address in the cluster)",
)
NODES = Option(
    "--nnodes",
    type=number_of_hosts,
    metavar="N",
    help="number of hosts that share the ranks evenly (default: with --join one for each rank, "
    "with --ray all)",
)
WAIT = Option(
    "--wait",
    type=seconds,
    metavar="SECONDS",
    help="how long hosts are waited for (default 600)",
)
RANKS = Option(
    "-r",
    "--ranks",
    type=rank_list,
    metavar="LIST",
    help="ranks to use, such as 0,2-3 (default all)",
)
OUT = Option(
    "-o",
    "--out",
    type=name,
    metavar="NAME",
    help="variable that receives the result (default none)",
)
FREEZE = Option(
    "--freeze",
    action="store_true",
    help="hold a hang for inspection, until %%ddt_release",
)
AGAIN = Option(
    "--again",
    action="store_true",
    help="run the last cell again, or this changed one, and say whether the symptom is gone",
)
SINGLE = Option(
    "--single",
    action="store_true",
    help="run the last cell on a single rank, to distinguish distributed faults from plain ones",
)
FIX = Option(
    "--fix",
    action="store_true",
    help="put the corrected cell into a new one, where the change can be derived",
)

SEED = Option(
    "--seed",
    type=int,
    metavar="N",
    help="rank r begins with the random states of N + r (default: fresh entropy on each rank)",
)
SCRIPT = Option(
    "--script",
    nargs=argparse.REMAINDER,
    metavar=("FILE.py", "ARG"),
    help="run a script as torchrun does, instead of a cell; all that follows are its arguments",
)
KEEP = Option(
    "--keep",
    action="store_true",
    help="define the names of the script in the cells afterwards (default: not)",
)

NAMES = Option("names", nargs="+", type=name, metavar="NAME", help="variables of the notebook")
NAME = Option("name", type=name, metavar="NAME", help="variable on the rank")
RANK = Option("-r", "--rank", type=one_rank, default=0, metavar="RANK", help="rank (default 0)")
AS = Option(
    "--as",
    dest="as_name",
    type=name,
    metavar="NEW",
    help="name in the notebook (default the same)",
)
QUERY = Option(
    "query",
    nargs="?",
    default="",
    metavar="CODE|CARD|WORDS",
    help="such as D.2.1, a fault card, or words of an error message (default: all codes)",
)
ABOUT = Option(
    "about",
    nargs="?",
    metavar="SYMPTOM|TEXT|ask|ANSWER",
    help="a code such as D.2.1, the text of an error, or `ask`: questions that lead to the "
    "symptom, answered with a number, unknown, check, undo, restart or leave",
)
PATH = Option("path", nargs="?", metavar="FILE.py", help="a file to read instead of a cell")
VIEW = Option(
    "view",
    metavar="VIEW",
    help=f"{', '.join(v.name for v in VIEWS.values() if not v.asks_ranks)} of the last run; "
    f"{', '.join(v.name for v in VIEWS.values() if v.asks_ranks)} of what the ranks hold now",
)
ZOOM = Option(
    "--zoom",
    action="store_true",
    help="timeline: interactive, with zoom, search and filters, in a notebook",
)
VARIABLES = Option(
    "variables",
    nargs="*",
    default=[],  # else argparse takes it for required
    metavar="NAME",
    help="variables of the ranks to look at, such as trainer.model (default all), or a run that "
    "the notebook keeps (-o NAME of %%%%ddt, %%ddt_load, %%ddt_attach)",
)


class _Parser(MagicArgumentParser):
    """Checks the flags before argparse does, whose messages blame the wrong argument."""

    def __init__(
        self, magic: Magic, shared: tuple[Option, ...], free_text: str, above_cell: bool
    ) -> None:
        super().__init__(prog=magic.__name__, description=magic.__doc__)
        self._above_cell = above_cell
        self.allow_abbrev = False
        self._free_text = free_text
        for option in shared:
            option.add_to(self)
        self.add_argument("-h", "--help", action="store_true", help="print this text")

    def parse_line(self, line: str) -> argparse.Namespace | None:
        """The arguments of a magic line; None if the help was asked for and printed."""
        text = line.strip()
        if self._free_text and text and not text.startswith(("-", "#")):
            found = self.parse_args([])
            setattr(found, self._free_text, _unquoted(_plain(text)))
            return found
        try:
            words = shlex.split(line.rstrip().removesuffix(";"))  # ";" silences the view
        except ValueError as error:
            raise UsageError(f"{self.prog}: a quotation mark is not closed") from error
        comment = next((i for i, word in enumerate(words) if word.startswith("#")), len(words))
        words = words[:comment]
        # what follows belongs to the script, or to another program
        own = min((words.index(flag) for flag in _REST if flag in words), default=len(words))
        if {"-h", "--help"}.intersection(words[:own]):
            print(self.help_text())
            return None
        if "--script" in self._option_string_actions and words and words[0].endswith(".py"):
            self.error(f"did you mean %{self.prog} --script {' '.join(words)}?")
        for word in words[:own]:
            self._check_flag(word)
        found, unexpected = self.parse_known_args(words)
        if unexpected:
            self.error(f"unexpected {unexpected[0]!r}; %{self.prog} -h lists what there is")
        return found

    def help_text(self) -> str:
        """What ``-h`` prints."""
        text = self.format_help().strip().removeprefix("::").strip()
        return f"%{text}" if self._above_cell else text

    def error(self, message: str) -> NoReturn:
        """Raise a `UsageError` of one line."""
        if message.startswith(_REQUIRED):
            missing = message.removeprefix(_REQUIRED).split(", ")
            help_of = {action.metavar: action.help for action in self._get_positional_actions()}
            message = f"{missing[0]} is missing: {help_of.get(missing[0])}"
        raise UsageError(f"{self.prog}: {' '.join(message.split())}")

    def _check_flag(self, word: str) -> None:
        if not word.startswith("-") or word == "-" or _NEGATIVE.match(word):
            return
        known = self._option_string_actions
        flag = word.split("=", 1)[0]
        if flag in known or (not flag.startswith("--") and flag[:2] in known):
            return
        if flag in ("-r", "--ranks") and "--world-size" in known:  # no ranks yet to choose from
            self.error(f"there is no option {flag}; -n 4 sets how many ranks there are")
        near = similar_names(flag, known)
        hint = f"did you mean {near[0]}?" if near else f"%{self.prog} -h lists them"
        self.error(f"there is no option {flag}; {hint}")


def _ends_in_semicolon(text: str) -> bool:
    """Whether a line or cell asks to hide the view; what is no Python does not.

    ``output_can_be_silenced`` of IPython raises for such a text.
    """
    try:
        return DisplayHook.semicolon_at_end_of_expression(text)
    except (SyntaxError, tokenize.TokenError):
        return False


def _plain(text: str) -> str:
    """A text without the ``;`` that silences the view, and without a comment after a name."""
    return _COMMENT.sub(r"\1", text).removesuffix(";").rstrip()


def _unquoted(text: str) -> str:
    """A text without the quotation marks around all of it."""
    whole = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    return text[1:-1] if whole and text[0] not in text[1:-1] else text


def options(
    *shared: Option, free_text: str = "", silenced: bool = True, above_cell: bool = False
) -> Callable[[Magic], Magic]:
    """Decorator: a method ``(self, arguments, cell)`` becomes a magic with these options.

    The method's docstring describes the magic; the options are added to it.

    Parameters
    ----------
    shared
        The options.
    free_text
        Name of the argument that takes a line which begins with no option as it is, so that an
        error message can be pasted with its quotation marks and dashes.
    silenced
        Whether a ``;`` at the end of the cell hides the view. IPython recognises it only in a cell
        of Python.
    above_cell
        Whether the magic is for the top of a cell only: its help says ``%%``.
    """

    def decorate(method: Magic) -> Magic:
        parser = _Parser(method, shared, free_text, above_cell)

        @functools.wraps(method)
        def magic(self: Any, line: str, cell: str | None = None) -> Any:
            arguments = parser.parse_line(line)
            if arguments is None:
                return None
            shown = method(self, arguments, cell)
            return (
                None if silenced and _ends_in_semicolon(line if cell is None else cell) else shown
            )

        magic.__doc__ = parser.help_text()
        return no_var_expand(magic)

    return decorate
