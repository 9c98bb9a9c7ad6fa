"""Builds Horovod 0.28.1, its last release (June 2023), against the installed PyTorch.

python tools/build_horovod.py          # builds a wheel and installs it; needs g++ and cmake
python tools/build_horovod.py FOLDER   # builds it in this folder and leaves the wheel there

That release asks for C++14, which the headers of today's PyTorch do not compile with. The script
changes two lines of its build: C++17 for Horovod itself, C++20 for its part for PyTorch. It is
built with gloo, without MPI, TensorFlow and MXNet. One compiler at a time takes about five minutes
of processor time and 2.5 GB; ``HOROVOD_BUILD_JOBS=4`` lets four run. A build in a folder that was
interrupted goes on where it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

RELEASE = "horovod==0.28.1"
#: By file: the line to change, and what replaces it.
CHANGES = {
    "CMakeLists.txt": ("set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"),
    "horovod/torch/CMakeLists.txt": (
        "set(CMAKE_CXX_STANDARD 14)",
        "set(CMAKE_CXX_STANDARD 20)",
    ),
}
SETTINGS = {
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
}
#: What it imports; its own list also names what only its launcher for Spark uses.
IMPORTS = ("cloudpickle", "psutil", "pyyaml", "packaging")


def pip(*arguments: str, **environment: str) -> None:
    """Run pip of this Python."""
    command = [sys.executable, "-m", "pip", *arguments]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def sources(folder: Path) -> Path:
    """Fetch the release into a folder and raise its standards of C++; refuse other sources."""
    unpacked = folder / RELEASE.replace("==", "-")
    if unpacked.exists():
        return unpacked
    fetched = ("download", "--no-deps", "--no-build-isolation", "--no-binary", "horovod")
    pip(*fetched, "--dest", str(folder), RELEASE)
    with tarfile.open(folder / f"{unpacked.name}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    for name, (line, new) in CHANGES.items():
        file = unpacked / name
        text = file.read_text()
        if text.count(line) != 1:
            sys.exit(f"{name} does not contain {line!r} once: is this {RELEASE}?")
        file.write_text(text.replace(line, new))
    return unpacked


def build(folder: Path) -> Path:
    """Build the wheel in a folder, and return it."""
    pip("install", "--quiet", "setuptools<81", "wheel")
    wheel = ("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder))
    # below ``make`` there are MAKEFLAGS without a number, with which Horovod starts 8 compilers
    jobs = os.environ.get("HOROVOD_BUILD_JOBS", "1")
    environment = {**SETTINGS, "MAKEFLAGS": f"-j{jobs}"}
    pip(*wheel, str(sources(folder)), **environment)
    (built,) = folder.glob("horovod-*.whl")
    return built


def main(arguments: list[str]) -> None:
    """Build the wheel, and install it unless a folder was given."""
    if arguments:
        folder = Path(arguments[0]).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        print(build(folder))
        return
    with tempfile.TemporaryDirectory() as scratch:
        pip("install", *IMPORTS, "--no-deps", str(build(Path(scratch))))


if __name__ == "__main__":
    main(sys.argv[1:])
