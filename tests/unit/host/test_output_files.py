"""What a rank prints is followed without loss, and kept within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ddt_notebook.host import output_files
from ddt_notebook.host.output_files import KeptText, Tail


@pytest.fixture
def tail(tmp_path: Path) -> Iterator[Tail]:
    following = Tail(tmp_path / "rank0.out")
    yield following
    following.close()


def write(tail: Tail, data: bytes) -> None:
    with tail.path.open("ab") as file:
        file.write(data)


def test_text_is_read_once_as_it_comes(tail: Tail) -> None:
    assert tail.read() == ""
    write(tail, b"step 1\rstep 2")
    assert tail.read() == "step 1\rstep 2"
    assert tail.read() == ""
    write(tail, b"\nend\n")
    assert tail.read() == "\nend\n"


def test_a_character_that_was_written_in_two_parts_is_read_whole(tail: Tail) -> None:
    whole = "größe 🙂".encode()
    for byte in whole:
        write(tail, bytes([byte]))
        assert "\N{REPLACEMENT CHARACTER}" not in (part := tail.read()), part
    write(tail, b"\xff!")
    assert tail.read() == "\N{REPLACEMENT CHARACTER}!"


def test_a_character_across_two_chunks_is_read_whole(tail: Tail) -> None:
    text = "x" * (output_files._CHUNK_BYTES - 1) + "🙂y"
    write(tail, text.encode())
    assert tail.read_all() == text


def test_text_can_be_read_up_to_a_position(tail: Tail) -> None:
    write(tail, b"before the picture|after it")
    assert tail.read_all(18) == "before the picture"
    assert tail.read_all(18) == ""
    assert tail.read_all() == "|after it"


def test_a_skipped_backlog_is_reported(tail: Tail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "_BACKLOG_BYTES", 1000)
    monkeypatch.setattr(output_files, "_CHUNK_BYTES", 10)
    write(tail, b"early\n")
    assert tail.read() == "early\n"
    write(tail, b"." * 2000 + b"0123456789")
    text = tail.read_all()
    assert text.endswith("…\n0123456789")
    assert "2,000 bytes are not shown" in text
    assert str(tail.path) in text
    write(tail, b"later")
    assert tail.read() == "later"


def test_kept_text_has_head_and_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_files, "_KEPT_CHARACTERS", 20)
    kept = KeptText()
    for letter in "abcdefghijklmnopqrstuvwxyz":
        kept.add(letter * 3)
    text = str(kept)
    assert text.startswith("aaabbbcccd\n…")
    assert text.endswith("…\nwxxxyyyzzz")
    assert f"{26 * 3 - 20} characters left out" in text


def test_short_text_is_kept_as_it_is() -> None:
    kept = KeptText()
    assert str(kept) == ""
    kept.add("a\n")
    kept.add("b")
    assert str(kept) == "a\nb"
