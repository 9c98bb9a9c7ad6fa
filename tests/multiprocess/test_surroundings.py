"""Sessions in odd surroundings: they start, or one line says what to change."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import types
from collections.abc import Sequence
from pathlib import Path

import pytest

import ddt_notebook
from ddt_notebook.host import surroundings

START = """
import ddt_notebook as ddt
try:
    with ddt.Session(2) as session:
        print(session.run("x = torch.ones(1)\\ndist.all_reduce(x)\\nprint(x.item())").outputs)
except ddt.SessionError as error:
    print(error)
"""


def start(
    folder: Path,
    before: str = "",
    *,
    within: Sequence[str] = (),
    program: str = START,
    **environment: str,
) -> str:
    """What a process prints that starts a session in this folder, within another command."""
    parent = str(Path(ddt_notebook.__file__).parents[1])
    done = subprocess.run(
        [*within, sys.executable, "-c", before + program],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": parent} | environment,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    return done.stdout.strip() or done.stderr


def test_files_of_the_working_folder_do_not_stop_the_ranks(tmp_path: Path) -> None:
    for name in ("queue", "logging", "torch", "numpy"):
        (tmp_path / f"{name}.py").write_text("x = 1\n")
    assert start(tmp_path) == r"{0: '2.0\n', 1: '2.0\n'}"


def test_a_network_interface_that_does_not_exist_is_named(tmp_path: Path) -> None:
    said = start(tmp_path, GLOO_SOCKET_IFNAME="eth9nine")
    assert said.endswith("this machine has no network interface eth9nine: unset it")
    assert len(said.splitlines()) == 1


def test_a_limit_on_the_size_of_files_is_named(tmp_path: Path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))\n"
    assert start(tmp_path, before, PYTHONDONTWRITEBYTECODE="1").endswith(
        "files may have at most 8192 bytes here: raise the limit (ulimit -f unlimited)"
    )


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("random", "Python's own module"),
        ("json", "Python's own module"),
        ("typing", "Python's own module"),
        ("psutil", "the package"),
        ("secrets", "Python's own module"),  # its import succeeds, and later uses of it would not
        ("threading", "Python's own module"),
    ],
)
def test_a_file_that_hides_a_module_is_named(tmp_path: Path, name: str, what: str) -> None:
    file = tmp_path / f"{name}.py"
    file.write_text("x = 1\n")
    said = start(tmp_path, program="import ddt_notebook as ddt\nddt.Session").splitlines()
    assert f"ImportError: {file} hides {what} {name}: rename the file" in said


def test_a_file_that_hides_nothing_of_this_package_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "cmd.py").write_text("x = 1\n")
    assert start(tmp_path, program="import cmd, ddt_notebook as ddt\nddt.lint\nprint(cmd.x)") == "1"


def test_a_limit_on_addresses_is_named(tmp_path: Path) -> None:
    before = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))\n"
    said = start(tmp_path, before)
    assert said.endswith(
        "at most 300 MB of addresses, and torch needs 2000 MB: raise the limit (ulimit -v "
        "unlimited)"
    )
    assert len(said.splitlines()) == 1


#: Runs a hang as well, of which all is read that the ranks have written, and prints the report.
HANG = """
import ddt_notebook as ddt
try:
    with ddt.Session(2) as session:
        print(ddt.diagnose(session.run("print('é')\\nif rank: dist.barrier()")))
        print(session.run("x = torch.ones(1)\\ndist.all_reduce(x)\\nprint(x.item())").outputs)
except ddt.SessionError as error:
    print(error)
"""
WORKS = r"{0: '2.0\n', 1: '2.0\n'}"


def test_a_session_works_in_narrow_surroundings(tmp_path: Path) -> None:
    """The C locale, no home, few files and addresses, a taken port, and no number of threads."""
    before = """
