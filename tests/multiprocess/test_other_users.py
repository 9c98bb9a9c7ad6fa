"""What another user of this machine can reach of a session: its sockets, files and processes."""

from __future__ import annotations

import json
import os
import shlex
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import ddt_notebook as ddt
from ddt_notebook.host.agent_link import AgentLink
from ddt_notebook.host.joining import Joining
from ddt_notebook.jobs import job_key
from ddt_notebook.wire.agent_messages import FileBytes
from ddt_notebook.wire.collector_messages import HostHello, JobFile

from .processes import REDUCE, descendants

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux shows")

#: The user who owns nothing.
NOBODY = 65534
_LIMIT_S = 120
_MAIN = "import sys; from ddt_notebook.cli import main; sys.exit(main())"
#: Run by that user, who knows the folder and the process ids: what each attempt gave.
_ATTEMPTS = """
import ctypes, json, os, resource, signal, sys
folder, pids, user = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
os.setgroups([])
os.setgid(user)
os.setuid(user)
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_ATTACH = 16

def traced(pid):
    if libc.ptrace(PTRACE_ATTACH, pid, None, None):
        raise PermissionError(ctypes.get_errno())

def written(path):
    with open(path, "r+b") as file:
        file.write(b"x")

attempts = {
    "list the folder": lambda: os.listdir(folder),
    "make a file in the folder": lambda: open(folder + "/x", "w"),
    "rename the folder": lambda: os.rename(folder, folder + "x"),
    "read a ring": lambda: open(folder + "/rank0.calls", "rb"),
    "write to a ring": lambda: written(folder + "/rank0.calls"),
    "read the output": lambda: open(folder + "/rank0.out"),
}
for pid in pids:
    attempts |= {
        f"stop {pid}": lambda pid=pid: os.kill(pid, signal.SIGSTOP),
        f"kill {pid}": lambda pid=pid: os.kill(pid, signal.SIGKILL),
        f"trace {pid}": lambda pid=pid: traced(pid),
        f"read the memory of {pid}": lambda pid=pid: open(f"/proc/{pid}/mem", "rb"),
        f"list the files of {pid}": lambda pid=pid: os.listdir(f"/proc/{pid}/fd"),
        f"open a socket of {pid}": lambda pid=pid: open(f"/proc/{pid}/fd/3", "wb"),
        f"read the variables of {pid}": lambda pid=pid: open(f"/proc/{pid}/environ").read(),
        f"limit {pid}": lambda pid=pid: resource.prlimit(pid, 0, (0, 0)),
    }
given = {}
for what, attempt in attempts.items():
    try:
        attempt()
    except OSError as error:
        given[what] = type(error).__name__
    else:
        given[what] = "done"
print(json.dumps(given))
"""


