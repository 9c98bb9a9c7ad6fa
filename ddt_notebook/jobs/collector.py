"""Brings the records of a job's hosts together on one of them, if they share no folder.

That host has the ranks' files of all hosts in its folder, as if the folder were shared: a reader
may look at them at any time. What it asks there, the other hosts answer. Nobody connects or listens
in without the job's key, see `job_key`.
"""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, get_args

import zmq

from ..host.agent_link import AgentLink, Listener, descriptor_of, from_frames, to_frames
from ..host.errors import SessionError
from ..model import FormatError
from ..wire import job_files
from ..wire.agent_messages import BLOCK_BYTES, FILE_WINDOW, Credit, FileBytes, RankFile
from ..wire.collector_messages import CollectionEnds, HostHello, HostWelcome, JobFile, StopJob
from ..wire.file_copy import FileCopy, copies, messages, write_changes
from ..wire.messages import Failed, Message
from .job_key import keys

#: Files are looked at this often, in seconds.
_LOOK_EVERY_S = 0.1
#: A host tries to connect this often, and counts as one without a collector after this time, in
#: seconds. The collector may be started later.
_DIAL_EVERY_S, _ALONE_AFTER_S = 1.0, 30.0
#: At the end, a host sends what is left within this time, in seconds.
_LAST_LIMIT_S = 5.0
#: Hosts that were told of the end go within this time, in seconds.
_FAREWELL_S = 1.0
#: The small files of a rank, by the ends of their names, in the order in which they are sent.
_SMALL = ("rank", "answers", "failure", "exit", "end", "gone", "failed")
#: Those before which the rank's branches are sent.
_WITH_BRANCHES = ("answers", "failure", "end", "gone")
_WATCHED = job_files.WATCHED[1:]
_ORDER = (*_SMALL, _WATCHED)
_LOGS: tuple[RankFile, ...] = ("crash", "calls")
_LONGEST_SMALL = 8 << 20
_NAME = re.compile(r"[^/\0]{1,200}")
_PEER = "ddt-notebook run"


class Collection(Protocol):
    """The part of this host in bringing the records together."""

    def reports_here(self, *, ending: bool = False) -> bool | None:
        """Whether this host reports on the job; None if each host reports on its own ranks.

        A lost connection may come back, unless the job is ``ending`` here.
        """

    @property
    def stop_reason(self) -> str:
        """Why the host that collects has stopped the job; empty if it has not."""

    def stop(self, reason: str) -> None:
        """Have the job stopped on the other hosts."""

    def close(self) -> None:
        """Finish: this host's part of the job has ended."""


def collect(
    folder: Path, address: tuple[str, int], secret: str, say: Callable[[str], None]
) -> Collector | Sender:
    """Collect the records of all hosts here if ``address`` is one of this host, else send them.

    Raises
    ------
    SessionError
        If the address is not known, or this host cannot listen there.
    """
    host, port = address
    if not host:
        return Collector(folder, "0.0.0.0", port, secret, say)  # noqa: S104  (as was asked for)
    here = _own_address(host)
    if here is None:
        return Sender(folder, host, port, secret, say)
    return Collector(folder, here, port, secret, say)


def _own_address(host: str) -> str | None:
    """Where this host listens if that is one of its addresses; None if it is another one's."""
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise SessionError(f"the host {host} is not known here: {error}") from error
    with socket.socket() as tried:
        try:
            tried.bind((address, 0))
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                return None
            raise SessionError(f"this host cannot listen at {address}: {error}") from error
    # the files of Debian give a host's own name a loopback address, which others cannot reach
    loops = address.startswith("127.") and host not in (address, "localhost")
    return "0.0.0.0" if loops else address  # noqa: S104


@dataclass(eq=False, slots=True)
class _Host:
    """Another host, on the side of the collector."""

    descriptor: int
    name: str
    ended: bool = False  # whether its part of the job has
    files: dict[tuple[int, str], int] = field(default_factory=dict)


