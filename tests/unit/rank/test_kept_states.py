"""What is noted of modules and buffers that DDP does not keep equal."""

from __future__ import annotations

import copy
import pickle
import weakref

import torch
from torch import nn

from ddt_notebook.rank import torch_private
from ddt_notebook.rank.probes import kept_states


def test_calls_of_one_module_are_seen_and_its_copies_are_plain() -> None:
    module, other, seen = nn.Linear(2, 2), nn.Linear(2, 2), []
    torch_private.observe_calls(module, seen.append)
    result = module(torch.ones(1, 2))
    other(torch.ones(1, 2))
    assert seen == [result]
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        twin(torch.ones(1, 2))
    assert seen == [result]
    torch_private.observe_calls(module, None)
    module(torch.ones(1, 2))
    assert seen == [result]
    assert vars(module).keys() == vars(other).keys()


def test_a_compiled_module_is_left_alone() -> None:
    module, seen = nn.Linear(2, 2), []
    module.compile(backend="eager")
    compiled = vars(module)["_compiled_call_impl"]
    torch_private.observe_calls(module, seen.append)
    torch_private.observe_calls(module, None)
    assert vars(module)["_compiled_call_impl"] is compiled


def test_a_weak_reference_to_a_module_is_no_module_beside_the_model() -> None:
    class Holder:
        def __init__(self, module: nn.Module) -> None:
            self.module = weakref.proxy(module)

    own = nn.Linear(2, 2)
    found: dict[int, tuple[str, nn.Module]] = {}
    kept_states._search(found, "holder", Holder(own), 2)
    kept_states._search(found, "proxy", weakref.proxy(own), 2)
    assert not found
    kept_states._search(found, "own", own, 2)
    assert list(found.values()) == [("own", own)]
