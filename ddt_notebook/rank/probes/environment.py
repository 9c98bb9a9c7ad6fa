"""The environment in which a rank runs, for comparison with the other ranks."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch


def observe(
    rank: int, namespace: Any, names: list[str] | None = None, variables: Sequence[str] = ()
) -> dict[str, str]:
    """Facts by name, as text.

    Parameters
    ----------
    rank, namespace, names
        Not used.
    variables
        Names of environment variables to report if they are set.
    """
    facts = {
        "python": platform.python_version(),
        "interpreter": sys.executable,
        "torch": torch.__version__,
        "threads": str(torch.get_num_threads()),
        "GPUs": str(torch.cuda.device_count()),
        "working directory": str(Path.cwd()),
    }
    return facts | {name: os.environ[name] for name in variables if name in os.environ}
