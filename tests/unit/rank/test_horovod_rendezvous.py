"""The server by which Horovod's ranks find each other."""

from __future__ import annotations

import http.client

import pytest
import torch.distributed as dist

from ddt_notebook.rank.frameworks import horovod_rendezvous
from ddt_notebook.rank.frameworks.horovod import Horovod
from ddt_notebook.rank.frameworks.horovod_rendezvous import Rendezvous

LIMIT_S = 30


def asked(port: int, method: str, body: bytes | None = None) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, "/global/0", body)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_store_is_served_to_processes_of_this_user(monkeypatch: pytest.MonkeyPatch) -> None:
    rendezvous = Rendezvous(lambda: "init/1")
    rendezvous.store = dist.HashStore()
    assert asked(rendezvous.port, "GET")[0] == 404
    assert asked(rendezvous.port, "PUT", b"here")[0] == 200
    assert asked(rendezvous.port, "GET") == (200, b"here")
    assert rendezvous.store.get("init/1/global/0") == b"here"

    monkeypatch.setattr(horovod_rendezvous, "stranger", lambda connection: 1234)
    with pytest.raises(ConnectionError):
        asked(rendezvous.port, "PUT", b"elsewhere")
    assert rendezvous.store.get("init/1/global/0") == b"here"


def test_a_rank_that_does_not_come_again_is_named() -> None:
    rank = Horovod()
    rank._store = dist.HashStore()
    rank.meet([0], limit_s=LIMIT_S)
    with pytest.raises(RuntimeError, match=r"ranks \[1, 2\] have not come"):
        rank.meet(range(3), limit_s=0)
