"""What an exception says: a symptom of the taxonomy, by type and text."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ddt_notebook.model import Call, Position, RankError

_BROKEN_CONNECTION = re.compile(
    r"Connection (was likely )?closed by (remote )?peer|Connection reset by peer|Broken pipe"
    r"|Application timeout caused pair closure|Timed out waiting \d+ ?ms"
    r"|failed to pass monitoredBarrier|Socket Timeout|Connection refused"
    r"|wait timeout after|[Tt]imed out after .* waiting for clients|client socket has timed out",
)
_TIMEOUT = re.compile(r"[Tt]imed out|[Tt]imeout")
#: Types that torch.distributed raises for trouble with its peers. A user's own download that
#: breaks with "Connection reset by peer" is a ConnectionError, and a cause.
_COMMUNICATION_TYPES = frozenset(
    {"RuntimeError", "DistBackendError", "DistNetworkError", "DistStoreError", "DistError"}
)
#: What a traceback prints between one exception and the next.
_CHAIN = re.compile(
    r"\n+During handling of the above exception, another exception occurred:\n+"
    r"|\n+The above exception was the direct cause of the following exception:\n+"
)
_HEADLINE = re.compile(r"^(\w+) +Traceback \(most recent call last\)", re.MULTILINE)
_CELL_LINE = re.compile(r"^Cell (cell\[\d+\]), line (\d+)", re.MULTILINE)
#: Unmistakable in the text of a chain of exceptions.
_TRANSPORT = "gloo/transport/tcp"


def is_peer_error(error: RankError) -> bool:
    """Whether the exception only tells that another rank, or the session, ended the connection."""
    if error.released:
        return True
    if error.type in _COMMUNICATION_TYPES and _BROKEN_CONNECTION.search(error.message):
        return True
    # Raised while a peer error was handled, or from one.
    return _TRANSPORT in error.traceback and bool(_BROKEN_CONNECTION.search(error.traceback))


def first_of_chain(error: RankError) -> RankError | None:
    """The exception during whose handling this one was raised, the first if there are several."""
    first, *later = _CHAIN.split(error.traceback)
    headline = _HEADLINE.search(first)
    if not later or headline is None:
        return None
    kind = headline.group(1)
    _, _, message = first.rpartition(f"\n{kind}: ")
    lines = _CELL_LINE.findall(first)
    where = Position(file=lines[-1][0], line=int(lines[-1][1])) if lines else None
    return RankError(type=kind, message=message.strip(), traceback=first, where=where)


def is_timeout(error: RankError) -> bool:
    """Whether a wait ended because its time was over."""
    return bool(_TIMEOUT.search(error.message))


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an exception stands for: a code of the taxonomy and the id of a cause."""

    symptom: str
    cause: str | None


@dataclass(frozen=True, slots=True)
class _Pattern:
    symptom: str
    cause: str | None
    text: str = ""
    types: str = ""
    ops: str = ""

    def fits(self, error: RankError, call: Call | None) -> bool:
        return (
            bool(re.search(self.types, error.type))
            and bool(re.search(self.text, error.message))
            and bool(re.search(self.ops, _operation(error, call)) if self.ops else True)
        )


def _operation(error: RankError, call: Call | None) -> str:
    """The call in which it was raised and the functions on its stack."""
    return " ".join([call.op if call else "", *(frame.function for frame in error.frames)])


