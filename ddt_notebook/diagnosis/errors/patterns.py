"""Exceptions that their type, the call, or the files on the stack tell apart.

The catalogue of messages knows exceptions by their text alone.
"""

from __future__ import annotations

import sys

from .pattern import Pattern

#: What pip prints; it is at the end of the message of the failed command.
_NO_VERSION = (
    r"Could not find a version that satisfies|No matching distribution|ResolutionImpossible"
)
_BUILD = r"Failed building wheel|metadata-generation-failed|subprocess-exited-with-error"
_COMMAND = r"^CalledProcessError$"
#: A package that is installed but lacks the requested part: Python names its path.
_OLD_NAME = r"cannot import name .*[\\/](site|dist)-packages[\\/]"
_LACKS_PART = r"No module named '\w+\."
_NO_MODULE = r"^(ModuleNotFound|PackageNotFound)Error$"
#: A path that belongs to the user, and not to Python or an installed package.
_MINE = r"(?!.*([\\/](site|dist)-packages[\\/]|[\\/]lib[\\/]python\d))"
_LOADED_HERE = rf"was loaded from {_MINE}"
_STANDARD = "|".join(sorted(sys.stdlib_module_names))
#: A module of Python's standard library whose name the user's file has.
_SHADOWS = (
    rf"cannot import name .* from '({_STANDARD})' \({_MINE}"
    rf"|partially initialized module '({_STANDARD})' has no attribute"
)
#: The types that torch raises; a socket that the user opens raises an OSError.
_TORCHS = r"^(Dist\w*Error|RuntimeError|ValueError)$"
_LIBRARY = (
    r"cannot open shared object file|undefined symbol|invalid ELF header|file too short"
    r"|DLL load failed|Library not loaded|version `?\w+[\d._]*'? not found"
)
_INIT = r"\b(_?init_process_group|_?new_group|_?rendezvous)\b"
_NO_NUMBER = r"port must have value from|invalid literal for int\(\)"
_CHILD = r"^ProcessExitedException$"
_CHILD_ENDED = r"process \d+ terminated with exit code 1$"
_TYPE = r"Expected \w+ (argument )?to be (of type|an instance of)|unexpected keyword argument"
_MEMORY = r"[Cc]an(no|')t allocate memory|[Oo]ut of memory|not enough memory|bad_alloc"
_FOLDERS = r"\b(makedirs|mkdir)\b"
_ITEMS = r"torch/utils/data/_utils/(fetch|collate)"
_MODULE = r"^module '(?!__main__)[\w.]+' has no attribute"

#: Each of these says more than the text alone. The first one that fits is used.
BY_TEXT_AND_PLACE = (
    Pattern(
        "C.3",
        "output-list-length",
        r"list assignment index out of range",
        types=r"^IndexError$",
        ops=r"\b(all_)?gather_object\b",
    ),
    Pattern("A.1", "requirement-not-met", _NO_VERSION, types=_COMMAND),
    Pattern("A.1", "wheel-not-supported", r"not a supported wheel on", types=_COMMAND),
    Pattern("A.2", "module-shadowed", _LOADED_HERE, types=_NO_MODULE),
    Pattern("A.2", "module-shadowed", _SHADOWS, types=r"^(Import|Attribute)Error$"),
    Pattern("A.2", "circular-import", r"circular import", types=r"^(Import|Attribute)Error$"),
    Pattern("A.2", "shared-library", _LIBRARY, types=r"^(ImportError|OSError)$"),
    # the session's own messages, for a group of before a failure and for the group that is there
    Pattern("B.1", "stale-group", r"^this process group is gone"),
    Pattern("B.1", "group-initialized-twice", r"^the session has formed the process group already"),
    Pattern("B.1", "environment-invalid", _NO_NUMBER, types=r"^ValueError$", ops=_INIT),
    Pattern("B.1", "spawn-in-a-cell", _CHILD_ENDED, types=_CHILD, confidence="likely"),
    Pattern("B.1", "setup-options", _TYPE, ops=_INIT),
    Pattern("B.1", "port-in-use", r"EADDRINUSE|[Aa]ddress already in use", types=_TORCHS),
    Pattern("B.2", "rank-missing-at-setup", r"[Tt]ime(d )?out", ops=r"init_process_group|new_gr"),
    # Reports mostly describe it as a device error; in a run, it is the group that was formed.
    Pattern("B.3", "device-without-backend", r"No backend type associated with device"),
    # Errors about memory are recognised in every stage.
    Pattern("D.1.2", "out-of-memory", _MEMORY, r"^(RuntimeError|Accelerator\w*|OSError|Sys\w+)$"),
    Pattern("C.2", "dataloader-worker", r"DataLoader worker"),
    Pattern("C.2", "dataset-item-fails", files=_ITEMS, seen=True),
    Pattern("C.3", "unpicklable-object", r"[Pp]ickle|local object", ops=r"_object|_tensor_to_obj"),
    Pattern("C.6", "uneven-iterations", r"exhausted all inputs", ops=r"_notify_procs_to_term"),
    Pattern("D.1.9", "folder-made-by-every-rank", r"File exists", files=_FOLDERS, seen=True),
    Pattern("D.1.6", None, r"[Cc]an('t|not) pickle|StreamWriter", files=r"torch/serial", seen=True),
)  # fmt: skip

#: Used where the catalogue has no specific entry.
BY_TYPE = (
    Pattern("A.1", "build-failed", _BUILD, types=_COMMAND),
    Pattern("A.1", "install-failed", r"\bpip3?\b.*\binstall\b.*exit status", types=_COMMAND),
    Pattern("A.2", "package-version", _LACKS_PART, types=_NO_MODULE, confidence="likely"),
    Pattern("A.2", "module-not-found", types=_NO_MODULE),
    Pattern("A.2", "package-version", _OLD_NAME, types=r"^ImportError$", confidence="likely"),
    Pattern("A.2", "import-error", types=r"^ImportError$"),
    Pattern("B.1", None, ops=r"\binit_process_group\b|\bnew_group\b"),
    Pattern("D.1.2", "out-of-memory", types=r"^(MemoryError|OutOfMemoryError)$"),
    Pattern("D.1.9", None, types=r"^(FileNotF|Permis)\w+$", files=r"subprocess\.py ", seen=True),
    Pattern("D.1.9", "path-missing", types=r"^(FileNotFoundError|NotADirectoryError)$"),
    Pattern("D.1.9", None, types=r"^(FileExists|IsADirectory|Permission)Error$"),
    Pattern("C.6", "iterator-exhausted", types=r"^StopIteration$"),
    Pattern("D.1.10", None, types=r"^NotImplementedError$"),
    Pattern(
        "D.1.6",
        "checkpoint-unreadable",
        types=r"^(EOFError|UnpicklingError)$",
        files=r"torch/serialization|pickle",
    ),
    Pattern("D.1.6", "checkpoint-unreadable", files=r"torch/_weights_only_unpickler", seen=True),
    Pattern("D.1.8", "attribute-missing", _MODULE, types=r"^AttributeError$"),
    Pattern("D.1.8", None, types=r"^AttributeError$"),
    Pattern("D.1.11", "process-exit", types=r"^SystemExit$"),
)  # fmt: skip

#: Words and types of many causes: any entry of the catalogue says more.
BROAD = (
    Pattern(
        "D.1.10",
        "not-implemented",
        r"not (yet |currently )?implemented for|Could not run '|does not support|not supported",
        types=r"^(RuntimeError|NotImplementedError|DistBackendError)$",
    ),
    Pattern("D.1.1", "collective-arguments", types=r"^Dist\w*Error$"),
)
