"""The rank and the number of ranks of a job's process, as its code or its launcher passes them."""

from __future__ import annotations

import pytest

from ddt_notebook.rank import recorded_rank
from ddt_notebook.wire.job_files import NUMBERS


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Variables of no launcher."""
    for name in ("TORCHELASTIC_RUN_ID", *(name for one in NUMBERS for name in one[:2])):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("launcher", "set_by_it"),
    [
        ("mpirun", {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}),
        ("mpiexec", {"PMI_RANK": "1", "PMI_SIZE": "2"}),
        ("horovodrun", {"HOROVOD_RANK": "1", "HOROVOD_SIZE": "2"}),
        ("srun", {"SLURM_PROCID": "1", "SLURM_NTASKS": "2"}),
        ("torchrun", {"RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "7"}),
        ("", {"RANK": "1", "WORLD_SIZE": "2"}),
    ],
)
def test_a_launcher_is_named_by_the_variables_that_it_sets(
    variables: pytest.MonkeyPatch, launcher: str, set_by_it: dict[str, str]
) -> None:
    for name, value in set_by_it.items():
        variables.setenv(name, value)
    assert recorded_rank._numbers({}) == (1, 2)
    assert recorded_rank._launcher() == launcher


@pytest.mark.usefixtures("variables")
def test_what_the_code_passes_comes_before_what_the_launcher_sets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert recorded_rank._numbers({"rank": 0, "world_size": -1}) == (0, 2)
    method = "tcp://127.0.0.1:29500?rank=3&world_size=4"
    assert recorded_rank._numbers({"rank": -1, "init_method": method}) == (3, 4)


@pytest.mark.usefixtures("variables")
def test_numbers_that_nobody_passes_are_unknown() -> None:
    assert recorded_rank._numbers({}) == (None, None)
    assert recorded_rank._launcher() == ""