#: Run by that user: prints a port at which it listens, and takes one connection.
_LISTENS = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
listener = socket.socket()
listener.bind(("127.0.0.1", 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
connection = listener.accept()[0]
print(len(connection.recv(1)), flush=True)
"""
#: One connection of the group that rank 0 forms leads to that user's process.
_JOINED = """
import socket
from torch.distributed import distributed_c10d as c10d
forms = c10d._new_process_group_helper
def joined(*args, **kwargs):
    if rank == 0:
        joined.connection = socket.create_connection(("127.0.0.1", {port}))
    return forms(*args, **kwargs)
c10d._new_process_group_helper = joined
try:
    group = dist.new_group([0, 1])
finally:
    c10d._new_process_group_helper = forms
dist.all_reduce(torch.ones(1), group=group)
"""


#: Run by that user at the port of the store, as PyTorch's own client: was it answered?
_ASKS = """
import os, socket, sys
os.setgroups([])
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
key, value = (len(text).to_bytes(8, "little") + text for text in (b"/mark", b"stranger"))
validates, sets = b"\\x00" + (0x3C85F7CE).to_bytes(4, "little"), b"\\x01" + key + value
pings = b"\\x0d" + (1).to_bytes(4, "little")
answered = 0
for requests in (validates + sets, validates + sets + pings):  # the first one closes at once
    with socket.socket() as connection:
        connection.settimeout(60)
        try:
            connection.connect(("127.0.0.1", int(sys.argv[2])))
            connection.sendall(requests)
            answered += requests.endswith(pings) and bool(connection.recv(1))
        except ConnectionError:
            pass
print(answered)
"""
#: Run by the ranks.
_OWN_KEYS = """
store = torch.distributed.distributed_c10d._get_default_store()
while not isinstance(store, dist.TCPStore):
    store = store.underlying_store
print(sorted(key for key in store.list_keys() if "mark" in key))
"""


@pytest.fixture(scope="module")
def before() -> set[Any]:
    """Addresses at which this process listens without a session, as some of pytest's plugins do."""
    return {one.laddr for one in psutil.Process().net_connections(kind="inet")}


@pytest.fixture(scope="module")
def session(before: set[Any]) -> Iterator[ddt.Session]:
    """A session whose group has computed something, and whose user gives rights to everybody."""
    mask = os.umask(0)
    try:
        with ddt.Session(2, timeout=10.0) as started:
            assert started.run_cell(REDUCE, number=1).ok
            yield started
    finally:
        os.umask(mask)


def everyone(session: ddt.Session) -> list[psutil.Process]:
    """The notebook, and all processes of the session."""
    pids = session.process_ids()
    found = dict.fromkeys([os.getpid(), *pids, *descendants(pids)])
    return [psutil.Process(pid) for pid in found]


def test_every_socket_that_listens_is_on_loopback(session: ddt.Session, before: set[Any]) -> None:
    ranks, serving = set(session.pids), session.pool._store
    assert serving is not None
    owners: dict[str, list[Any]] = {"rank": [], "store": [], "other": []}
    for process in everyone(session):
        for one in process.net_connections(kind="inet"):
            listens = one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM
            if listens and one.laddr not in before:
                store = one.laddr.port == serving.port
                kind = "store" if store else "rank" if process.pid in ranks else "other"
                owners[kind].append(one.laddr)
    addresses = {address.ip for found in owners.values() for address in found}
    assert addresses == {"127.0.0.1"}
    assert len(owners["store"]) == 1, "it looks who connects"
    assert len(owners["rank"]) == len(ranks), "gloo's: who has joined is looked at afterwards"
    assert not owners["other"], "the notebook and its helpers talk over pairs of sockets"


def test_a_session_with_agents_listens_at_one_port_more(before: set[Any]) -> None:
    agents: list[subprocess.Popen[bytes]] = []

    def start(shown: str) -> None:
        variable, *words = shlex.split(shown.splitlines()[0].partition(": ")[2])
        if not agents:
            command = [sys.executable, "-c", _MAIN, *words[1:], "--interface", "lo"]
            keyed = os.environ | dict([variable.split("=", 1)])
            agents.append(subprocess.Popen(command, env=keyed, stderr=subprocess.DEVNULL))

    already = {one.laddr for one in psutil.Process().net_connections(kind="inet")}
    try:
        place = Joining(2, 1, "127.0.0.1", say=start).place()
        with ddt.Session(2, hosts=place) as session:
            assert session.run_cell(REDUCE, number=1).ok
            serving = session.pool._store
            assert serving is not None
            listening = []
            below = psutil.Process(agents[0].pid)
            for process in (psutil.Process(), below, *below.children(recursive=True)):
                for one in process.net_connections(kind="inet"):
                    listens = one.status == psutil.CONN_LISTEN or one.type == socket.SOCK_DGRAM
                    if listens and one.laddr not in before | already:
                        listening.append((process.pid, one.laddr.port, one.laddr.ip))
            assert {address for *_, address in listening} == {"127.0.0.1"}
            ours = [port for pid, port, _ in listening if pid == os.getpid()]
            assert ours == [place.hub.port], "it asks for the key"
            ranks = set(session.pids)
            others = [at for at in listening if at[0] not in ranks | {os.getpid()}]
            assert [port for _, port, _ in others] == [serving.port]
            assert len(listening) == 2 + len(ranks), "gloo's"
        agents[0].wait(_LIMIT_S)
    finally:
        for agent in agents:
            agent.kill()
            agent.wait(_LIMIT_S)


def test_who_collects_records_listens_at_its_port_and_keeps_the_key(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder, key = tmp_path / "job", job_key.new_key()
    job = [sys.executable, "-c", "import os; print(dict(os.environ), flush=True); input()"]
    mask = os.umask(0)
    try:
        listens = ["--collect", f"127.0.0.1:{port}"]
        watcher = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "run", "--to", folder, *listens, "--", *job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {job_key.VARIABLE: key},
        )
    finally:
        os.umask(mask)
    try:
        assert watcher.stdout is not None
        assert key not in watcher.stdout.readline(), "the ranks do not inherit it"
        process = psutil.Process(watcher.pid)
        deadline = time.monotonic() + _LIMIT_S
        while not (listening := process.net_connections(kind="inet")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [(one.laddr.ip, one.laddr.port) for one in listening] == [("127.0.0.1", port)]
        assert not [one for one in process.net_connections(kind="unix") if one.laddr]
        assert not [one for one in process.children() if one.net_connections(kind="all")]
        rank = AgentLink("127.0.0.1", port, job_key.keys(key)[0])
        rank.send(HostHello(host="b"))
        rank.send(JobFile(name="b-7.answers"), payload=b"{}")
        rank.send(FileBytes(key=7, file="out", size=0, pieces=((0, 1),)), payload=b"x")
        while len(list(folder.glob("b-7.*"))) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rank.close()
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert not [path for path in files if key.encode() in path.read_bytes()]
    finally:
        _, said = watcher.communicate("\n", timeout=_LIMIT_S)
    assert "the records of b are collected here" in said
    assert key not in said


def test_sockets_with_a_name_are_in_the_folder_of_the_session(session: ddt.Session) -> None:
    serving = session.pool._store
    assert serving is not None
    removed = os.fsdecode(serving.port.to_bytes(2, "big"))
    for process in everyone(session):
        if process.pid == os.getpid():
            continue  # what else this process has opened is not ours
        for one in process.net_connections(kind="unix"):
            name = str(one.laddr)
            if name == removed:
                assert process.pid == serving.process.pid
                assert not [*session.pool.directory.rglob(name)]
            else:
                assert not name or name.startswith(str(session.pool.directory)), (process, name)


def test_files_are_readable_by_their_user_only(session: ddt.Session) -> None:
    folder = session.pool.directory
    session.run_cell("exercise = torch.ones(2).share_memory_()", number=2)
    files = [folder, *folder.rglob("*")]
    assert {"rank0.calls", "rank0.branches", "rank0.out"} <= {path.name for path in files}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {path.stat().st_uid for path in files} == {os.getuid()}
    rings = [path for path in files if path.suffix in (".calls", ".branches")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in rings} == {0o600}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_cannot_read_or_disturb_a_session(session: ddt.Session) -> None:
    pids = [process.pid for process in everyone(session)]
    words = [str(session.pool.directory), json.dumps(pids), str(NOBODY)]
    done = subprocess.run(
        [sys.executable, "-c", _ATTEMPTS, *words],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    given: dict[str, str] = json.loads(done.stdout)
    assert len(given) == 6 + 8 * len(pids)
    assert {what for what, how in given.items() if how != "PermissionError"} == set()
    assert session.run_cell(REDUCE, number=3).ok


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_the_store_does_not_answer_another_user(session: ddt.Session) -> None:
    serving = session.pool._store
    assert serving is not None

    def ask(user: int) -> str:
        words = [sys.executable, "-c", _ASKS, str(user), str(serving.port)]
        return subprocess.run(
            words, capture_output=True, text=True, timeout=_LIMIT_S, check=True
        ).stdout

    assert ask(NOBODY) == "0\n"
    assert session.run_cell(_OWN_KEYS, number=5).outputs[0] == "[]\n"
    assert ask(0) == "1\n", "the requests are right"
    assert session.run_cell(_OWN_KEYS, number=6).outputs[0] == "['mark']\n"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_group_that_another_user_has_joined_is_refused(session: ddt.Session) -> None:
    command = [sys.executable, "-c", _LISTENS, str(NOBODY)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as listening:
        try:
            assert listening.stdout is not None
            run = session.run(_JOINED.format(port=int(listening.stdout.readline())))
            assert listening.stdout.readline() == "0\n", "the connection was ended"
        finally:
            listening.kill()
    error = run.errors[0]
    assert error.type == "RuntimeError"
    assert f"another user (uid {NOBODY}) has connected to this process group" in error.message
    assert ddt.diagnose(run).findings[0].ranks == [0]
    assert session.run_cell(REDUCE, number=4).ok


def test_another_user_cannot_guess_the_folder_of_the_next_session() -> None:
    with ddt.Session(1, group=False) as one, ddt.Session(1, group=False) as other:
        names = {one.pool.directory.name, other.pool.directory.name}
    assert len(names) == 2
    assert all(len(name) >= len("ddt-") + 16 for name in names)
