"""Code that the doctor runs in a fresh process, so that torch or a crash cannot harm the kernel.

``python -m ddt_notebook.preflight.child versions`` prints facts as JSON. ``… form BACKEND`` forms a
group with the processes that its environment variables describe, and reduces one number on it.
"""

from __future__ import annotations

import json
import platform
import sys
from datetime import timedelta

#: Time limit for forming a group, in seconds.
FORM_S = 15.0


def versions() -> dict[str, str]:
    """Versions that must fit each other, as text; empty for packages that are not installed."""
    import torch
    import torch.distributed as dist

    from ..model import codec
    from ..rank import torch_private

    torch_private.import_ahead()
    available = dist.is_available()
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda or "",
        "rocm": getattr(torch.version, "hip", None) or "",
        "gpus": str(devices),
        "gpu": torch.cuda.get_device_name(0) if devices else "",
        "architectures": " ".join(torch.cuda.get_arch_list()) if devices else "",
        "capability": "{}.{}".format(*torch.cuda.get_device_capability(0)) if devices else "",
        "threads": str(torch.get_num_threads()),
        "distributed": "yes" if available else "no",
        "missing features": json.dumps(codec.to_plain(torch_private.missing())),
    }
    for name in ("gloo", "nccl", "mpi", "xccl", "ucc"):
        there = getattr(dist, f"is_{name}_available", None)
        facts[f"has {name}"] = "yes" if available and there is not None and there() else "no"
    if available:
        from torch.distributed import constants

        limits = {"gloo": constants.default_pg_timeout, "nccl": constants.default_pg_nccl_timeout}
        for name, limit in limits.items():
            facts[f"timeout {name}"] = str(limit.total_seconds()) if limit is not None else ""
    if facts["has nccl"] == "yes":
        facts["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return facts


def form(backend: str) -> None:
    """Form a group, reduce one number on it, and leave it."""
    import os

    import torch
    import torch.distributed as dist

    device = "cpu"
    if backend == "nccl":
        device = f"cuda:{int(os.environ['RANK']) % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    dist.init_process_group(backend, timeout=timedelta(seconds=FORM_S))
    total = torch.ones(1, device=device)
    dist.all_reduce(total)
    assert total.item() == dist.get_world_size()
    dist.destroy_process_group()


def main(arguments: list[str]) -> None:
    """Run the command of the command line."""
    if arguments[0] == "versions":
        print(json.dumps(versions()))
    else:
        form(arguments[1])


if __name__ == "__main__":
    main(sys.argv[1:])
