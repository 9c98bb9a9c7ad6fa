"""Lists of hosts and keys are read as written, and anything else is refused in one line."""

from __future__ import annotations

import os
import sys

import pytest

from ddt_notebook.host import join_key
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.join_key import JoinKey, given_key
from ddt_notebook.host.joining import HostWanted, Joining, parse_hosts

KEY = JoinKey(
    b"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", b"JTKVSB%%)wK0E.X)V>+}o?pNmC{O&4W4b!Ni{Lh6"
)


def test_hosts_are_read() -> None:
    wanted = [HostWanted("nodeA", 4), HostWanted("me@node-b.example", 1)]
    assert parse_hosts("nodeA:4, me@node-b.example") == wanted


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:x", "-oProxyCommand=x:2", "a:2,a:2", "a b:1", "a;b"]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(SessionError) as refused:
        parse_hosts(text)
    assert "\n" not in str(refused.value)


def test_a_key_survives_a_shell() -> None:
    text = KEY.to_text()
    assert JoinKey.from_text(f" {text}\n") == KEY
    assert not set(text) - set("-_=") - {chr(c) for c in range(128) if chr(c).isalnum()}
    assert text not in repr(KEY)


@pytest.mark.parametrize("text", ["x", "x" * 88, "", KEY.to_text()[:-4]])
def test_another_text_is_no_key(text: str) -> None:
    with pytest.raises(SessionError, match="DDT_JOIN"):
        JoinKey.from_text(text)


def test_ranks_of_an_agent_do_not_inherit_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDT_JOIN", KEY.to_text())
    assert given_key() == KEY
    theirs, ours = os.pipe()
    with open(theirs) as stdin, open(ours, "w") as writer:
        monkeypatch.setattr(sys, "stdin", stdin)
        print(KEY.to_text(), file=writer, flush=True)
        assert given_key() == KEY  # not from the environment: it is gone there
        monkeypatch.setattr(join_key, "_INPUT_LIMIT_S", 0.01)
        with pytest.raises(SessionError, match="missing"):  # nobody writes, nobody closes it
            given_key()


def test_ranks_must_divide_among_the_hosts() -> None:
    with pytest.raises(SessionError, match="3 ranks do not divide among 2 hosts"):
        Joining(3, 2, "127.0.0.1").place()


def test_who_is_missing_is_told() -> None:
    shown: list[str] = []
    with pytest.raises(SessionError, match="0 of 2 hosts have joined; 2 missing"):
        Joining(2, 2, "127.0.0.1", limit_s=0.3, say=shown.append).place()
    assert "ddt-notebook agent 127.0.0.1:" in shown[0]


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(SessionError, match=r"cannot listen at 192\.0\.2\.7"):
        Joining(2, 2, "192.0.2.7").place()
