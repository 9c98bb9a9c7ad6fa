"""Clues: patterns that are searched for in a text, and the symptoms that each supports.

A pattern may contain abbreviations, which `expand` replaces:

``<hang>``
    A group of words in `_GROUPS`, which reports use with the same meaning.
``<40>``
    At most 40 characters of the same line.
``<40.>``
    At most 40 characters of the same sentence.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ddt_notebook.messages.fragments import fragments

#: ``error``: the text names the error; ``effect``: a rank reports that another one failed or is
#: missing; ``context``: what was being done; ``complaint``: a person describes the problem.
Kind = Literal["error", "effect", "context", "complaint"]


@dataclass(frozen=True, slots=True)
class Clue:
    """A pattern, and how strongly it supports each symptom.

    Attributes
    ----------
    says
        The meaning of the text as the title of a finding; empty if the words make no title.
    pattern
        Regular expression for the text in lower case. Line breaks separate alternatives of the
        whole pattern; `expand` replaces what is in ``<>``.
    votes
        Maps the code of a symptom to the logarithm of the odds that the words give it.
    cause
        Id of the cause that the words name, None without one.
    kind
        See `Kind`.
    apart
        A match does not count if this pattern matches the same line.
    """

    says: str
    pattern: str
    votes: Mapping[str, float] = field(hash=False)
    cause: str | None = None
    kind: Kind = "error"
    apart: str = ""

    def find(self, text: str, known: Sequence[tuple[int, int]] = ()) -> re.Match[str] | None:
        """Return the first match in a text, which must be in lower case.

        Parameters
        ----------
        known
            Positions in the text whose meaning is known; a match that begins there does not count.
        """
        found = [
            match
            for branch, needed in _branches(self.pattern)
            if not needed or any(part in text for part in needed)
            if (match := _outside(branch, text, known))
        ]
        for match in sorted(found, key=lambda m: m.start()):
            if not self.apart or not _branches(self.apart)[0][0].search(line_of(text, match)):
                return match
        return None


def _outside(
    pattern: re.Pattern[str], text: str, known: Sequence[tuple[int, int]]
) -> re.Match[str] | None:
    """Return the first match that does not begin in one of the known parts of the text."""
    match = pattern.search(text)
    while match is not None:
        start = match.start()
        end = max((end for first, end in known if first <= start < end), default=None)
        if end is None:
            return match
        match = pattern.search(text, end)
    return None


@functools.cache
def _branches(pattern: str) -> tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]:
    """Return each alternative, and texts of which each of its matches contains one."""
    expanded = [expand(line) for line in pattern.split("\n") if line]
    return tuple((re.compile(line), fragments(line)) for line in expanded)


def line_of(text: str, match: re.Match[str]) -> str:
    """Return the line in which a match begins."""
    start = text.rfind("\n", 0, match.start()) + 1
    end = text.find("\n", match.start())
    return text[start:] if end < 0 else text[start:end]


#: "frozen after an hour" is a hang, and "frozen parameters" are none.
_FROZE = r"\bfroze(?!n (?!at\b|after\b|on\b|in\b|during\b|when\b|for\b|while\b|and\b|but\b)\w)"
_TIMEOUT = r"(?<![-_])time ?d? ?out"
_GROUPS = {
    "timeout": _TIMEOUT,
    "froze": _FROZE,
    "hang": (
        rf"(\bhang|\bhung|\bstuck|freez|{_FROZE}|\bblock|dead ?-?lock|\bstall"
        rf"|stops? (at|in|on|respond)|\bhalt|not proceed|{_TIMEOUT})"
    ),
    "when": r"\b(after|during|in|at|while|when|every|on|halfway|around)\b",
    "training": (
        r"(epoch|iteration|\bstep|batch|hours?\b|minutes\b|days\b|a while|training|evaluat"
        r"|validat|middle|random|sometimes|backward|\bfit\b)"
    ),
    "setup": (
        r"(hvd\.init|init_process_group|initiali[sz]|start ?up|starting|at (the )?start|launch"
        r"|rendezvous|spawn|mpirun|mpiexec|horovodrun|mpi_init|communicator|new_group)"
    ),
    "preparation": (
        r"(distributeddataparallel\(|load\w* (the )?(data|model|checkpoint|weights)"
        r"|download|data ?load|dataset|preprocess|tokeniz|compil|broadcast_param|wrap)"
    ),
    "broadcast": (
        r"(broadcast_(parameters|optimizer_state|coalesced|variables|global)|sync_params"
        r"|sync_module)"
    ),
    "collective": (
        r"(all_?reduce|all_?gather|broadcast|all_?to_?all|reduce_?scatter|process_?group)"
    ),
    "fails": (
        r"(fail|error|exception|crash|abort|wrong|not work|cannot|can't|unable|problem|issue"
        r"|raise|corrupt|stops)"
    ),
    "cannot": (
        r"(can't|cannot|unable to|fail\w* to|could not|couldn't|will not|won't|not able to"
        r"|how (do i|to|can i))"
    ),
    "not using": (
        r"(instead of|rather than|not us(e|ing)|doesn't use|does not use|isn't using"
        r"|without using)"
    ),
    "protocol": (
        r"(rdma|infiniband|\bib\b|gdr|gpudirect|nvlink|\bnccl\b|\bgloo\b|\bmpi\b|\broce\b|\btcp\b"
        r"|ethernet|socket)"
    ),
    "package": r"(horovod|torch|tensorflow|deepspeed|colossalai|megatron|keras|mxnet|apex)",
    "saved": (r"(\bsav|\bload|(?<!gradient )(?<!activation )checkpoint|weight file|\.h5|hdf5)"),
    "device": r"(gpu|device|card)",
    "value": (
        r"\b(loss|accurac\w*|metric|result|output|value|prediction|mean|score|learning rate|lr|log"
        r"|epoch|step|seed|trace|timeline)"
    ),
    "wrong": (
        r"(differ|wrong|incorrect|unexpected|inconsisten|not (the )?same|mismatch|zero|duplicat"
        r"|not (equal|average|scaled|correct|right|generat|writ|found|match))"
    ),
    "differ": (
        r"(differ|not (the )?same|not (equal|identical|averag|updat|synchron)|inconsisten"
        r"|diverge)"
    ),
    "worse": (
        r"\b(drop|worse|lower|decreas|degrad|explod|bad|poor|stays|stagnat|increas"
        r"|not (improv|decreas|as good|same good|good|learn|going down))"
    ),
}
_NAME = re.compile(r"<([a-z ]+)>")
_GAP = re.compile(r"<(\d+)(\.?)>")
#: An unlimited repetition before a gap takes quadratic time on a long word. It is not needed,
#: because the gap matches the rest of the word.
_WORD_BEFORE_GAP = re.compile(r"\\w\*(?=[^()|]?<\d)")
_REST_OF_WORD = re.compile(r"\\w\*")


def expand(pattern: str) -> str:
    """Return the regular expression for a pattern; unknown names in ``<>`` are kept."""
    named = _NAME.sub(lambda match: _GROUPS.get(match[1], match[0]), pattern)
    plain = _REST_OF_WORD.sub(r"\\w{0,20}", _WORD_BEFORE_GAP.sub("", named))
    return _GAP.sub(lambda match: rf"[^\n{match[2]}]{{0,{match[1]}}}", plain)
