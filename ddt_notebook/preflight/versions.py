"""Checks whether versions fit each other, and whether backends form a group."""

from __future__ import annotations

import functools
import json
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..model import codec
from ..model.preflight import Check
from ..model.torch_features import MissingFeature
from .child import FORM_S
from .processes import Ended, run_together

#: Time limit for importing torch, in seconds; a slow machine needs most of it.
_IMPORT_S = 60.0
_OLDEST_PYTHON = (3, 11)
_OLDEST_TORCH = (2, 12)
#: Seen with 2.13.0: 5 of 6 restarts hung or failed; the one with this variable set succeeded.
_RESTARTS_SHARE_A_STORE = (2, 13)
_OWN_STORE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"

_check = functools.partial(Check, "versions")
_backend = functools.partial(Check, "backends")


def read_versions() -> tuple[dict[str, str], Ended]:
    """The versions in a fresh process; empty if it cannot import torch."""
    (ended,) = run_together(["versions"], [os.environ], _IMPORT_S)
    if ended.status != 0:
        return {}, ended
    return json.loads(ended.output.splitlines()[-1]), ended


def version_checks(facts: dict[str, str], ended: Ended) -> Iterator[Check]:
    """Check whether Python, torch, CUDA and the GPUs fit each other."""
    if not facts:
        seen = "importing it takes longer than a minute" if ended.status is None else ""
        yield _check(
            "torch",
            "error",
            seen or ended.last_error or f"importing it ended the process ({ended.status})",
            "no rank can start",
            "install torch for this Python, or repair the import that fails",
        )
        return
    python, torch = _numbers(facts["python"]), _numbers(facts["torch"])
    old = python < _OLDEST_PYTHON
    yield _check(
        "Python",
        "error" if old else "ok",
        facts["python"],
        "ddt_notebook needs 3.11 or later" if old else "",
        "make a virtual environment with a newer Python" if old else "",
    )
    old = torch < _OLDEST_TORCH
    yield _check(
        "torch",
        "warning" if old else "ok",
        facts["torch"] + (f", built for CUDA {facts['cuda']}" if facts["cuda"] else ", CPU build"),
        "sessions need torch 2.12 or later" if old else "",
        "upgrade torch" if old else "",
    )
    if facts["distributed"] != "yes":
        yield _check(
            "torch.distributed",
            "error",
            "not in this build",
            "torch was built with USE_DISTRIBUTED=0",
            "install a build of torch with distributed support",
        )
    elif torch[:2] == _RESTARTS_SHARE_A_STORE and os.environ.get(_OWN_STORE) != "1":
        yield _check(
            "restarts",
            "ok",
            "torchrun keeps one store for all attempts",
            f"after a restart, a group of gloo often does not form: set {_OWN_STORE}=1 for jobs "
            "with --max-restarts; see the fault card store-reused",
        )
    yield from _feature_checks(json.loads(facts["missing features"]))
    yield from _gpu_checks(facts)


def _feature_checks(missing: list[dict[str, Any]]) -> Iterator[Check]:
    """Report what cannot be observed because this version of PyTorch lacks a private name."""
    for plain in missing:
        feature = codec.from_plain(MissingFeature, plain)
        yield _check(
            f"feature {feature.feature}",
            "warning",
            f"torch lacks {', '.join(feature.names)}",
            feature.lost,
            "upgrade ddt_notebook, or use a version of torch that it was tested with",
        )
    if not missing:
        yield _check("features", "ok", "torch has all private names that ddt_notebook uses")


def _gpu_checks(facts: dict[str, str]) -> Iterator[Check]:
    has_driver = Path("/proc/driver/nvidia/version").exists()
    gpus = int(facts["gpus"])
    if gpus:
        yield _check("GPUs", "ok", f"{gpus} × {facts['gpu']}")
        wanted = "sm_" + facts["capability"].replace(".", "")
        built = facts["architectures"].split()
        if built and not any(_runs_on(architecture, wanted) for architecture in built):
            yield _check(
                "CUDA architectures",
                "error",
                f"the GPU is {wanted}, torch was built for {', '.join(built)}",
                'kernels fail with "no kernel image is available for execution on the device"',
                "install a torch build for this generation of GPU",
            )
        if facts["has nccl"] != "yes" and not facts["rocm"]:
            yield _check(
                "NCCL",
                "error",
                "not in this build of torch",
                "GPU ranks cannot use the fast backend",
                "install the CUDA wheel of torch for Linux",
            )
    elif has_driver:
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is not None and hidden.strip() in ("", "-1"):
            seen, fix = f"hidden by CUDA_VISIBLE_DEVICES={hidden!r}", "unset CUDA_VISIBLE_DEVICES"
        elif not facts["cuda"]:
            seen = "there is a driver, but torch is a CPU build"
            fix = "install the CUDA wheel of torch if the ranks should use the GPUs"
        else:
            seen = "there is a driver, but torch finds no GPU"
            fix = "update the older one: the CUDA of the driver (nvidia-smi) or that of torch"
        yield _check("GPUs", "warning", seen, "the ranks will run on the CPU", fix)
    else:
        yield _check("GPUs", "ok", "none; the ranks run on the CPU")


def backend_checks(facts: dict[str, str]) -> Iterator[Check]:
    """Form a group of two processes with each backend that this machine can use."""
    usable = ["gloo"] if facts.get("has gloo") == "yes" else []
    if facts.get("has nccl") == "yes" and int(facts["gpus"]) > 0:
        usable.append("nccl")
    for backend in usable:
        yield _form(backend, 1 if backend == "nccl" and facts["gpus"] == "1" else 2)
    if facts and not usable:
        yield _backend(
            "any",
            "error",
            "this build of torch has neither gloo nor a usable nccl",
            "no process group can be formed",
            "install an official build of torch",
        )


def form_group(backend: str, size: int) -> Ended | None:
    """Let fresh processes form a group and reduce a number.

    Parameters
    ----------
    backend
        ``"gloo"`` or ``"nccl"``.
    size
        How many processes.

    Returns
    -------
    Ended or None
        The first process that failed; None if all succeeded.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environments = [
        os.environ
        | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        for rank in range(size)
    ]
    ended = run_together(["form", backend], environments, _IMPORT_S + 2 * FORM_S)
    return next((one for one in ended if one.status != 0), None)


def _form(backend: str, size: int) -> Check:
    failed = form_group(backend, size)
    if failed is None:
        processes = "two processes" if size == 2 else "one process"
        seen = f"{processes} formed a group and reduced a number on it"
        return _backend(backend, "ok", seen)
    named = " ".join(
        f"{name}={value}"
        for name, value in sorted(os.environ.items())
        if name.startswith(backend.upper() + "_")
    )
    return _backend(
        backend,
        "error",
        failed.last_error if failed.status is not None else "no group within the time limit",
        "no job can start with this backend on this machine",
        f"check {named} first" if named else "see the checks of the network below",
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+", maxsplit=1)[0])[:2])


def _runs_on(built: str, wanted: str) -> bool:
    """Whether code for one architecture runs on another: the same major number, or as PTX."""
    if built.startswith("compute_"):
        return int(built.rsplit("_", 1)[1].rstrip("a")) <= int(wanted.rsplit("_", 1)[1])
    number, target = built.removeprefix("sm_").rstrip("a"), wanted.removeprefix("sm_")
    return number[:-1] == target[:-1] and int(number) <= int(target)
