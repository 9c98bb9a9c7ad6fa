"""Cards that stand for others where a framework needs other changes than torch."""

from __future__ import annotations

_CONFIG, _CHIEF = "tensorflow-config-differs", "tensorflow-chief-alone"
#: By framework, and by the cause that holds for torch.
_STAND_INS = {
    "deepspeed": {
        "message-without-partner": "deepspeed-pipeline-batches-differ",
        "uneven-iterations": "deepspeed-batches-differ",
    },
    "horovod": {
        "collective-under-rank-condition": "horovod-rank-alone",
        "different-groups": "horovod-names-differ",
        "groups-in-opposite-order": "horovod-order-differs",
        "replicas-start-apart": "horovod-not-broadcast",
        "uneven-iterations": "horovod-steps-differ",
    },
    "tensorflow": {
        "collective-under-rank-condition": _CHIEF,
        "rank-missing-at-setup": _CONFIG,
        "rank-number-repeated": _CONFIG,
        "rank-outside-world": _CONFIG,
        "rendezvous-differs": _CONFIG,
        "uneven-iterations": "tensorflow-steps-differ",
        "world-size-differs": _CONFIG,
    },
}


def stand_in(cause: str, framework: str) -> str | None:
    """The id of the card of a cause in a framework; None if it is the same as for torch."""
    return _STAND_INS.get(framework, {}).get(cause)
