"""Which files are recorded, and what is recorded of their content."""

from __future__ import annotations

import io
from pathlib import Path
from types import ModuleType

import pytest
import torch

from ddt_notebook.rank.probes import checkpoints
from ddt_notebook.rank.probes.checkpoints import _devices, _path, _recording, _wrapped


def test_a_file_has_one_name_however_its_path_is_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path)
    names = {_path("a.pt"), _path(tmp_path / "a.pt"), _path(str(tmp_path / "link" / "a.pt"))}
    with open("a.pt", "wb") as file:
        assert names == {_path(file)}


@pytest.mark.parametrize("no_file", [io.BytesIO(), None, 3, "/dev/null"])
def test_targets_that_are_not_files_are_not_recorded(no_file: object) -> None:
    assert _path(no_file) == ""


X = torch.zeros(1)


@pytest.mark.parametrize(
    ("saved", "first"),
    [
        ({"module.a": X, "module.b": X}, "module.a"),
        ({"epoch": 3, "model": {"module.a": X}}, "module.a"),
        ({"module.a": X, "b": X}, ""),
        ({"module.a": 3}, ""),
        ({"a": X}, ""),
        ({}, ""),
        (X, ""),
        ([{"module.a": X}], ""),
    ],
)
def test_names_with_the_prefix_of_a_wrapper_are_recognised(saved: object, first: str) -> None:
    assert _wrapped(saved) == first


def test_saving_and_loading_work_and_are_recorded(tmp_path: Path, monkeypatch) -> None:
    record = checkpoints.CheckpointRecord()
    monkeypatch.setattr(checkpoints, "RECORD", record)
    save = _recording(torch.save, "save", 1)
    load = _recording(torch.load, "load", 0)
    save(X, f=tmp_path / "x.pt")
    assert torch.equal(load(tmp_path / "x.pt"), X)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "y.pt")
    assert [(use.action, use.done) for use in record.uses] == [
        ("save", True),
        ("load", True),
        ("load", False),
    ]
    for _ in range(200):
        save(X, io.BytesIO())
        save(X, tmp_path / "x.pt")
    assert (len(record.uses), record.more) == (100, 103)


def test_the_devices_of_loaded_tensors_are_recorded() -> None:
    meta = torch.zeros(2, device="meta")
    assert _devices({"epoch": 1, "model": {"a": X}, "states": [(X, meta)]}) == {"cpu", "meta"}
    assert _devices([X] * 5 + [meta], left=3) in ({"cpu"}, {"cpu", "meta"})
    assert _devices("text") == set()


def test_files_of_tensors_only_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = checkpoints.CheckpointRecord()
    monkeypatch.setattr(checkpoints, "RECORD", record)
    module = ModuleType("safetensors.torch")
    module.save_file = lambda tensors, filename, metadata=None: None  # type: ignore[attr-defined]
    module.load_file = lambda filename, device="cpu": {"a": X}  # type: ignore[attr-defined]
    checkpoints._record_tensors(module)
    path = str(tmp_path / "model.safetensors")
    module.save_file({"module.a": X}, path, metadata={"format": "pt"})
    module.save_file(tensors={"a": X}, filename=path)
    module.load_file(path)
    assert [(use.action, use.path, use.wrapped) for use in record.uses] == [
        ("save", path, "module.a"),
        ("save", path, ""),
        ("load", path, ""),
    ]
