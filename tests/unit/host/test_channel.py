"""Messages arrive whole and in order, and the end of the other side is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ddt_notebook.wire.channel import Channel, Closed, channel_pair


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = channel_pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_messages_with_and_without_a_payload(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.send({"do": "push", "name": "größe"}, b"\x00\xff\n")
    ours.send({"do": "push"}, b"")
    ours.send({"do": "leave"})
    assert theirs.receive() == {"do": "push", "name": "größe", "payload": b"\x00\xff\n"}
    assert theirs.receive() == {"do": "push", "payload": b""}
    assert theirs.receive() == {"do": "leave"}
    assert not theirs.poll()


def test_threads_do_not_get_between_a_message_and_its_payload(
    ends: tuple[Channel, Channel],
) -> None:
    ours, theirs = ends
    payload = bytes(300_000)  # more than the socket takes at once

    def send(number: int) -> None:
        for _ in range(5):
            ours.send({"from": number}, payload)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    received = [theirs.receive() for _ in range(15)]
    for thread in threads:
        thread.join()
    assert sorted(message["from"] for message in received) == [0] * 5 + [1] * 5 + [2] * 5
    assert all(message["payload"] == payload for message in received)


def test_what_was_sent_before_the_end_is_still_received(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.send({"last": 1})
    ours.close()
    ours.close()
    assert theirs.receive() == {"last": 1}
    assert theirs.poll(1.0), "the end of the stream is news"
    with pytest.raises(Closed):
        theirs.receive()
    with pytest.raises(Closed):
        theirs.send({"to": "nobody"})
    with pytest.raises(Closed):
        ours.send({"from": "nobody"})
    assert ours.poll()
    with pytest.raises(Closed):
        ours.receive()


def test_the_other_side_ends_in_the_middle_of_a_message(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours._connection.send_bytes(b'{"payload":true}')  # and dies before the payload
    ours.close()
    with pytest.raises(Closed):
        theirs.receive()
