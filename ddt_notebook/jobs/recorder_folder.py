"""Makes the folder that brings the recorder into the processes of a job through ``PYTHONPATH``.

torch calls the entry points of the group ``torch.backends`` when its import ends. A folder with the
metadata of a package declares one; nothing is installed. The folder also holds a link to this
package, so that the job's Python finds it even if it is another installation. Where a job switches
the entry points off (``TORCH_DEVICE_BACKEND_AUTOLOAD=0``), a ``sitecustomize`` takes their place.
It also does where a framework is installed whose workers need not import torch, such as TensorFlow,
and begins in them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..model.frameworks import known_frameworks
from ..wire import job_files, rank_inputs
from . import on_python_path

_FOLDER, _MODULE = "recorder", "ddt_notebook_recorder.py"
_METADATA = "Metadata-Version: 2.1\nName: ddt-notebook-recorder\nVersion: 1\n"
_ENTRY_POINT = "[torch.backends]\nddt_notebook_recorder = ddt_notebook_recorder:begin\n"
#: What the "package" installed: these files are not the user's.
_INSTALLED = "ddt_notebook_recorder.py,,\nsite/sitecustomize.py,,\n"
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The Flight Recorder keeps this many operations unless the job asks for another number.
_FLIGHT_ENTRIES = "2000"


def processes(folder: Path) -> int:
    """How many processes that this host has started imported torch with the recorder in them."""
    return _imports(_recorder(folder))


def what_was_seen(imported: int) -> str:
    """What the processes of a command without ranks did, if so many of them imported torch."""
    if not imported:
        return (
            "no process of this command imported torch with the recorder in it, which comes "
            "through PYTHONPATH (python -I and -E ignore it)"
        )
    processes = "1 process" if imported == 1 else f"{imported} processes"
    return (
        f"{processes} of this command imported torch, and none called "
        "torch.distributed.init_process_group or hvd.init of horovod.torch"
    )


def without_ranks(folder: Path) -> str:
    """Why the folder of a recorded job holds no rank; empty if `ddt-notebook run` did not make it.

    Call it only for a folder in which no rank has written.
    """
    hosts = [one for one in (folder / _FOLDER).glob("*") if (one / _MODULE).is_file()]
    if not hosts:
        return ""
    seen = what_was_seen(sum(map(_imports, hosts)))
    return (
        f"{folder}: no rank was recorded: {seen}; if the script ended with an error before, its "
        "output shows it (the record does not hold the output)"
    )


def _imports(recorder: Path) -> int:
    with suppress(OSError):
        return (recorder / "processes").stat().st_size
    return 0


def _recorder(folder: Path) -> Path:
    # a folder for each host: the others begin at the same time, and may have other installations
    return folder / _FOLDER / socket.gethostname()


def _begins(inherited: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Module, method and name of each framework that the job may use; see `JobBegin`."""
    return [
        (begin.module, begin.method, one.name)
        for one in known_frameworks().values()
        if (begin := one.job_begin) is not None
        and (begin.variable in inherited or _is_installed(begin.module.partition(".")[0]))
    ]


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def environment(
    folder: Path, inherited: Mapping[str, str], *, branches: bool, inputs: str = "", gpus: int = 0
) -> dict[str, str]:
    """Make the recorder's folder, and return the environment of a job that is recorded.

    Parameters
    ----------
    folder
        The job's folder.
    inherited
        The environment in which the job would run otherwise.
    branches
        Whether to observe branches also on Python 3.11, where that slows the user's code.
    inputs
        The rank that keeps its inputs and their limit, as ``RANK:BYTES``; empty for none.
    gpus
        How many GPUs each process simulates.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    recorder = _recorder(folder)
    metadata = recorder / "ddt_notebook_recorder-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(_METADATA)
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT)
    (metadata / "RECORD").write_text(_INSTALLED)
    copies = Path(on_python_path.__file__).parent
    shutil.copy(copies / _MODULE, recorder)
    (recorder / "processes").unlink(missing_ok=True)  # those of a job before
    package = Path(__file__).parents[1]
    link = recorder / package.name
    with suppress(FileExistsError):
        link.symlink_to(package, target_is_directory=True)
    paths = [str(recorder)]
    begins = _begins(inherited)
    if inherited.get(_AUTOLOAD) == "0" or begins:
        site = recorder / "site"
        site.mkdir(exist_ok=True)
        shutil.copy(copies / "sitecustomize.py", site)
        (site / "begins.json").write_text(json.dumps(begins))
        paths.insert(0, str(site))
    before = inherited.get("PYTHONPATH")
    changed = dict(inherited)
    changed["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])
    changed[job_files.FOLDER] = str(folder)
    changed.setdefault("TORCH_FR_BUFFER_SIZE", _FLIGHT_ENTRIES)
    if branches:
        changed[job_files.BRANCHES] = "1"
    if inputs:
        changed[rank_inputs.VARIABLE] = inputs
    if gpus:
        changed[job_files.SIMULATED] = str(gpus)
    return changed
