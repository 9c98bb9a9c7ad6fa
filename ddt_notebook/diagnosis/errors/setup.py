"""Patterns for exceptions of stages A and B: packages, imports, setup of the communication."""

from __future__ import annotations

import sys

from .pattern import Pattern

#: What pip prints; it is at the end of the message of the failed command.
_NO_VERSION = (
    r"Could not find a version that satisfies|No matching distribution|ResolutionImpossible"
)
_BUILD = (
    r"Failed building wheel|metadata-generation-failed|subprocess-exited-with-error"
    r"|Error building extension|error: command '.*' failed"
)
_TOOLS = r"CUDA_HOME environment variable is not set|Ninja is required to load C\+\+ extensions"
_NO_TOOL = r"(?s)Error building extension.*: (command )?not found"
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
_METHOD = r"rendezvous: (rank|world_size|port number|world size) .*missing|No rendezvous handler"
_INIT = r"\b(_?init_process_group|_?new_group|_?rendezvous)\b"
_NO_NUMBER = r"port must have value from|invalid literal for int\(\)"
_NOT_BUILT = r"only supported with GPUs|doesn't have \w+ built in|accelerator support: None"
_CHILD = r"^ProcessExitedException$"
_CHILD_ENDED = r"process \d+ terminated with exit code 1$"
_TYPE = r"Expected \w+ (argument )?to be (of type|an instance of)|unexpected keyword argument"

#: The first pattern that fits is used, so specific patterns come first.
PATTERNS = (
    # A · package build & import
    Pattern("A.1", "requirement-not-met", _NO_VERSION, types=_COMMAND),
    Pattern("A.1", "wheel-not-supported", r"not a supported wheel on", types=_COMMAND),
    Pattern("A.1", "toolchain-missing", _TOOLS),
    Pattern("A.1", "toolchain-missing", _NO_TOOL),
    Pattern("A.1", "build-failed", _BUILD),
    Pattern("A.1", "install-failed", r"\bpip3?\b.*\binstall\b.*exit status", types=_COMMAND),
    Pattern("A.2", "module-shadowed", _LOADED_HERE, types=_NO_MODULE),
    Pattern("A.2", "module-shadowed", _SHADOWS, types=r"^(Import|Attribute)Error$"),
    Pattern("A.2", "circular-import", r"circular import", types=r"^(Import|Attribute)Error$"),
    Pattern("A.2", "package-version", _LACKS_PART, types=_NO_MODULE, confidence="likely"),
    Pattern("A.2", "module-not-found", types=_NO_MODULE),
    Pattern("A.2", "package-version", _OLD_NAME, types=r"^ImportError$", confidence="likely"),
    Pattern("A.2", "shared-library", _LIBRARY, types=r"^(ImportError|OSError)$"),
    Pattern("A.2", "import-error", types=r"^ImportError$"),
    # B · communication setup
    Pattern("B.1", "group-not-initialized", r"[Pp]rocess group has not been initialized"),
    Pattern("B.1", "group-initialized-twice", r"process group twice|process group already"),
    Pattern("B.1", "stale-group", r"process group is gone|process group registered under"),
    Pattern("B.1", "environment-not-set", r"environment variable \w+ expected, but not set"),
    Pattern("B.1", "init-method-incomplete", _METHOD),
    Pattern("B.1", "rank-outside-world", r"rank < size"),
    Pattern("B.1", "environment-invalid", _NO_NUMBER, types=r"^ValueError$", ops=_INIT),
    Pattern("B.1", "spawn-in-a-cell", _CHILD_ENDED, types=_CHILD, confidence="likely"),
    Pattern("B.1", "setup-options", _TYPE, ops=_INIT),
    Pattern("B.1", "port-in-use", r"EADDRINUSE|[Aa]ddress already in use", types=_TORCHS),
    Pattern("B.1", "backend-not-available", _NOT_BUILT),
    Pattern("B.1", "backend-unknown", r"[Uu]nknown (c10d )?backend|Invalid backend"),
    Pattern("B.1", "network-interface", r"Unable to find (address|interface)"),
    Pattern("B.2", "rank-missing-at-setup", r"waiting for clients|client socket has timed out"),
    Pattern("B.2", "rank-missing-at-setup", r"[Tt]ime(d )?out", ops=r"init_process_group|new_gr"),
    Pattern("B.3", "device-without-backend", r"No backend type associated with device"),
    Pattern("B.1", None, ops=r"\binit_process_group\b|\bnew_group\b"),
)  # fmt: skip
