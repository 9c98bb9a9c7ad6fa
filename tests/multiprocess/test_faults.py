"""Broken cells for each kind of fault: the right cause, culprits, victims and line."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

import ddt_notebook as ddt

from ..fixtures.cases import Case, load
from .conftest import Ranks

CASES = load("faults")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_fault_is_distinguished(ranks: Ranks, case: Case) -> None:
    run = ranks.check(case)
    ranks.check_still_usable(case, run.lost)


def test_line_in_a_function_of_an_earlier_cell(ranks: Ranks) -> None:
    session = ranks.session(2)
    helper = "def average(x):\n    dist.all_reduce(x)\n    return x / world_size"
    session.run_cell(helper, number=21)
    run = session.run_cell("if rank == 0:\n    average(torch.ones(2))", number=22)
    (finding,) = ddt.diagnose(run).findings
    assert finding.where[0] == "cell[21] line 2: dist.all_reduce(x)"
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert finding.cause == "collective-under-rank-condition"


def test_a_hang_in_one_dimension_of_a_mesh(ranks: Ranks) -> None:
    """Of a mesh that an earlier cell made, in a collective that DTensor calls."""
    session = ranks.session(4)
    mesh = """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    weight = distribute_tensor(torch.ones(4, 4), mesh["tp"], [Shard(0)])
    """
    assert session.run(dedent(mesh)).ok
    run = session.run('if mesh["tp"].get_local_rank() == 0:\n    weight.full_tensor()')
    findings = ddt.diagnose(run).findings
    assert [(one.ranks, one.waiting) for one in findings] == [([1], [0]), ([3], [2])]
    assert {one.cause for one in findings} == {"collective-under-rank-condition"}
    assert {place.line for one in findings for place in one.places.values()} == {1, 2}
    assert not run.lost
    # the mesh of the earlier cell went with its groups
    (finding,) = ddt.diagnose(session.run("weight.full_tensor()")).findings
    assert (finding.symptom, finding.cause, finding.ranks) == ("B.1", "stale-group", [0, 1, 2, 3])
    # where rank 3 alone does not come, the other group has completed
    session.run(dedent(mesh))
    (finding,) = ddt.diagnose(session.run("if rank != 3:\n    weight.full_tensor()")).findings
    assert (finding.ranks, finding.waiting) == ([3], [2])


def test_line_in_a_file(ranks: Ranks, tmp_path: Path) -> None:
    module = tmp_path / "averaging.py"
    module.write_text("def average(dist, x):\n    dist.all_reduce(x)\n")
    session = ranks.session(2)
    session.run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom averaging import average")
    run = session.run("if rank == 0:\n    average(dist, torch.ones(2))")
    (finding,) = ddt.diagnose(run).findings
    assert finding.where[0] == "averaging.py line 2: dist.all_reduce(x)"
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_two_broken_cells_in_a_row(ranks: Ranks) -> None:
    session = ranks.session(3)
    for culprit in (1, 2):
        run = session.run(f"if rank != {culprit}:\n    dist.barrier()")
        (finding,) = ddt.diagnose(run).findings
        assert finding.ranks == [culprit]
        assert not run.lost
