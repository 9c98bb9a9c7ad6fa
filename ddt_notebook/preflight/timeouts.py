"""Time-outs: how long a hang lasts before somebody hears of it, and settings that do nothing."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from ..formatting import seconds
from ..model.preflight import Check
from .lines import line

_MINUTE = 60
#: Names that people set in the belief that torch or NCCL reads them.
_UNREAD = (
    *("NCCL_TIMEOUT", "NCCL_TIMEOUT_S", "NCCL_TIMEOUT_SEC", "NCCL_TIMEOUT_MS"),
    *("TORCH_NCCL_TIMEOUT", "TORCH_NCCL_TIMEOUT_S", "TORCH_NCCL_TIMEOUT_SEC"),
    *("TORCH_DISTRIBUTED_TIMEOUT", "GLOO_TIMEOUT", "GLOO_TIMEOUT_SECONDS"),
)
_HOW = "pass timeout=timedelta(seconds=…) to init_process_group and to new_group"
#: A watchdog may be busy for that long without being stuck.
_BUSY_S = 60
#: The verbs take five bits.
_LARGEST_EXPONENT = 31
#: Nobody waits for a collective for longer.
_DAY_MIN = 24 * 60

_check = functools.partial(line, "time-outs")


def timeout_checks(
    facts: Mapping[str, str],
    environment: Mapping[str, str],
    session: tuple[float, float] | None = None,
) -> Iterator[Check]:
    """Which time-outs hold, and whether what is set can do what is wanted.

    Parameters
    ----------
    facts
        What a fresh interpreter says of its torch.
    environment
        Where variables may be set.
    session
        The session's ``timeout`` and ``hang_after`` in seconds, None if there is none.
    """
    yield from _groups(facts)
    if session is not None:
        yield _session(*session)
    for name in _UNREAD:
        if name in environment:
            yield _check(
                name,
                "warning",
                environment[name],
                f"neither torch nor NCCL reads {name}: the time-out stays what it was, unless your "
                "own program passes it on",
                f"unset it; {_HOW}",
            )
    yield from _watchdog(environment)
    yield from _verbs(environment)
    yield from _deepspeed(environment)
    yield from _horovod(environment)


def _groups(facts: Mapping[str, str]) -> Iterator[Check]:
    known = {
        backend: seconds(float(facts[f"timeout {backend}"]))
        for backend in ("gloo", "nccl")
        if facts.get(f"timeout {backend}")
    }
    if known:
        yield _check(
            "process group",
            "ok",
            ", ".join(f"{backend} {limit}" for backend, limit in known.items()),
            "torch's defaults: so long a hang looks like work, then gloo raises, and NCCL's "
            f"watchdog ends the process; for less, or for longer checkpoints, {_HOW}",
        )


def _session(timeout_s: float, hang_after_s: float) -> Check:
    seen = f"{seconds(timeout_s)} in a collective, {seconds(hang_after_s)} once it cannot complete"
    if hang_after_s > timeout_s:
        return _check(
            "session",
            "warning",
            seen,
            "the limit of the collective passes before a hang is declared",
            "`%config DDT.hang_after` below `%config DDT.timeout`",
        )
    return _check("session", "ok", seen)


def _watchdog(environment: Mapping[str, str]) -> Iterator[Check]:
    """The variables of torch's NCCL backend; its older names are read, too."""
    blocking = _either(environment, "NCCL_BLOCKING_WAIT")
    handling = _either(environment, "NCCL_ASYNC_ERROR_HANDLING")
    if handling == "0" and blocking != "1":
        yield _check(
            "NCCL watchdog",
            "error",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
            "a collective of NCCL that times out is not acted on: a hang lasts for ever",
            "unset it",
        )
    if blocking == "1":
        yield _check(
            "NCCL watchdog",
            "warning",
            "TORCH_NCCL_BLOCKING_WAIT=1",
            "a time-out is an exception at `wait()`; but each wait stops the processor until the "
            "GPU has finished",
            "unset it unless the exception is caught",
        )
    if environment.get("TORCH_NCCL_ENABLE_MONITORING") == "0":
        yield _check(
            "NCCL heartbeat",
            "warning",
            "TORCH_NCCL_ENABLE_MONITORING=0",
            "a watchdog that is stuck in CUDA itself is never ended, nor is its process",
            "unset it; for slow starts raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480 s)",
        )
    beat = _number(environment.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"))
    if beat is not None and beat < _BUSY_S:
        yield _check(
            "NCCL heartbeat",
            "warning",
            f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={beat}",
            "long calls of CUDA, such as the first start of NCCL, end healthy processes",
            f"set it to {_BUSY_S} or more; the default is 480",
        )


def _verbs(environment: Mapping[str, str]) -> Iterator[Check]:
    exponent = _number(environment.get("NCCL_IB_TIMEOUT"))
    if exponent is not None and exponent > _LARGEST_EXPONENT:
        yield _check(
            "InfiniBand",
            "error",
            f"NCCL_IB_TIMEOUT={exponent}",
            "it is no number of seconds: the time is 4.096 µs × 2 to that power",
            f"set it to at most {_LARGEST_EXPONENT}, such as 22, or unset it; {_HOW}",
        )


def _deepspeed(environment: Mapping[str, str]) -> Iterator[Check]:
    value = environment.get("DEEPSPEED_TIMEOUT")
    if value is None:
        return
    minutes = _number(value)
    if minutes is None:
        meaning = "DeepSpeed cannot be imported: it wants a whole number of minutes"
        yield _check("DEEPSPEED_TIMEOUT", "error", value, meaning, "write minutes, such as 30")
    elif minutes > _DAY_MIN:
        meaning = f"DeepSpeed takes it for minutes: {minutes / _DAY_MIN:.0f} days"
        yield _check("DEEPSPEED_TIMEOUT", "warning", value, meaning, "write minutes, such as 30")
    else:
        meaning = "of the groups that deepspeed.init_distributed forms"
        yield _check("DEEPSPEED_TIMEOUT", "ok", seconds(minutes * _MINUTE), meaning)


def _horovod(environment: Mapping[str, str]) -> Iterator[Check]:
    if environment.get("HOROVOD_STALL_CHECK_DISABLE") == "1":
        yield _check(
            "HOROVOD_STALL_CHECK_DISABLE",
            "warning",
            "1",
            "Horovod does not say which ranks it waits for",
            "unset it",
        )
    warn = _number(environment.get("HOROVOD_STALL_CHECK_TIME_SECONDS"))
    end = _number(environment.get("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"))
    warn = _MINUTE if warn is None else warn
    if end is not None and 0 < end < warn:
        yield _check(
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
            "warning",
            str(end),
            f"it is shorter than the time of the warning ({warn} s), and Horovod ignores it then",
            f"set it above {warn}",
        )


def _either(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(f"TORCH_{name}", environment.get(name))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None
