"""Checks how long a hang lasts before it is reported, and settings that have no effect."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from ..formatting import seconds
from ..model.preflight import Check

_MINUTE = 60
#: Variables that some people set, but neither torch nor NCCL reads.
_UNREAD = (
    *("NCCL_TIMEOUT", "NCCL_TIMEOUT_S", "NCCL_TIMEOUT_SEC", "NCCL_TIMEOUT_MS"),
    *("TORCH_NCCL_TIMEOUT", "TORCH_NCCL_TIMEOUT_S", "TORCH_NCCL_TIMEOUT_SEC"),
    *("TORCH_DISTRIBUTED_TIMEOUT", "GLOO_TIMEOUT", "GLOO_TIMEOUT_SECONDS"),
)
_HOW = "pass timeout=timedelta(seconds=…) to init_process_group and to new_group"
#: A watchdog can be busy this long without being stuck, such as at the first start of NCCL.
_BUSY_S = 60
#: NCCL_IB_TIMEOUT goes into a field of five bits.
_LARGEST_EXPONENT = 31
#: A longer timeout is probably a mistake.
_DAY_MIN = 24 * 60

_check = functools.partial(Check, "timeouts")


def timeout_checks(
    facts: Mapping[str, str],
    environment: Mapping[str, str],
    session: tuple[float | None, float] | None = None,
) -> Iterator[Check]:
    """Check which timeouts apply, and whether the variables have the effect that they seem to have.

    Parameters
    ----------
    facts
        What `versions.read_versions` found.
    environment
        The environment variables.
    session
        The session's ``timeout`` and ``hang_after`` in seconds; None if there is no session.
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
                f"neither torch nor NCCL reads {name}: it has no effect unless your own program "
                "reads it",
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
            "torch's defaults: a hang lasts this long; then gloo raises, and NCCL's watchdog ends "
            f"the process; to change it, {_HOW}",
        )


def _session(timeout_s: float | None, hang_after_s: float) -> Check:
    limit = "as long as PyTorch waits" if timeout_s is None else seconds(timeout_s)
    seen = f"{limit} in a collective, {seconds(hang_after_s)} once it cannot complete"
    if timeout_s is not None and hang_after_s > timeout_s:
        return _check(
            "session",
            "warning",
            seen,
            "the timeout of the collective expires before a hang is declared",
            "set `%config DDT.hang_after` below `%config DDT.timeout`",
        )
    return _check("session", "ok", seen)


def _watchdog(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check the variables of torch's NCCL backend, which also reads their older names."""
    blocking = _either(environment, "NCCL_BLOCKING_WAIT")
    handling = _either(environment, "NCCL_ASYNC_ERROR_HANDLING")
    if handling == "0" and blocking != "1":
        yield _check(
            "NCCL watchdog",
            "error",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
            "nothing happens when a collective of NCCL times out: a hang lasts forever",
            "unset it",
        )
    if blocking == "1":
        yield _check(
            "NCCL watchdog",
            "warning",
            "TORCH_NCCL_BLOCKING_WAIT=1",
            "a timeout raises an exception at `wait()`, but each `wait()` blocks the CPU until the "
            "GPU has finished",
            "unset it unless the exception is caught",
        )
    if environment.get("TORCH_NCCL_ENABLE_MONITORING") == "0":
        yield _check(
            "NCCL heartbeat",
            "warning",
            "TORCH_NCCL_ENABLE_MONITORING=0",
            "a watchdog that is stuck in CUDA is never ended, and neither is its process",
            "unset it; for slow starts raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480 s)",
        )
    beat = _number(environment.get("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"))
    if beat is not None and beat < _BUSY_S:
        yield _check(
            "NCCL heartbeat",
            "warning",
            f"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC={beat}",
            "a long CUDA call, such as the first start of NCCL, ends a healthy process",
            f"set it to {_BUSY_S} or more; the default is 480",
        )


def _verbs(environment: Mapping[str, str]) -> Iterator[Check]:
    exponent = _number(environment.get("NCCL_IB_TIMEOUT"))
    if exponent is not None and exponent > _LARGEST_EXPONENT:
        yield _check(
            "InfiniBand",
            "error",
            f"NCCL_IB_TIMEOUT={exponent}",
            "this is not a number of seconds: the timeout is 4.096 µs × 2 to this power",
            f"set it to at most {_LARGEST_EXPONENT}, such as 22, or unset it; {_HOW}",
        )


def _deepspeed(environment: Mapping[str, str]) -> Iterator[Check]:
    value = environment.get("DEEPSPEED_TIMEOUT")
    if value is None:
        return
    minutes = _number(value)
    if minutes is None:
        meaning = "DeepSpeed cannot be imported: it needs a whole number of minutes"
        yield _check("DEEPSPEED_TIMEOUT", "error", value, meaning, "write minutes, such as 30")
    elif minutes > _DAY_MIN:
        meaning = f"DeepSpeed reads it as minutes: {minutes / _DAY_MIN:.0f} days"
        yield _check("DEEPSPEED_TIMEOUT", "warning", value, meaning, "write minutes, such as 30")
    else:
        meaning = "the timeout of the groups that deepspeed.init_distributed forms"
        yield _check("DEEPSPEED_TIMEOUT", "ok", seconds(minutes * _MINUTE), meaning)


def _horovod(environment: Mapping[str, str]) -> Iterator[Check]:
    if environment.get("HOROVOD_STALL_CHECK_DISABLE") == "1":
        yield _check(
            "HOROVOD_STALL_CHECK_DISABLE",
            "warning",
            "1",
            "Horovod does not report which ranks it waits for",
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
            f"it is shorter than the time of the warning ({warn} s), so Horovod ignores it",
            f"set it above {warn}",
        )


def _either(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(f"TORCH_{name}", environment.get(name))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.strip().isdigit() else None
