"""Words that mean the same in reports, by a name that the patterns of clues use: ``<hang>``.

``<40>`` in a pattern stands for at most 40 characters of the same line, ``<40.>`` for such of the
same sentence.
"""

from __future__ import annotations

import re

_TIMEOUT = r"(?<![-_])time ?d? ?out"
_WORDS = {
    "timeout": _TIMEOUT,
    "hang": (
        rf"(\bhang|\bhung|\bstuck|freez|froze|\bblock|dead ?-?lock|\bstall"
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
        r"(distributeddataparallel|\bddp\b|load\w* (the )?(data|model|checkpoint|weights)"
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
#: Repetition without a limit before a gap takes quadratic time on a long word; a gap covers it.
_WORD_BEFORE_GAP = re.compile(r"\\w\*(?=[^()|]?<\d)")
_REST_OF_WORD = re.compile(r"\\w\*")


def expand(pattern: str) -> str:
    """The regular expression that a pattern stands for; other names in ``<>`` stay."""
    named = _NAME.sub(lambda match: _WORDS.get(match[1], match[0]), pattern)
    plain = _REST_OF_WORD.sub(r"\\w{0,20}", _WORD_BEFORE_GAP.sub("", named))
    return _GAP.sub(lambda match: rf"[^\n{match[2]}]{{0,{match[1]}}}", plain)
