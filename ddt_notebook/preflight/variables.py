"""Checks environment variables for their effects, invalid values and misspelt names."""

from __future__ import annotations

import functools
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

from ..model.preflight import Check
from ..spelling import similar_names

#: Prefixes of the names of variables for distributed training.
_FAMILIES = (
    *("NCCL_", "TORCH_", "TORCHELASTIC_", "GLOO_", "OMP_", "MKL_NUM", "CUDA_", "MASTER_"),
    *("LOCAL_RANK", "LOCAL_WORLD", "WORLD_", "RANK"),
)
_SHORTEST = 8
#: Variables that are set on most machines and are harmless.
_COMMON = frozenset({"LD_LIBRARY_PATH", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VERSION"})

_check = functools.partial(Check, "environment")


@functools.cache
def _catalogue() -> tuple[dict[str, dict[str, Any]], frozenset[str]]:
    """The description of each variable, and all known names."""
    text = resources.files(__package__).joinpath("variables.toml").read_text(encoding="utf-8")
    described = tomllib.loads(text)
    also = described.pop("names")["also"].split()
    return described, frozenset(described) | frozenset(also)


def described() -> frozenset[str]:
    """Names of the variables that have a description."""
    return frozenset(_catalogue()[0])


def variable_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check each variable that changes how a job runs, and each that is probably misspelt."""
    described, known = _catalogue()
    for name in sorted(environment):
        if name in described:
            if name not in _COMMON:
                yield _known(name, environment[name], described[name])
        elif name not in known and name.upper() == name:
            meant = _meant(name, known)
            if meant:
                yield _check(
                    name,
                    "warning",
                    environment[name],
                    f"nothing reads {name}; it is probably a misspelling of {meant}",
                    f"unset {name} and set {meant}",
                )


def _known(name: str, value: str, about: Mapping[str, Any]) -> Check:
    values, pattern = about.get("values"), about.get("pattern")
    if values and value.upper() not in values:
        allowed = ", ".join(values)
        return _check(name, "error", value, about["does"], f"set it to {allowed}, or unset it")
    if pattern and not re.fullmatch(pattern, value):
        return _check(
            name,
            "error",
            value,
            about["does"],
            "the value is invalid: correct or unset it",
        )
    switched_off = bool(values) and value in ("", "0", "OFF")
    if about.get("caution") and not switched_off:
        meaning = f"{about['does']}; {about['caution']}"
        return _check(name, "warning", value, meaning, f"unset {name} unless you want this")
    return _check(name, "ok", value, about["does"])


def _meant(name: str, known: frozenset[str]) -> str:
    """The known name that the user probably meant by a misspelt name; empty if there is none."""
    if len(name) < _SHORTEST:
        return ""
    near = similar_names(name, known)
    # NCCL_MIN_NCHANNELS is similar to NCCL_MAX_NCHANNELS, but not a misspelling of it
    if not near or not near[0].startswith(_FAMILIES) or not _one_slip(name, near[0]):
        return ""
    return near[0]


def _one_slip(written: str, meant: str) -> bool:
    """Whether one letter is wrong, missing or extra, or two neighbouring letters are swapped."""
    start = _same_letters(written, meant)
    end = _same_letters(written[start:][::-1], meant[start:][::-1])
    wrong, right = written[start : len(written) - end], meant[start : len(meant) - end]
    return max(len(wrong), len(right)) == 1 or (len(wrong) == 2 and wrong == right[::-1])


def _same_letters(one: str, other: str) -> int:
    """How many letters two texts have in common at their beginning."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
