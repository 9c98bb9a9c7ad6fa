"""Cutting a group's sockets ends a wait in them, and harms nothing else."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from ddt_notebook.rank.probes import peers, sockets
from ddt_notebook.rank.probes.sockets import GroupSockets


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def listen(opened: ExitStack) -> socket.socket:
    return opened.enter_context(socket.create_server(("127.0.0.1", 0)))


def connect(opened: ExitStack, listener: socket.socket) -> tuple[socket.socket, socket.socket]:
    near = opened.enter_context(socket.create_connection(listener.getsockname()))
    far = opened.enter_context(listener.accept()[0])
    near.settimeout(5)
    far.settimeout(5)
    return near, far


def test_a_blocked_receive_wakes_up(opened: ExitStack) -> None:
    group = GroupSockets()
    with group.watching():
        near, far = connect(opened, listen(opened))
    got: list[bytes] = []
    waiting = threading.Thread(target=lambda: got.append(near.recv(1)))
    waiting.start()
    assert group.cut() == 2
    waiting.join(5)
    assert got == [b""]
    assert far.recv(1) == b""


def test_listener_and_foreign_sockets_are_left_alone(opened: ExitStack) -> None:
    group = GroupSockets()
    before = connect(opened, listen(opened))
    with group.watching():
        listener = listen(opened)
        near, _ = connect(opened, listener)
        pair = socket.socketpair()  # no TCP: the channels to the notebook are of this kind
        for end in pair:
            opened.enter_context(end)
    after = connect(opened, listener)
    group.cut()
    assert near.recv(1) == b""
    for one, other in (before, after, pair, connect(opened, listener)):
        one.sendall(b"x")
        assert other.recv(1) == b"x"


def test_processes_of_the_same_user_are_no_strangers(opened: ExitStack) -> None:
    group = GroupSockets()
    with group.watching():
        near, far = connect(opened, listen(opened))
        group.refuse_strangers()
    near.sendall(b"x")
    assert far.recv(1) == b"x"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the user of a socket")
def test_the_system_tells_whose_the_other_end_is(opened: ExitStack) -> None:
    near, far = connect(opened, listen(opened))
    for own, other in ((near, far), (far, near)):
        assert peers._user_of(other.getsockname(), own.getsockname()) == os.getuid()
    assert peers._user_of(("127.0.0.1", 1), ("127.0.0.1", 2)) is None, "there is no such socket"


def test_connections_of_another_user_are_ended(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "_user_of", lambda *_: 12345)
    group, listener = GroupSockets(), listen(opened)
    before = connect(opened, listener)
    with group.watching():
        near, _ = connect(opened, listener)
        with pytest.raises(RuntimeError, match=r"another user \(uid 12345\)"):
            group.refuse_strangers()
    assert near.recv(1) == b""
    before[0].sendall(b"x")
    assert before[1].recv(1) == b"x"


def test_a_descriptor_used_again_is_not_cut(opened: ExitStack) -> None:
    group = GroupSockets()
    listener = listen(opened)
    with group.watching():
        near, far = connect(opened, listener)
    numbers = {near.fileno(), far.fileno()}
    near.close()
    far.close()
    one, other = connect(opened, listener)
    assert numbers & {one.fileno(), other.fileno()}
    assert group.cut() == 0
    one.sendall(b"x")
    assert other.recv(1) == b"x"


def test_a_group_that_is_still_being_formed_can_be_cut(opened: ExitStack) -> None:
    group = GroupSockets()
    listener = listen(opened)
    with group.watching(), group.watching():  # new_group() forms within init_process_group()
        near, _ = connect(opened, listener)
        assert group.cut() == 2
        assert near.recv(1) == b""
    group.forget()
    assert group.cut() == 0


def test_cut_while_the_group_has_just_been_formed(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, looks = GroupSockets(), 0
    real = sockets._open_sockets
    watching = group.watching()
    watching.__enter__()
    near, _ = connect(opened, listen(opened))

    def formed_meanwhile() -> dict[int, int]:
        nonlocal looks
        looks += 1
        found = real()
        if looks == 2:
            watching.__exit__(None, None, None)
        return found

    monkeypatch.setattr(sockets, "_open_sockets", formed_meanwhile)
    assert group.cut() == 2
    assert near.recv(1) == b""


def test_a_request_that_arrives_too_late_cuts_no_socket(opened: ExitStack) -> None:
    group = GroupSockets()
    with group.watching():
        near, far = connect(opened, listen(opened))
    group.outdate(7)
    assert group.cut_as_asked(6) == 0
    near.sendall(b"x")
    assert far.recv(1) == b"x"
    assert group.cut_as_asked(8) == 2
    assert far.recv(1) == b""
