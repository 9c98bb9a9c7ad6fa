"""Messages arrive whole and in order, and the end of the other side is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from ddt_notebook.wire.channel import Channel, Closed, channel_pair
from ddt_notebook.wire.messages import Done, Envelope, LeaveGroup, StoreVariable, encode


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    ours, theirs = channel_pair()
    other = Channel(theirs)
    yield ours, other
    ours.close()
    other.close()


def test_messages_with_and_without_a_payload(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.send(StoreVariable(name="größe"), number=1, payload=b"\x00\xff\n")
    ours.send(StoreVariable(name="x"), number=2, payload=b"")
    ours.send(LeaveGroup(), number=3)
    assert theirs.receive() == Envelope(StoreVariable(name="größe"), 1, b"\x00\xff\n")
    assert theirs.receive() == Envelope(StoreVariable(name="x"), 2, b"")
    assert theirs.receive() == Envelope(LeaveGroup(), 3)
    assert not theirs.poll()


def test_messages_of_several_threads_stay_whole(
    ends: tuple[Channel, Channel],
) -> None:
    ours, theirs = ends
    payload = bytes(300_000)  # more than the socket takes at once

    def send(number: int) -> None:
        for _ in range(5):
            ours.send(Done(), number=number, payload=payload)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    received = [theirs.receive() for _ in range(15)]
    for thread in threads:
        thread.join()
    assert sorted(envelope.number for envelope in received) == [0] * 5 + [1] * 5 + [2] * 5
    assert all(envelope.payload == payload for envelope in received)


def test_what_was_sent_before_the_end_is_still_received(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours.send(Done(), number=1)
    ours.close()
    ours.close()
    assert theirs.receive() == Envelope(Done(), 1)
    assert theirs.poll(1.0), "the end of the stream is noticed"
    with pytest.raises(Closed):
        theirs.receive()
    with pytest.raises(Closed):
        theirs.send(Done())
    with pytest.raises(Closed):
        ours.send(Done())
    assert ours.poll()
    with pytest.raises(Closed):
        ours.receive()


def test_the_other_side_ends_in_the_middle_of_a_message(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    ours._connection.send_bytes(encode(Envelope(Done(), 1, b"")))  # and dies before the payload
    ours.close()
    with pytest.raises(Closed):
        theirs.receive()
