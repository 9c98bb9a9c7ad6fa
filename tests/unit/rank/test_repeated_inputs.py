"""Which inputs of a model come again as samples of data do."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch

from ddt_notebook.rank.frameworks.repeated_inputs import RepeatedInputs

DATA = torch.arange(24 * 6, dtype=torch.float).reshape(24, 6)


def found(batches: Iterable[torch.Tensor]) -> bool:
    log = RepeatedInputs()
    for batch in batches:
        if log.passes((batch, None)):
            return True
        if log.done:
            return False
    return False


def shuffled(epochs: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        DATA[chosen] / 255
        for _ in range(epochs)
        for chosen in torch.randperm(24, generator=generator).split(4)
    ]


def test_samples_come_again_in_the_second_epoch_in_any_order() -> None:
    assert found(shuffled(2))
    assert not found(shuffled(1))


@pytest.mark.parametrize(
    "batches",
    [
        [torch.randn(4, 6, generator=torch.Generator().manual_seed(n)) for n in range(20)],
        [DATA[:4]] * 20,
        [torch.full((4, 6), float(n % 5)) for n in range(20)],
        [torch.tensor(float(n)) for n in range(20)],
    ],
    ids=["made up", "always the same", "of one value", "numbers"],
)
def test_other_inputs(batches: list[torch.Tensor]) -> None:
    assert not found(batches)


def test_short_rows_have_to_be_whole_rows_of_the_data() -> None:
    data = torch.arange(24 * 12.0).reshape(24, 12) + 1000
    log = RepeatedInputs()
    assert not any(log.passes([data[n : n + 3, 2:7]]) for n in range(0, 12, 3))


def test_the_first_inputs_are_kept() -> None:
    log = RepeatedInputs()
    for batch in shuffled(2):
        log.passes([batch])
    assert len(set(log.first)) == 4
    assert log.done


@pytest.mark.parametrize("length", [12, 5])
@pytest.mark.parametrize("held", [True, False], ids=["held", "made up"])
def test_parts_of_data_that_the_program_holds_need_no_second_epoch(held: bool, length: int) -> None:
    data = torch.arange(24.0 * length).reshape(24, length) + 1000
    log = RepeatedInputs()
    batches = [data[first : first + 3] + (0 if held else 0.5) for first in range(0, 12, 3)]
    assert [log.passes([batch]) for batch in batches] == [False] * 3 + [held]
    assert (log.taken_from, log.done) == (("data", True) if held else ("", False))
