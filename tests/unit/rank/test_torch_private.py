"""Private names of torch: each belongs to a feature that can be off."""

from __future__ import annotations

import ast
import inspect

import pytest
import torch

from ddt_notebook.model.torch_features import FEATURES, TIMELINE, Feature
from ddt_notebook.rank import torch_private
from ddt_notebook.rank.probes.timeline import Tracer

TRIED = Feature("tried", "something is not seen")


@pytest.fixture(autouse=True)
def nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_private, "_missing", {})
    monkeypatch.setattr(torch_private, "NAMES", dict(torch_private.NAMES))


@pytest.mark.parametrize("name", ["torch:_nowhere", "torch._nowhere:name", "torch:Tensor._nowhere"])
def test_a_missing_name_turns_its_feature_off(name: str) -> None:
    assert torch_private._look_up(TRIED, name, 7) == 7
    assert not torch_private.available(TRIED)
    (missing,) = torch_private.missing()
    assert (missing.feature, missing.names) == ("tried", (name,))


def test_every_feature_has_names_and_every_name_a_known_feature() -> None:
    assert set(torch_private.NAMES.values()) == set(FEATURES.values())


def test_every_private_name_is_looked_up() -> None:
    """What the module reads from torch with an underscore, it has looked up."""
    looked_up = {part for name in torch_private.NAMES for part in name.split(":")[-1].split(".")}
    known = looked_up | {"_untyped_storage"}  # read with a default
    tree = ast.parse(inspect.getsource(torch_private))
    read = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and ast.unparse(node.value) != "self"
    }
    assert len(read) > 10
    assert read <= known


def test_a_profiler_with_other_arguments_leaves_the_rest_of_the_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses() -> None:
        raise TypeError("ProfilerConfig takes other arguments")

    monkeypatch.setattr(torch_private, "enable_profiler", refuses)
    tracer = Tracer(0, dict)
    tracer.start()
    torch.nn.Linear(1, 1)(torch.ones(1)).backward()
    traced = tracer.stop()
    assert "ProfilerConfig" in str(torch_private.missing())
    assert not torch_private.available(TIMELINE)
    assert traced is not None
