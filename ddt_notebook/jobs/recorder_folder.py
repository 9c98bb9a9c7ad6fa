"""Makes the folder that brings the recorder into the processes of a job through ``PYTHONPATH``.

torch calls the entry points of the group ``torch.backends`` when its import ends. A folder with the
metadata of a package declares one; nothing is installed. The folder also holds a link to this
package, so that the job's Python finds it even if it is another installation. Where a job switches
the entry points off (``TORCH_DEVICE_BACKEND_AUTOLOAD=0``), a ``sitecustomize`` takes their place
and runs the one that it hides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..wire import job_files

_METADATA = "Metadata-Version: 2.1\nName: ddt-notebook-recorder\nVersion: 1\n"
_ENTRY_POINT = "[torch.backends]\nddt_notebook_recorder = ddt_notebook.rank.job_hook:begin\n"
_SITECUSTOMIZE = '''"""Records a job's ranks (ddt-notebook run); runs what it hides."""
try:
    from ddt_notebook.rank import job_sitecustomize
    job_sitecustomize.begin(__file__)
except BaseException:
    pass
'''
_AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
#: The Flight Recorder keeps this many operations unless the job asks for another number.
_FLIGHT_ENTRIES = "2000"


def environment(folder: Path, inherited: Mapping[str, str], *, branches: bool) -> dict[str, str]:
    """Make the recorder's folder, and return the environment of a job that is recorded.

    Parameters
    ----------
    folder
        The job's folder.
    inherited
        The environment in which the job would run otherwise.
    branches
        Whether to observe branches also on Python 3.11, where that slows the user's code.

    Raises
    ------
    OSError
        If the folder cannot be written.
    """
    recorder = folder / "recorder"
    metadata = recorder / "ddt_notebook_recorder-1.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "METADATA").write_text(_METADATA)
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT)
    package = Path(__file__).parents[1]
    link = recorder / package.name
    if not link.is_symlink():
        link.symlink_to(package, target_is_directory=True)
    paths = [str(recorder)]
    if inherited.get(_AUTOLOAD) == "0":
        site = recorder / "site"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        paths.insert(0, str(site))
    before = inherited.get("PYTHONPATH")
    changed = dict(inherited)
    changed["PYTHONPATH"] = os.pathsep.join([*paths, *([before] if before else [])])
    changed[job_files.FOLDER] = str(folder)
    changed.setdefault("TORCH_FR_BUFFER_SIZE", _FLIGHT_ENTRIES)
    if branches:
        changed[job_files.BRANCHES] = "1"
    return changed
