"""Clues: words of ``words.toml`` that are searched for, and the symptoms that each supports.

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
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Literal

from ddt_notebook.messages import outside

#: ``context``: what was being done; ``complaint``: a person describes the problem. A message of the
#: catalogue is an ``error``, or an ``effect`` if it reports what another failure caused.
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
    kind
        See `Kind`.
    """

    says: str
    pattern: str
    votes: Mapping[str, float] = field(hash=False)
    kind: Kind

    def find(self, text: str, known: Sequence[tuple[int, int]] = ()) -> re.Match[str] | None:
        """Return the first match in a text, which must be in lower case.

        Parameters
        ----------
        known
            Positions in the text whose meaning is known; a match that begins there does not count.
        """
        found = (outside(branch, text, known) for branch in _branches(self.pattern))
        return min(filter(None, found), key=lambda match: match.start(), default=None)


@functools.cache
def clues() -> tuple[Clue, ...]:
    """Return all clues, in the order of their file."""
    text = resources.files(__package__).joinpath("words.toml").read_text(encoding="utf-8")
    return tuple(
        Clue(entry.get("says", ""), entry["pattern"], entry["votes"], entry["kind"])
        for entry in tomllib.loads(text)["words"]
    )


@functools.cache
def _branches(pattern: str) -> tuple[re.Pattern[str], ...]:
    """Return the alternatives separately: searches for plain letters are much faster."""
    return tuple(re.compile(expand(line)) for line in pattern.split("\n") if line)


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
