"""The frameworks for which a session prepares its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedFramework:
    """A framework that has collectives of its own, beside ``torch.distributed``.

    Attributes
    ----------
    title
        Its name in texts.
    modules
        What the process imports from which the ranks are forked; only the first is required.
    install
        How it is installed.
    environment
        Variables that it reads when it is imported, with their defaults.
    """

    title: str
    modules: tuple[str, ...]
    install: str
    environment: Mapping[str, str]


#: By the name that ``--framework`` takes.
PREPARED = {
    "horovod": PreparedFramework(
        title="Horovod",
        modules=("horovod", "horovod.torch"),
        install="run tools/build_horovod.py of this package's repository, which builds it",
        environment={"HOROVOD_LOG_LEVEL": "fatal"},
    ),
    "tensorflow": PreparedFramework(
        title="TensorFlow",
        modules=("tensorflow", "tf_keras"),
        install="pip install 'ddt-notebook[tensorflow]'",
        # Each rank would write of missing GPUs, and of each wait that the session ends. What
        # matters reaches the cell as an exception.
        environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
    ),
}
