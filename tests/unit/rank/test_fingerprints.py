"""Fingerprints that are taken while a model trains."""

from __future__ import annotations

import pytest
import torch

from ddt_notebook.model.training import NO_GRADIENT
from ddt_notebook.rank.probes.fingerprints import choose, joint_content, next_sampled, sketch


def test_fingerprints_are_taken_at_the_first_steps_and_at_powers_of_two() -> None:
    sampled = [0]
    while sampled[-1] < 128:
        sampled.append(next_sampled(sampled[-1]))
    assert sampled == [*range(9), 16, 32, 64, 128]


def test_small_models_are_read_whole_and_of_large_ones_a_sample() -> None:
    assert choose(5) == [0, 1, 2, 3, 4]
    many = choose(1000)
    assert (many[0], many[-1]) == (0, 999)
    assert len(many) < 50


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(10.0),
        torch.arange(100_000.0).view(100, 1000),
        torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
        torch.randn(40, 50).t(),
        torch.randn(6, dtype=torch.bfloat16),
        torch.randn(6, dtype=torch.complex64).conj(),
        torch.ones(3).expand(4, 3),
        torch.tensor(2.5),
        torch.arange(12)[2:9],
    ],
    ids=[
        "small",
        "large",
        "channels",
        "transposed",
        "bf16",
        "conj",
        "expanded",
        "scalar",
        "offset",
    ],
)
def test_equal_content_and_only_equal_content_agrees(tensor: torch.Tensor) -> None:
    assert sketch(tensor) == sketch(tensor.clone())
    assert sketch(tensor) != sketch(tensor + 1)


class _Elsewhere(torch.Tensor):
    """As a fake tensor, which only looks as if it had elements."""

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> object:
        raise AssertionError("there is nothing to compute with")


def test_tensors_that_cannot_be_read_cause_no_error() -> None:
    assert sketch(None) == NO_GRADIENT
    assert sketch(torch.empty(0)) == sketch(torch.empty(0))
    sparse = torch.sparse_coo_tensor([[0]], [1.0], (3,), check_invariants=False)
    assert sketch(sparse) == sketch(sparse * 2)
    assert sketch(torch.ones(3, device="meta")) == sketch(torch.zeros(3, device="meta"))
    assert sketch(torch.ones(3).as_subclass(_Elsewhere)) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex64, torch.bool])
def test_samples_that_differ_in_one_element_are_distinguished(dtype: torch.dtype) -> None:
    one = torch.zeros(64, 100).to(dtype)
    other = one.clone()
    other[33, 17] = 1
    assert joint_content([one]) == joint_content([one.clone()])
    assert joint_content([one]) != joint_content([other])
    assert joint_content([one, other]) != joint_content([other, one])


def test_long_samples_are_read_behind_their_beginning() -> None:
    one = torch.zeros(1 << 18)
    other = one.clone()
    other[1 << 17 :] = 1
    assert joint_content([one]) != joint_content([other])
    assert joint_content([one.t()]) == joint_content([one])
    assert joint_content([torch.zeros(0)]) == joint_content([torch.zeros(0, 3)])