class Collector:
    """Collects the records of the other hosts in the folder of this one.

    Parameters
    ----------
    folder
        The job's folder here.
    address, port
        Where to listen.
    secret
        The job's key.
    say
        Shows a line to the user.

    Raises
    ------
    SessionError
        If it cannot listen there.
    """

    stop_reason = ""

    def __init__(
        self, folder: Path, address: str, port: int, secret: str, say: Callable[[str], None]
    ) -> None:
        self._folder, self._say = folder, say
        self._name = socket.gethostname()
        key, own_secret = keys(secret)
        self._listener = Listener(own_secret, zmq.curve_public(key.agents_secret))
        self.port = self._listener.bind(address, port)
        self._hosts: dict[bytes, _Host] = {}
        self._written: dict[str, str] = {}  # the files that hosts have sent, and which host
        self._asked = b""
        self._stop = ""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="ddt-collector", daemon=True)
        self._thread.start()

    def reports_here(self, *, ending: bool = False) -> bool | None:
        """True."""
        return True

    def stop(self, reason: str) -> None:
        """Have the job stopped on the other hosts."""
        self._stop = reason

    def close(self) -> None:
        """Tell the hosts that nothing is collected any more."""
        self._ends.set()
        self._thread.join(_LAST_LIMIT_S)

    def _serve(self) -> None:
        listener, poller = self._listener, zmq.Poller()
        for waited in (listener.router, listener.admission, listener.events):
            poller.register(waited, zmq.POLLIN)
        stopped = ""
        try:
            while not self._ends.is_set():
                look_again_ms = min(listener.look_again_ms, round(_LOOK_EVERY_S * 1000))
                came = dict(poller.poll(look_again_ms))
                if listener.admission in came:
                    listener.admit(anybody=True)
                if listener.events in came:
                    for descriptor in listener.disconnected():
                        self._lose(descriptor)
                self._receive()
                self._ask()
                if self._stop != stopped:
                    stopped = self._stop
                    self._tell(StopJob(reason=stopped))
            self._tell(CollectionEnds())
            self._await_disconnections()
        except Exception as error:  # noqa: BLE001  (the job is worth more than its record)
            self._say(f"the records of other hosts are no longer collected: {error!r}")
        finally:
            for host in self._hosts.values():
                self._close_files(host)
            listener.close()

    def _await_disconnections(self) -> None:
        """Wait until the hosts have gone: what they are told last is lost if we go first."""
        until_s = time.monotonic() + _FAREWELL_S
        while self._hosts and (left_s := until_s - time.monotonic()) > 0:
            if self._listener.events.poll(math.ceil(left_s * 1000)):
                gone = set(self._listener.disconnected())
                for identity, host in list(self._hosts.items()):
                    if host.descriptor in gone:
                        self._close_files(self._hosts.pop(identity))

    def _tell(self, message: Message) -> None:
        for identity in self._hosts:
            self._send(identity, message)

    def _send(self, identity: bytes, message: Message, payload: bytes | None = None) -> None:
        self._listener.router.send_multipart([identity, *to_frames(message, 0, payload)])

    def _receive(self) -> None:
        for frames in self._listener.received():
            identity = frames[0].bytes
            try:
                received = from_frames([frame.bytes for frame in frames[1:]])
                if identity in self._hosts:
                    self._take(identity, received.message, received.payload or b"")
                elif isinstance(received.message, HostHello):
                    self._join(identity, descriptor_of(frames), received.message.host)
            except (FormatError, ValueError, TypeError, OverflowError, OSError) as error:
                self._refuse(identity, f"what was sent cannot be read: {error}")

    def _join(self, identity: bytes, descriptor: int, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise FormatError("the name of this host is none")
        if name == self._name:
            self._refuse(identity, f"this host and the one that collects are both called {name}")
            return
        for other, host in list(self._hosts.items()):
            if host.name == name:  # it has connected again, unless two hosts have this name
                self._close_files(self._hosts.pop(other))
        self._hosts[identity] = _Host(descriptor, name)
        self._send(identity, HostWelcome(host=self._name))
        self._say(f"the records of {name} are collected here")
        if self._asked:
            self._send(identity, JobFile(name=job_files.QUESTION), self._asked)

    def _refuse(self, identity: bytes, why: str) -> None:
        self._send(identity, Failed(error=why))
        host = self._hosts.pop(identity, None)
        if host is not None:
            self._close_files(host)

    def _lose(self, descriptor: int) -> None:
        for identity, host in list(self._hosts.items()):
            if host.descriptor == descriptor:
                self._close_files(self._hosts.pop(identity))
                if not host.ended:
                    self._say(f"{host.name} cannot be reached any more; it may connect again")

    def _take(self, identity: bytes, message: Message, data: bytes) -> None:
        host = self._hosts[identity]
        if isinstance(message, FileBytes):
            self._write(host, message, data)
        elif isinstance(message, JobFile) and self._is_own(host, message.name):
            _write_whole(self._folder / message.name, data)
        elif isinstance(message, CollectionEnds):
            host.ended = True
        self._send(identity, Credit(key=0, connection="commands", size=len(data)))

    def _is_own(self, host: _Host, name: str) -> bool:
        """Whether a host may write this file: one of its own names, which nobody else has made."""
        stem, _, ending = name.rpartition(".")
        own, _, pid = stem.rpartition("-")
        known = own == host.name and pid.isdecimal() and ending in (*_SMALL, *get_args(RankFile))
        if not known and name != f"{host.name}{job_files.WATCHED}":
            raise FormatError(f"{name[:80]!r} is no file of {host.name}")
        if name not in self._written and (self._folder / name).exists():
            raise FormatError(
                "the folder is on a file system that both hosts share; leave out --collect"
            )
        return self._written.setdefault(name, host.name) == host.name

    def _write(self, host: _Host, changed: FileBytes, data: bytes) -> None:
        at = changed.key, changed.file
        if at not in host.files:
            name = f"{host.name}-{int(changed.key)}.{changed.file}"
            if not self._is_own(host, name):
                return
            with suppress(OSError):
                host.files[at] = os.open(self._folder / name, os.O_RDWR | os.O_CREAT, 0o600)
        if at in host.files:
            write_changes(host.files[at], changed, data)

    def _close_files(self, host: _Host) -> None:
        for descriptor in host.files.values():
            os.close(descriptor)
        host.files.clear()

    def _ask(self) -> None:
        """Pass on a question that a reader has written to the folder."""
        asked = b""
        with suppress(OSError):
            asked = (self._folder / job_files.QUESTION).read_bytes()
        if asked != self._asked:
            self._asked = asked
            if asked:
                for identity in self._hosts:
                    self._send(identity, JobFile(name=job_files.QUESTION), asked)


def _write_whole(path: Path, content: bytes) -> None:
    """Write a small file, which appears only when it is complete."""
    with suppress(OSError):  # such as a full disk
        unfinished = path.with_name(f"{path.name}.new")
        unfinished.write_bytes(content)
        unfinished.replace(path)


@dataclass(eq=False, slots=True)
class _Sent:
    """What was sent of the files of one process."""

    logs: dict[str, FileCopy]
    small: dict[str, tuple[int, int]] = field(default_factory=dict)  # versions
    begun: bool = False


class _Changes:
    """Finds what has changed in the files of this host."""

    def __init__(self, folder: Path, host: str) -> None:
        self._folder, self._host = folder, host
        self._sent: dict[str, _Sent] = {}

    def find(self) -> Iterator[tuple[Message, bytes]]:
        """What has changed since the last call, in an order in which a reader may see it."""
        small = self._small()
        for stem, one in self._sent.items():
            new = small.get(stem, {})
            pid = stem.rpartition("-")[2]
            if pid.isdecimal() and stem != self._host:
                yield from _logs(one, int(pid), new)
            # what these say comes after the calls that were recorded before
            for ending in sorted(new, key=_ORDER.index):
                yield JobFile(name=f"{stem}.{ending}"), new[ending]

    def _small(self) -> dict[str, dict[str, bytes]]:
        """The content of small files that are new or have changed."""
        found: dict[str, dict[str, bytes]] = {}
        with suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                stem, _, ending = entry.name.rpartition(".")
                own = stem if ending == _WATCHED else stem.rpartition("-")[0]
                if own != self._host or ending not in _ORDER:
                    continue
                with suppress(OSError):
                    seen = entry.stat()
                    version = seen.st_ino, seen.st_mtime_ns
                    one = self._sent.setdefault(stem, _Sent(copies(self._folder / stem)))
                    if one.small.get(ending) != version and seen.st_size < _LONGEST_SMALL:
                        one.small[ending] = version
                        found.setdefault(stem, {})[ending] = Path(entry.path).read_bytes()
        return found

    def close(self) -> None:
        """Close the files."""
        for one in self._sent.values():
            for copy in one.logs.values():
                copy.close()


def _logs(one: _Sent, pid: int, new: Container[str]) -> Iterator[tuple[FileBytes, bytes]]:
    branches = not one.begun or any(ending in new for ending in _WITH_BRANCHES)
    one.begun = True
    files: tuple[RankFile, ...] = ("branches", *_LOGS) if branches else _LOGS
    for file in files:
        yield from messages(one.logs[file], pid, file, one.logs[file].changes(BLOCK_BYTES))


class Sender:
    """Sends the records of this host to the one that collects them.

    Parameters
    ----------
    folder
        The job's folder here.
    host, port
        Where they are collected.
    secret
        The job's key.
    say
        Shows a line to the user.
    """

    def __init__(
        self, folder: Path, host: str, port: int, secret: str, say: Callable[[str], None]
    ) -> None:
        self._folder, self._say = folder, say
        self._where = host, port
        self._key, _ = keys(secret)
        self._name = socket.gethostname()
        self.stop_reason = ""
        self._connected_s = time.monotonic()  # when it was last connected; at first, when it began
        self._welcome, self._on_its_way = False, 0  # of the present connection
        self._refused = False
        self._over = False  # the collector's part of the job has ended
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ddt-sender", daemon=True)
        self._thread.start()

    def reports_here(self, *, ending: bool = False) -> bool | None:
        """False while the records are collected elsewhere."""
        late = time.monotonic() - self._connected_s > _ALONE_AFTER_S
        alone = self._refused or late or (ending and not self._welcome)
        return None if alone and not self._over else False

    def stop(self, reason: str) -> None:
        """Do nothing: this host is one of those that are told to stop."""

    def close(self) -> None:
        """Send what is left."""
        self._ends.set()
        self._thread.join(2 * _LAST_LIMIT_S)

    def _run(self) -> None:
        said = ""
        try:
            while not self._over and not self._refused:
                try:
                    link = AgentLink(*self._where, self._key, _PEER)
                except SessionError as error:
                    ended = self._ends.wait(_DIAL_EVERY_S)
                    if str(error) != said and (ended or self.reports_here() is None):
                        said = str(error)
                        self._say(f"{said}; this host reports on its own ranks")
                    if ended:
                        return
                    continue
                said = ""
                try:
                    self._follow(link)
                finally:
                    link.close()
                if self._ends.is_set():
                    return
        except Exception as error:  # noqa: BLE001  (the job is worth more than its record)
            self._refused = True
            self._say(f"this host no longer sends its records: {error!r}")

    def _follow(self, link: AgentLink) -> None:
        """Send until the connection or the job has ended."""
        self._welcome, self._on_its_way = False, 0
        link.send(HostHello(host=self._name))
        changes = _Changes(self._folder, self._name)
        found: Iterator[tuple[Message, bytes]] = iter(())
        looked_s, last_s = 0.0, math.inf
        try:
            while self._take_all(link):
                now_s = self._connected_s = time.monotonic()
                if now_s > last_s + _LAST_LIMIT_S:
                    return
                if not self._welcome or not self._send(link, found):
                    continue
                if last_s < now_s and self._on_its_way <= 0:
                    link.send(CollectionEnds())
                    return
                if self._ends.is_set() and last_s == math.inf:
                    last_s = now_s  # what is found now is the last
                elif now_s - looked_s < _LOOK_EVERY_S:
                    continue
                looked_s, found = now_s, changes.find()
        finally:
            self._welcome = False
            changes.close()

    def _send(self, link: AgentLink, found: Iterator[tuple[Message, bytes]]) -> bool:
        """Send what was found; False if the collector is behind."""
        while self._on_its_way < FILE_WINDOW:
            message, data = next(found, (None, b""))
            if message is None:
                return True
            link.send(message, payload=data)
            self._on_its_way += len(data)
        return False

    def _take_all(self, link: AgentLink) -> bool:
        """Take what the collector sends; False if the connection or the job has ended."""
        lost = link.wait([], [], _LOOK_EVERY_S) is None
        for envelope in link.received():  # the last ones may have come with the end
            match envelope.message:
                case Credit(size=size):
                    self._on_its_way -= size
                case HostWelcome(host=host):
                    self._welcome = True
                    self._say(f"{host} collects the records of this host")
                case JobFile(name=job_files.QUESTION):
                    _write_whole(self._folder / job_files.QUESTION, envelope.payload or b"")
                case StopJob(reason=reason):
                    self.stop_reason = reason
                case CollectionEnds():
                    self._over = True
                case Failed(error=error):
                    self._refused = True
                    self._say(f"{error}; this host reports on its own ranks")
        return not lost and not self._over and not self._refused
