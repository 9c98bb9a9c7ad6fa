"""Whether ranks record what they do; benchmarks and tests of the recorder's cost turn it off."""

from __future__ import annotations

import os

_VARIABLE = "DDT_RECORDING"


def records() -> bool:
    """Whether ranks that are started in this process's environment record what they do."""
    return os.environ.get(_VARIABLE, "on") != "off"
