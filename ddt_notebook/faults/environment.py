"""A temporary virtual environment for cards of packages that do not install."""

from __future__ import annotations

from .scratch import SCRATCH

#: The setup cell of such a card. ``python`` is the interpreter of a new environment; ``wheel``
#: writes a package of one module into the folder ``wheels``.
ENVIRONMENT = (
    SCRATCH
    + """
import subprocess, sys, zipfile

python = os.path.join(shared[0], "env", "bin", "python")

def wheel(name, version, tag="py3-none-any", needs=()):
    os.makedirs("wheels", exist_ok=True)
    record = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Dist: {need}" for need in needs]
    facts = ["Wheel-Version: 1.0", "Generator: hand", "Root-Is-Purelib: true", f"Tag: {tag}"]
    path = os.path.join("wheels", f"{name}-{version}-{tag}.whl")
    with zipfile.ZipFile(path, "w") as package:
        package.writestr(f"{name}.py", f"__version__ = {version!r}")
        package.writestr(f"{record}/METADATA", "\\n".join(metadata) + "\\n")
        package.writestr(f"{record}/WHEEL", "\\n".join(facts) + "\\n")
        package.writestr(f"{record}/RECORD", "")

if rank == 0:
    subprocess.run([sys.executable, "-m", "venv", "env"], check=True)
"""
)
