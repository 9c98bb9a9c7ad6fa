"""Checks whether the installed frameworks fit each other and torch; imports none of them."""

from __future__ import annotations

import functools
import importlib.util
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from ..model.preflight import Check

#: Packages that train on several processes, or that such packages need in a version that fits.
_PACKAGES = (
    *("accelerate", "colossalai", "deepspeed", "horovod", "keras", "lightning", "megatron-core"),
    *("pytorch-lightning", "ray", "tensorflow", "tensorflow-cpu", "tf_keras", "torchaudio"),
    *("torchdata", "torchtitan", "torchtune", "torchvision", "transformer_engine", "transformers"),
)
_LEGACY_KERAS = "TF_USE_LEGACY_KERAS"

_check = functools.partial(Check, "versions")


def framework_checks(environment: Mapping[str, str]) -> Iterator[Check]:
    """Check what the installed frameworks say that they need.

    Parameters
    ----------
    environment
        The environment variables of a job.
    """
    installed = {name: version for name in _PACKAGES if (version := _version(name))}
    if installed:
        named = ", ".join(f"{name} {version}" for name, version in installed.items())
        yield _check("frameworks", "ok", named)
    for name, version in installed.items():
        for unmet in _unmet(name):
            yield _check(
                name,
                "warning",
                f"{name} {version} needs {unmet}",
                "its import, or a call that has changed, may fail",
                f"let pip choose versions that fit each other: pip install --upgrade {name}",
            )
    yield from _megatron(installed)
    yield from _horovod(installed)
    keras, legacy = installed.get("keras", ""), environment.get(_LEGACY_KERAS)
    uses_tensorflow = {"tensorflow", "tensorflow-cpu"} & installed.keys()
    if uses_tensorflow and keras.startswith("3.") and legacy != "1":
        # seen with TensorFlow 2.21 and Keras 3.15; https://github.com/keras-team/keras/issues/20585
        yield _check(
            "Keras",
            "ok",
            f"tf.keras is Keras {keras}",
            "its fit fails under MultiWorkerMirroredStrategy: install tf_keras and set "
            f"{_LEGACY_KERAS}=1 for jobs on several workers",
        )


def _megatron(installed: Mapping[str, str]) -> Iterator[Check]:
    """Check the packages that Megatron-core imports if they are there, and does not require."""
    megatron = installed.get("megatron-core", "")
    if not megatron:
        return
    engine = installed.get("transformer_engine", "")
    if engine:
        yield from _too_old("transformer_engine", engine, f"megatron-core {megatron}")
    elif not _version("apex"):
        yield _check(
            "megatron-core",
            "ok",
            f"megatron-core {megatron} without transformer_engine and apex",
            "layers are those of get_gpt_layer_local_spec(), without sequence parallelism",
        )


def _horovod(installed: Mapping[str, str]) -> Iterator[Check]:
    """Check Horovod, which is built against one version of PyTorch and says which."""
    version = installed.get("horovod", "")
    if not version:
        return
    torch, built = _version("torch"), ""
    spec = importlib.util.find_spec("horovod")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        with suppress(OSError, ValueError, AttributeError):
            built = str(json.loads(Path(folder, "metadata.json").read_text()).get("pytorch", ""))
    what = f"horovod {version}, built against torch {built or 'of an unknown version'}"
    if built and built.partition("+")[0] != torch.partition("+")[0]:
        yield _check(
            "horovod",
            "warning",
            f"{what}; torch {torch} is installed",
            "its import may fail with an undefined symbol",
            "build it again: tools/build_horovod.py of this package's repository",
        )
    else:
        meaning = "its last release is 0.28.1 of June 2023; a newer torch needs another build"
        yield _check("horovod", "ok", what, meaning)


def _too_old(name: str, version: str, by: str) -> Iterator[Check]:
    """Check a package against what an extra of Megatron-core requires."""
    for text in metadata.requires("megatron-core") or ():
        wanted = Requirement(text)
        if wanted.name.replace("-", "_") != name or wanted.specifier.contains(
            version, prereleases=True
        ):
            continue
        yield _check(
            name,
            "warning",
            f"{by} is made for {name}{wanted.specifier}; {version} is installed",
            "its layers may call what that version lacks or has changed",
            f"install the version that fits: pip install '{name}{wanted.specifier}'",
        )
        return


def _unmet(name: str) -> Iterator[str]:
    """The requirements of a package that the installed packages do not meet."""
    for text in metadata.requires(name) or ():
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        there = _version(wanted.name)
        needed = f"{wanted.name}{wanted.specifier}"
        if not there:
            yield f"{needed}, which is not installed"
        elif not wanted.specifier.contains(there, prereleases=True):
            yield f"{needed}; {there} is installed"


def _version(name: str) -> str:
    """The installed version of a package; empty if it is not installed."""
    try:
        return metadata.version(name) or ""
    except metadata.PackageNotFoundError:
        return ""