#: The first that fits wins: from the specific to the general.
_PATTERNS = (
    # A · package build & import
    _Pattern("A.2", "module-not-found", types=r"^ModuleNotFoundError$"),
    _Pattern("A.2", "import-error", types=r"^ImportError$"),
    # B · communication setup
    _Pattern("B.1", "group-not-initialized", r"[Pp]rocess group has not been initialized"),
    _Pattern("B.1", "group-initialized-twice", r"process group twice|process group already"),
    _Pattern("B.1", "stale-group", r"process group is gone"),
    _Pattern("B.1", "environment-not-set", r"environment variable \w+ expected, but not set"),
    _Pattern("B.1", "port-in-use", r"EADDRINUSE|[Aa]ddress already in use"),
    _Pattern("B.1", "backend-not-available", r"only supported with GPUs|doesn't have \w+ built in"),
    _Pattern("B.1", "backend-unknown", r"[Uu]nknown (c10d )?backend|Invalid backend"),
    _Pattern("B.1", "network-interface", r"Unable to find (address|interface)"),
    _Pattern("B.2", "rank-missing-at-setup", r"waiting for clients|client socket has timed out"),
    _Pattern("B.2", "rank-missing-at-setup", r"[Tt]ime(d )?out", ops=r"init_process_group|new_gr"),
    _Pattern("B.1", None, ops=r"\binit_process_group\b|\bnew_group\b"),
    # C · data & model preparation
    _Pattern("C.1", "state-dict-prefix", r"loading state_dict[\s\S]*module\."),
    _Pattern("C.1", "state-dict-shape", r"loading state_dict[\s\S]*size mismatch"),
    _Pattern("C.1", "state-dict", r"loading state_dict"),
    _Pattern("C.1", "weights-only", r"Weights only load failed"),
    _Pattern("C.1", "checkpoint-device", r"deserialize object on a CUDA device"),
    _Pattern("C.2", "dataloader-worker", r"DataLoader worker"),
    _Pattern("C.3", "unpicklable-object", r"[Pp]ickle|local object", ops=r"_object|_tensor_to_obj"),
    _Pattern("C.3", "output-list-length", r"invalid output tensor list"),
    _Pattern("C.7", "uneven-chunks", r"scatter: invalid tensor size"),
    _Pattern("C.6", "sampler-with-iterable", r"IterableDataset: expected unspecified"),
    _Pattern("C.5", "device-ids-on-cpu", r"device_ids and output_device arguments only work"),
    _Pattern("C.5", "no-cuda", r"not compiled with CUDA|Found no NVIDIA driver|No CUDA GPUs"),
    _Pattern("C.5", "device-ordinal", r"invalid device ordinal|Duplicate GPU detected"),
    # D · training & evaluation
    _Pattern("D.1.2", "out-of-memory", r"can't allocate memory|[Oo]ut of memory|not enough memory"),
    _Pattern("D.1.2", "out-of-memory", types=r"^(MemoryError|OutOfMemoryError)$"),
    _Pattern("D.1.3", "tensors-on-two-devices", r"Expected all tensors to be on the same device"),
    _Pattern("D.1.3", "device-without-backend", r"No backend type associated with device"),
    _Pattern("D.1.3", "device-error", r"CUDA error|device-side assert|cuDNN|cuBLAS|CUBLAS"),
    _Pattern("D.1.4", "unused-parameters", r"finished reduction in the prior iteration"),
    _Pattern("D.1.4", "parameter-ready-twice", r"mark a variable ready only once"),
    _Pattern("D.1.4", "inplace-change", r"modified by an inplace operation"),
    _Pattern("D.1.4", "graph-changed", r"training graph has changed"),
    _Pattern("D.1.4", "graph-freed", r"backward through the graph a second time"),
    _Pattern("D.1.5", "models-differ", r"not to match sizes of the same param|expects same model"),
    _Pattern(
        "D.1.5",
        "tensor-shapes",
        r"shapes cannot be multiplied|size of tensor a .* must match|[Ss]ize mismatch|mat1 and mat2"
        r"|[Ss]hape mismatch|is invalid for input of size|Expected input batch_size"
        r"|must have the same dtype|expected scalar type|[Ss]izes of tensors must match",
    ),
    _Pattern("D.1.10", "dtype-not-supported", r"Invalid scalar type"),
    _Pattern("D.1.10", "not-implemented", r"not implemented for|does not support|not supported"),
    _Pattern("D.1.10", "not-implemented", types=r"^NotImplementedError$"),
    _Pattern("D.1.6", "checkpoint-unreadable", r"PytorchStreamReader|central directory"),
    _Pattern("D.1.6", "checkpoint-unreadable", types=r"^(EOFError|UnpicklingError)$"),
    _Pattern("D.1.6", "optimizer-state", r"loaded state dict"),
    _Pattern("D.1.9", "path-missing", types=r"^(FileNotFoundError|NotADirectoryError)$"),
    _Pattern("D.1.9", "path-missing", r"No such file or directory"),
    _Pattern("D.1.8", "wrapped-by-ddp", r"'DistributedDataParallel' object has no attribute"),
    _Pattern("D.1.8", "attribute-missing", types=r"^AttributeError$"),
    _Pattern("D.1.1", "collective-arguments", r"ProcessGroup\w+::|Received data size"),
    _Pattern("D.1.1", "collective-arguments", types=r"^Dist\w*Error$"),
)  # fmt: skip
_OTHER = Meaning("D.1.11", None)


def classify(error: RankError, call: Call | None = None) -> Meaning:
    """The symptom that an exception stands for; ``D.1.11`` (others) if no pattern fits.

    Parameters
    ----------
    call
        The call of ``torch.distributed`` in which it was raised, if any.
    """
    for pattern in _PATTERNS:
        if pattern.fits(error, call):
            return Meaning(pattern.symptom, pattern.cause)
    if call is not None and call.kind != "setup":
        return Meaning("D.1.1", "collective-arguments")
    return _OTHER