import os, resource, socket
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
"""
    said = start(
        tmp_path,
        before,
        program=HANG.replace("é", "\\xe9"),
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
        HOME="/nonexistent",
        OMP_NUM_THREADS="0",
    )
    assert said.startswith("hang D.2.1 or C.4 - ")
    assert said.splitlines()[-1] == WORKS


def in_namespace(*commands: str) -> list[str]:
    """A command that runs another one where these commands have changed what is mounted."""
    try:
        able = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "x", "/mnt"], check=False)
    except FileNotFoundError:
        able = None
    if able is None or able.returncode:
        pytest.skip("this user may not mount")
    return ["unshare", "-m", "bash", "-ec", "\n".join((*commands, 'exec "$@"')), "bash"]


def test_a_nearly_full_disk_does_not_end_the_notebook(tmp_path: Path) -> None:
    """A page that nobody wrote has no place there: reading it would be a SIGBUS."""
    small = tmp_path / "small"
    small.mkdir()
    within = in_namespace(
        f"mount -t tmpfs -o size=2m none {small}",
        f"head -c 2000000 /dev/zero > {small}/x",
        "umount /dev/shm && mount -t tmpfs -o ro none /dev/shm",
    )
    said = start(tmp_path, within=within, program=HANG, TMPDIR=str(small))
    assert said.startswith("hang D.2.1 or C.4 · ")
    assert said.splitlines()[-1] == WORKS


def test_a_missing_null_device_is_named(tmp_path: Path) -> None:
    said = start(tmp_path, within=in_namespace("mount -t tmpfs none /dev"))
    assert said.endswith("/dev/null is missing: make it (mknod -m 666 /dev/null c 1 3)")


def as_nobody(*commands: str) -> list[str]:
    """The same as another user, who can read Python also where it is in root's home."""
    python = Path(sys.base_prefix)
    shown = (
        f"mkdir -p /mnt/python; mount --bind {python} /mnt/python",
        f"mount -t tmpfs -o mode=755 none {Path.home()}",
        f"mkdir -p {python}; mount --bind /mnt/python {python}",
    )
    at_home = python.is_relative_to(Path.home())
    if Path(sys.prefix).is_relative_to(Path.home()):
        pytest.skip("another user cannot read the environment")
    return in_namespace("mount -t tmpfs none /mnt", *(shown if at_home else ()), *commands)


NOBODY = "import os, resource\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"


def test_another_user_than_root_uses_a_session() -> None:
    """With 64 MB of shared memory, and where ``localhost`` has no address."""
    within = as_nobody(
        "umount /dev/shm && mount -t tmpfs -o size=64m none /dev/shm",
        "mount --bind /dev/null /etc/hosts",
    )
    said = start(Path("/"), NOBODY, within=within, program=HANG, HOME="/nonexistent")
    assert said.startswith("hang D.2.1 or C.4 · ")
    assert said.splitlines()[-1] == WORKS


def test_a_limit_on_processes_is_named() -> None:
    limit = "resource.setrlimit(resource.RLIMIT_NPROC, (3, 3))\n"
    said = start(Path("/"), NOBODY + limit, within=as_nobody())
    assert "at most 3 processes and threads: raise the limit (ulimit -u)" in said
    assert len(said.splitlines()) == 1


def test_no_folder_for_temporary_files_is_named() -> None:
    parent = Path(ddt_notebook.__file__).parents[1]
    folders = [path for path in ("/tmp", "/var/tmp", "/usr/tmp") if Path(path).is_dir()]
    if any(Path(sys.prefix).is_relative_to(path) for path in folders):
        pytest.skip("the environment is in one of these folders")
    within = as_nobody(
        f"mkdir /mnt/package; mount --bind {parent} /mnt/package",
        f"for folder in {' '.join(folders)}; do mount -t tmpfs -o ro none $folder; done",
    )
    said = start(Path("/"), NOBODY, within=within, PYTHONPATH="/mnt/package", TMPDIR="/none")
    assert said == ("there is no folder for temporary files that can be written: set TMPDIR to one")


def test_a_loopback_interface_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new network namespace, where a session gets no answer from its ranks."""
    down = types.SimpleNamespace(isup=False)
    monkeypatch.setattr(surroundings.psutil, "net_if_stats", lambda: {"lo": down})
    said = surroundings.advice("rank 0: no answer within 8 s")
    assert said.endswith("the loopback interface is down: bring it up (ip link set lo up)")


@pytest.mark.parametrize("error", ["rank 0: ValueError: x", "rank 0 ended: exit status 1"])
def test_nothing_is_advised_without_a_reason(error: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    assert surroundings.advice(error) == ""


def test_a_limit_is_named_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    said = surroundings.advice("OSError: [Errno 24] Too many open files")
    assert f"at most {limit} files open" in said
