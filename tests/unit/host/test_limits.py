"""More ranks than memory holds are refused before any is started."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ddt_notebook import system_memory
from ddt_notebook.host import limits
from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.limits import (
    RANK_BYTES,
    check_backend,
    check_framework,
    check_ranks,
    free_memory,
    parse_bytes,
    parse_limit,
)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 8 GB, whose cgroup files are under the path."""
    monkeypatch.delenv("MEM_LIMIT", raising=False)
    monkeypatch.setattr(limits.psutil, "virtual_memory", lambda: SimpleNamespace(available=8 << 30))
    cgroup = (tmp_path, "memory.max", "memory.current", "inactive_file")
    monkeypatch.setattr(system_memory, "_CGROUPS", (cgroup,))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512M", 512 << 20),
        ("512MiB", 512 << 20),
        ("1.5g", 3 << 29),
        (" 2 GB ", 2 << 30),
        ("64K", 64 << 10),
        ("1000", 1000),
        (4096, 4096),
    ],
)
def test_amounts_of_memory_are_read(text: str | int, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "G", "much", "-1", "0", "1 Q", "inf", "nan", -5])
def test_other_texts_are_refused_as_amounts_of_memory(text: str | int) -> None:
    with pytest.raises(SessionError, match="is not an amount of memory: write 512M or 2G"):
        parse_bytes(text)


def test_a_limit_without_its_unit_is_refused() -> None:
    assert parse_limit("512M") == 512 << 20
    with pytest.raises(SessionError, match="cannot work within 5 bytes: write 5G"):
        parse_limit("5")


def test_a_backend_that_cannot_work_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SessionError, match="did you mean gloo"):
        check_backend("glo", here=True)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("ddt_notebook.host.limits._GPU_FILES", ("no-such-gpu*",))
    with pytest.raises(SessionError, match="--simulate cuda:N"):
        check_backend("nccl", here=True)
    check_backend("nccl", here=False)
    monkeypatch.setattr("ddt_notebook.host.limits._GPU_FILES", ("null",))
    for name in ("nccl", "hccl", "xccl", "cpu:gloo,cuda:nccl", "fake"):
        check_backend(name, here=True)


def cgroup(folder: Path, *, limit: object, usage: int, cache: int = 0) -> None:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{usage}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {cache}\nactive_file 7\n")


def test_the_smallest_limit_counts(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert free_memory() == 8 << 30
    cgroup(machine, limit="max", usage=100)
    assert free_memory() == 8 << 30
    cgroup(machine, limit=2 << 30, usage=1 << 30)
    assert free_memory() == 1 << 30
    monkeypatch.setenv("MEM_LIMIT", str(3 << 29))
    assert free_memory() == 1 << 29
    cgroup(machine, limit=2 << 30, usage=3 << 30)
    assert free_memory() == 0


def test_cached_files_count_as_free_memory(machine: Path) -> None:
    cgroup(machine, limit=2 << 30, usage=2 << 30, cache=1 << 30)
    assert free_memory() == 1 << 30


def test_ranks_that_do_not_fit_are_refused(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: 3 * RANK_BYTES["fork"])
    check_ranks(3, "fork")
    for count, method, fitting in ((4, "fork", 3), (2, "spawn", 0)):
        with pytest.raises(SessionError, match=f"^{count} ranks need") as raised:
            check_ranks(count, method)
        assert (raised.value.reason, raised.value.fitting_ranks) == ("memory", fitting)


def test_a_session_is_refused_where_not_even_one_rank_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "free_memory", lambda: 0)
    with pytest.raises(SessionError, match=r"^1 rank needs .*: free some memory first$"):
        check_ranks(1, "fork")
    with pytest.raises(SessionError) as raised:
        check_ranks(0, "fork")
    assert raised.value.reason == "no ranks"


@pytest.mark.parametrize("ranks", [None, [1, 0, 1], range(2)])
def test_ranks_are_chosen_in_order(ranks: object) -> None:
    assert limits.choose_ranks(ranks, 2) == (0, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (2, "there is no rank 2: this session has ranks 0 to 1"),
        ([0, -1], "there is no rank -1"),
        ([], "no rank was chosen"),
        (["0"], "'0' is not a rank number"),
        (True, "True is not a rank number"),
    ],
)
def test_ranks_that_do_not_exist_are_refused(ranks: object, text: str) -> None:
    with pytest.raises(SessionError, match=text):
        limits.choose_ranks(ranks, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [0, -1])
def test_an_empty_choice_of_ranks_is_refused(count: int) -> None:
    with pytest.raises(SessionError, match="at least 1 rank"):
        check_ranks(count, "fork")


@pytest.mark.parametrize(
    ("name", "installed", "on_hosts", "simulated", "text"),
    [
        ("tensorflw", True, None, False, "no framework 'tensorflw'.*did you mean tensorflow"),
        ("TensorFlow", True, None, False, "did you mean tensorflow"),
        ("jax", True, None, False, "no framework 'jax'.*choose horovod or tensorflow"),
        (
            "megatron",
            True,
            None,
            False,
            "Megatron-core.*: leave --framework out.*--simulate",
        ),
        (
            *("tensorflow", False, None, False),
            r"TensorFlow is not installed: pip install 'ddt-notebook\[ten",
        ),
        ("tensorflow", True, None, True, "run without simulated GPUs"),
        ("horovod", True, "horovod", False, "ranks for Horovod run on this machine only"),
        ("tensorflow", False, "", False, "hosts are not prepared for TensorFlow: join them with"),
    ],
)
def test_a_framework_without_its_needs_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    installed: bool,
    on_hosts: str | None,
    simulated: bool,
    text: str,
) -> None:
    spec = SimpleNamespace(origin="__init__.py") if installed else None
    found = SimpleNamespace(find_spec=lambda module: spec)
    monkeypatch.setattr(limits.importlib, "util", found)
    with pytest.raises(SessionError, match=text) as caught:
        check_framework(name, on_hosts=on_hosts, simulated=simulated)
    assert "\n" not in str(caught.value)


def test_a_folder_with_the_name_of_a_framework_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "horovod").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "horovod", raising=False)
    with pytest.raises(SessionError, match="Horovod is not installed"):
        check_framework("horovod", on_hosts=None, simulated=False)


def test_a_group_of_many_ranks_for_each_processor_comes_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits.os, "cpu_count", lambda: 2)
    assert limits.fewer_ranks(15) == ""
    assert "15 or fewer" in limits.fewer_ranks(200)
