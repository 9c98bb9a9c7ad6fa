"""The records of hosts that share no folder, collected on one of them."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ddt_notebook import agent_command, run_command
from ddt_notebook.cli import main
from ddt_notebook.host.agent_link import AgentLink
from ddt_notebook.jobs import collector, job_key
from ddt_notebook.jobs.collector import Collector, Sender, collect
from ddt_notebook.jobs.recorded_job import RecordedJob
from ddt_notebook.wire import job_files
from ddt_notebook.wire.collector_messages import HostHello, HostWelcome, JobFile
from ddt_notebook.wire.job_files import Question
from ddt_notebook.wire.messages import Failed, Message
from ddt_notebook.wire.records import CallRecord, Group
from ddt_notebook.wire.ring import DONE, RingWriter

from ..strangers import CORPUS, unsafe
from .host.builders import garbage
from .test_job_folder import end, rank

KEY = job_key.new_key()
_LIMIT_S = 30.0


@dataclass
class Hosts:
    """The folders of the hosts ``a``, which collects, and ``b``."""

    here: Path
    there: Path
    collector: Collector
    said: list[str] = field(default_factory=list)
    senders: list[Sender] = field(default_factory=list)

    def send(self, secret: str = KEY) -> Sender:
        sender = Sender(self.there, "127.0.0.1", self.collector.port, secret, self.said.append)
        self.senders.append(sender)
        return sender


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(socket, "gethostname", lambda: "a")
    made = Hosts(*folders, Collector(folders[0], "127.0.0.1", 0, KEY, lambda text: None))
    monkeypatch.setattr(socket, "gethostname", lambda: "b")
    yield made
    for sender in made.senders:
        sender.close()
    made.collector.close()


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_files_of_another_host_are_here_and_its_watcher_is_asked(hosts: Hosts) -> None:
    file = rank(hosts.there, 1, "b", pid=7)
    calls = RingWriter(hosts.there / "b-7.calls")
    call = CallRecord(op="all_reduce", group=Group("0", (0, 1)))
    calls.begin(call, time.monotonic(), blocking=True)
    sender = hosts.send()
    wait_until((hosts.here / "b-7.rank").exists)
    job = RecordedJob(hosts.here, watched=True)
    job.look()
    assert [(one.host, one.rank) for one in job.ranks] == [("b", 1)]
    assert job.runs[0].handle.recorder is not None
    assert job.runs[0].handle.recorder.blocked is not None, "its call is here before its rank is"
    question = Question(name="q")
    job_files.write(hosts.here / job_files.QUESTION, question)
    wait_until((hosts.there / job_files.QUESTION).exists)
    assert job_files.read(hosts.there / job_files.QUESTION) == question
    hosts.collector.stop("it hangs")
    wait_until(lambda: sender.stop_reason)
    assert (sender.stop_reason, sender.reports_here(), hosts.collector.reports_here()) == (
        "it hangs",
        False,
        True,
    )
    calls.end(0, DONE, time.monotonic(), 1)
    end(file, time.monotonic())
    sender.close()  # it sends what has not been sent yet
    assert (hosts.here / "b-7.end").exists()
    job.look()
    assert job.ended
    assert job.runs[0].handle.recorder.blocked is None
    job.close()
    assert hosts.said == ["a collects the records of this host"]


def test_a_host_goes_on_if_its_collector_goes_and_comes_back(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = hosts.send()
    wait_until(lambda: hosts.said)
    monkeypatch.setattr(collector, "_DIAL_EVERY_S", 0.05)
    with monkeypatch.context() as changed:
        changed.setattr(Collector, "_tell", lambda self, message: None)  # as if it were killed
        hosts.collector.close()
        changed.setattr(collector, "_ALONE_AFTER_S", 0.0)
        wait_until(lambda: sender.reports_here() is None)
    monkeypatch.setattr(socket, "gethostname", lambda: "a")
    again = Collector(hosts.here, "127.0.0.1", hosts.collector.port, KEY, lambda text: None)
    rank(hosts.there, 1, "b", pid=7)
    wait_until((hosts.here / "b-7.rank").exists)
    assert sender.reports_here() is False
    again.close()
    wait_until(lambda: not sender._thread.is_alive())
    assert sender.reports_here() is False, "the collector has reported"


def test_without_the_key_nothing_is_collected(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    rank(hosts.there, 1, "b", pid=7)
    monkeypatch.setattr(collector, "_ALONE_AFTER_S", 0.0)
    sender = hosts.send(job_key.new_key())
    wait_until(lambda: hosts.said)
    assert "with this key" in hosts.said[0]
    assert hosts.said[0].endswith("; this host reports on its own ranks")
    assert sender.reports_here() is None
    assert not list(hosts.here.iterdir())


def answers(hosts: Hosts, *messages: Message) -> list[Message]:
    """What a host with the key is answered to its messages."""
    link = AgentLink("127.0.0.1", hosts.collector.port, job_key.keys(KEY)[0])
    for message in messages:
        link.send(message, payload=b"x")
    found: list[Message] = []
    deadline = time.monotonic() + _LIMIT_S
    while not any(isinstance(one, Failed) for one in found):
        assert time.monotonic() < deadline
        assert link.wait([], [], 0.1) is not None
        found += [envelope.message for envelope in link.received()]
    link.close()
    return found


@pytest.mark.parametrize(
    "name",
    ["../b-7.rank", "a-7.rank", "b-7.py", "b-x.rank", "/tmp/b-7.rank", "c.watched", "report-1.txt"],
)
def test_a_host_writes_no_files_but_its_own(hosts: Hosts, name: str) -> None:
    welcome, failed = answers(hosts, HostHello(host="b"), JobFile(name=name))
    assert isinstance(welcome, HostWelcome)
    assert isinstance(failed, Failed)
    assert "is no file of b" in failed.error
    assert not list(hosts.here.iterdir())


def test_a_folder_that_is_shared_and_a_name_that_two_hosts_have_are_refused(hosts: Hosts) -> None:
    rank(hosts.here, 1, "b", pid=7)
    before = (hosts.here / "b-7.rank").read_bytes()
    *_, failed = answers(hosts, HostHello(host="b"), JobFile(name="b-7.rank"))
    assert isinstance(failed, Failed)
    assert "leave out --collect" in failed.error
    assert (hosts.here / "b-7.rank").read_bytes() == before
    (failed,) = answers(hosts, HostHello(host="a"))
    assert isinstance(failed, Failed)
    assert "are both called a" in failed.error


def test_strangers_neither_stop_nor_fill_who_collects(hosts: Hosts) -> None:
    for data in itertools.islice(garbage(), 400):
        with socket.create_connection(("127.0.0.1", hosts.collector.port)) as connection:
            with suppress(ConnectionError):
                connection.sendall(data)
    rank(hosts.there, 1, "b", pid=7)
    hosts.send()
    wait_until((hosts.here / "b-7.rank").exists)
    wait_until(lambda: not hosts.collector._listener._without_key)


def test_what_was_overheard_cannot_be_sent_again(hosts: Hosts) -> None:
    there = "127.0.0.1", hosts.collector.port
    overheard = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as between:

        def pass_on() -> None:
            with between.accept()[0] as host, socket.create_connection(there) as collecting:

                def answers() -> None:
                    while data := collecting.recv(1 << 16):
                        host.sendall(data)

                back = threading.Thread(target=answers)
                back.start()
                while data := host.recv(1 << 16):
                    overheard.extend(data)
                    collecting.sendall(data)
                collecting.shutdown(socket.SHUT_WR)
                back.join()

        passing = threading.Thread(target=pass_on)
        passing.start()
        rank(hosts.there, 1, "b", pid=7)
        port = between.getsockname()[1]
        sender = Sender(hosts.there, "127.0.0.1", port, KEY, hosts.said.append)
        wait_until((hosts.here / "b-7.rank").exists)
        sender.close()
        passing.join()
    for folder in (hosts.here, hosts.there):
        (folder / "b-7.rank").unlink()
    assert b"b-7" not in overheard, "it is encrypted"
    with socket.create_connection(there, _LIMIT_S) as connection, suppress(ConnectionError):
        connection.sendall(overheard)
        while connection.recv(1 << 16):
            pass
    rank(hosts.there, 2, "b", pid=8)
    hosts.send()
    wait_until((hosts.here / "b-8.rank").exists)
    assert not (hosts.here / "b-7.rank").exists()


@pytest.mark.parametrize("host", ["\N{LARGE ORANGE DIAMOND}" * 200, "b"])
def test_a_name_that_no_file_can_have_ends_only_its_host(hosts: Hosts, host: str) -> None:
    name = f"{host}-{'7' * (1 if host != 'b' else 300)}.rank"
    _, failed = answers(hosts, HostHello(host=host), JobFile(name=name))
    assert isinstance(failed, Failed)
    rank(hosts.there, 1, "b", pid=7)
    hosts.send()
    wait_until((hosts.here / "b-7.rank").exists)


@pytest.mark.parametrize("stranger", CORPUS)
def test_what_another_host_says_stays_text(
    stranger: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for say in (run_command._say, agent_command._say):
        say(f"the records of {CORPUS[stranger]} are collected here")
    monkeypatch.setenv("DDT_JOIN", "x")
    assert main(["agent", f"{CORPUS[stranger]}:0"]) == 2
    assert not unsafe(capsys.readouterr().err)


def test_who_has_the_address_collects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sender, "_run", lambda self: None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for address, kind in (("127.0.0.1", Collector), ("192.0.2.77", Sender)):
        made = collect(tmp_path, (address, port), KEY, lambda text: None)
        assert isinstance(made, kind)
        made.close()


def test_a_job_without_a_key_or_with_no_address_is_not_started(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(job_key.VARIABLE, "short")
    assert main(["run", "--collect", "node0:29400", "--", "false"]) == 2
    assert "shorter than 32 letters" in capsys.readouterr().err
    assert main(["run", "--collect", "node0:29400", "--", "false"]) == 2, "it is not kept"
    assert "ddt-notebook key" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", "--collect", "node0", "--", "false"])
    assert main(["key"]) == 0
    assert len(capsys.readouterr().out.strip()) >= 32
