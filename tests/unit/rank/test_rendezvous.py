"""What a rank passes to init_process_group, by arguments or by the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from ddt_notebook.model import Rendezvous
from ddt_notebook.rank.probes import rendezvous


@pytest.fixture(autouse=True)
def launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"RANK": "0", "WORLD_SIZE": "4", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)


def said(*arguments: Any, **options: Any) -> Rendezvous:
    return rendezvous.describe(arguments, options)


def test_settings_are_read_from_the_environment():
    wanted = Rendezvous(address="127.0.0.1:29500", rank=0, world_size=4, backend="gloo")
    assert said("gloo") == said("gloo", "env://") == said(backend="gloo") == wanted


def test_arguments_override_the_environment():
    assert said("gloo", rank=3, world_size=8) == Rendezvous(
        address="127.0.0.1:29500", rank=3, world_size=8, backend="gloo"
    )
    assert said("gloo", None, None, 8, 3).world_size == 8


def test_missing_and_invalid_values_are_unknown(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MASTER_PORT")
    monkeypatch.setenv("RANK", "node-1")
    assert said() == Rendezvous(world_size=4)


def test_addresses_are_read_from_init_method():
    assert said("gloo", "tcp://node-1:23456", rank=1, world_size=2).address == "node-1:23456"
    assert said(init_method="tcp://localhost:1?rank=1&world_size=2") == Rendezvous(
        address="127.0.0.1:1", rank=1, world_size=2
    )
    assert said(init_method="tcp://node-1:1").rank is None


def test_a_file_that_holds_data_is_noted(tmp_path: Path):
    meeting = tmp_path / "meeting"
    assert not said(init_method=f"file://{meeting}").left_over
    meeting.write_bytes(b"x")
    assert said(init_method=f"file://{meeting}", rank=0) == Rendezvous(
        address=f"file://{meeting}", rank=0, left_over=True
    )


def test_a_launcher_that_serves_the_store_elsewhere_is_noted(monkeypatch: pytest.MonkeyPatch):
    meets = said(init_method="tcp://127.0.0.1:29517", rank=0, world_size=2)
    assert rendezvous.with_server(meets).served_at == ""  # rank 0 serves it
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    assert rendezvous.with_server(meets).served_at == "127.0.0.1:29500"
    for method in ("env://", "tcp://127.0.0.1:29500", "file:///tmp/rendezvous"):
        assert rendezvous.with_server(said(init_method=method)).served_at == ""
