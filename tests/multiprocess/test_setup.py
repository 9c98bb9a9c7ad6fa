"""Ranks that form the group themselves: faults, and healthy programs that look similar."""

from __future__ import annotations

import re
import socket

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.session import Session


def with_free_ports(source: str) -> str:
    """The cell with PORT_A and PORT_B replaced by ports of this machine that are free."""
    with socket.socket() as first, socket.socket() as second:
        free = {}
        for name, probe in (("PORT_A", first), ("PORT_B", second)):
            probe.bind(("127.0.0.1", 0))
            free[name] = str(probe.getsockname()[1])
    return re.sub("PORT_[AB]", lambda name: free[name[0]], source)


def report(source: str, n: int, timeout: float = 4.0) -> ddt.Report:
    with Session(n, group=False, timeout=timeout, hang_after=0.5) as session:
        return ddt.diagnose(session.run(with_free_ports(source)))


@pytest.mark.parametrize(
    ("n", "source", "cause", "ranks", "waiting"),
    [
        (4, "dist.init_process_group('gloo', rank=rank % 2, world_size=4)", "rank-number-repeated",
         [2, 3], [0, 1]),
        (3, "dist.init_process_group('gloo', 'tcp://127.0.0.1:PORT_A', rank=0, world_size=3)",
         "rank-number-repeated", [1, 2], [0]),
        (4, ("dist.init_process_group('gloo', rank=rank, world_size=8 if rank == 3 else 4)\n"
         "dist.barrier()"), "world-size-differs", [3], [0, 1, 2]),
        (3, ("import os\nif rank == 2:\n    os.environ['MASTER_PORT'] = 'PORT_A'\n"
         "dist.init_process_group('gloo')"), "rendezvous-differs", [2], [0, 1]),
        (2, ("import tempfile\ndist.init_process_group('gloo', f'file://{tempfile.mktemp()}', "
         "rank=rank, world_size=2)"), "rendezvous-differs", [1], [0]),
        (2, ("dist.init_process_group('gloo', 'tcp://127.0.0.1:PORT_A', rank=rank + 1, "
         "world_size=2)"), "rank-outside-world", [1], [0]),
        (2, "import os\nos.environ['MASTER_ADDR'] = '192.0.2.9'\ndist.init_process_group('gloo')",
         "master-unreachable", [0, 1], []),
        (2, ("if rank == 1:\n    import some_package_that_is_not_there\n"
         "dist.init_process_group('gloo')"), "module-not-found", [1], [0]),
    ],
)  # fmt: skip
def test_faults_of_the_set_up_are_found(
    n: int, source: str, cause: str, ranks: list[int], waiting: list[int]
) -> None:
    findings = report(source, n, timeout=2.0).findings
    assert [(f.cause, f.ranks, f.waiting) for f in findings] == [(cause, ranks, waiting)]


@pytest.mark.parametrize(
    "source",
    [
        "import os\nos.environ['MASTER_PORT'] = 'PORT_A'\ndist.init_process_group('gloo')",
        (
            "import os\nif rank:\n    os.environ['MASTER_ADDR'] = 'localhost'\n"
            "dist.init_process_group('gloo')"
        ),
        (
            "import os, socket\nos.environ['MASTER_ADDR'] = socket.gethostname()\n"
            "os.environ['MASTER_PORT'] = 'PORT_A'\ndist.init_process_group('gloo')"
        ),
        (
            "try:\n    dist.init_process_group('glloo')\nexcept AssertionError:\n"
            "    dist.init_process_group('gloo')"
        ),
        "dist.init_process_group('gloo', rank=1 - rank, world_size=2)",
        (
            "from datetime import timedelta\n"
            "dist.init_process_group('gloo', 'env://', timedelta(seconds=9))"
        ),
        (
            "dist.init_process_group('gloo', rank=0, world_size=1, store=dist.HashStore())\n"
            "dist.destroy_process_group()\ndist.init_process_group('gloo')"
        ),
    ],
)
def test_groups_that_form_give_no_finding(source: str) -> None:
    found = report(f"{source}\ndist.all_reduce(torch.ones(1))", 2)
    assert found.ok, str(found)


def test_the_name_of_this_machine_is_as_good_as_loopback() -> None:
    source = "import os, socket\nos.environ['MASTER_ADDR'] = socket.gethostname()\n"
    found = report(f"{source}dist.init_process_group('gloo')\ndist.barrier()", 2)
    assert found.ok, str(found)


def test_the_words_of_torch_in_the_users_own_error() -> None:
    source = "raise ValueError('environment variable DATA expected, but not set')"
    assert report(source, 2).findings[0].symptom == "D.1.11"


REVERSED = """
number = world_size - 1 - rank
dist.init_process_group("gloo", rank=number, world_size=world_size)
x = torch.ones(2)
"""
TWO_GROUPS = """
import os
os.environ["MASTER_PORT"] = "PORT_B" if rank // 2 else "PORT_A"
dist.init_process_group("gloo", rank=rank % 2, world_size=2)
x = torch.ones(1 + rank // 2)
"""


@pytest.mark.parametrize(
    ("n", "source"),
    [
        (3, (f"{REVERSED}dist.broadcast(x, src=0)\nif number == 0:\n    dist.send(x, 2)\n"
         "elif number == 2:\n    dist.recv(x, 0)\ngroup = dist.new_group([0, 1])\n"
         "if number < 2:\n    dist.all_reduce(x, group=group)")),
        (4, (f"{TWO_GROUPS}dist.all_reduce(x)\ndist.broadcast(x, 0)\n"
         "dist.all_reduce(x, group=dist.new_group([0, 1]))")),
    ],
    ids=["counted from the end", "two groups"],
)  # fmt: skip
def test_ranks_that_the_cell_numbers_itself(n: int, source: str) -> None:
    found = report(source, n)
    assert found.ok, str(found)
    assert not found.hints, str(found)


@pytest.mark.parametrize(
    ("n", "source", "ranks", "waiting"),
    [
        (3, f"{REVERSED}if number != 0:\n    dist.all_reduce(x)", [2], [0, 1]),
        (2, f"{REVERSED}if number == 0:\n    dist.recv(x, 1)", [0], [1]),
        (4, f"{TWO_GROUPS}if rank != 3:\n    dist.all_reduce(x)", [3], [2]),
    ],
    ids=["collective", "message", "two groups"],
)
def test_faults_are_reported_by_the_numbers_of_the_session(
    n: int, source: str, ranks: list[int], waiting: list[int]
) -> None:
    findings = report(source, n).findings
    assert [(finding.ranks, finding.waiting) for finding in findings] == [(ranks, waiting)]


def test_a_slow_rank_is_not_a_hang_where_an_earlier_cell_has_numbered_the_ranks() -> None:
    with ddt.Session(4, group=False, hang_after=0.3) as session:
        assert session.run(REVERSED.replace("x = torch.ones(2)", "")).ok
        # many calls: the cell that numbers the ranks is long gone from the latest ones
        assert session.run("for _ in range(80):\n    dist.all_reduce(torch.ones(1))").ok
        source = (
            "import time\n"
            "if number == 3:\n"
            "    time.sleep(1.5)\n"
            "    dist.send(torch.ones(1), 2)\n"
            "elif number == 2:\n"
            "    dist.recv(torch.ones(1), 3)\n"
        )
        run = session.run(source)
        assert run.ok, str(ddt.diagnose(run))
        hung = session.run("if number == 2:\n    dist.recv(torch.ones(1), 0)")
        (finding,) = ddt.diagnose(hung).findings
        assert (finding.ranks, finding.waiting) == ([3], [1])


def test_a_slow_rank_is_not_a_hang_in_one_of_two_groups() -> None:
    with ddt.Session(4, group=False, hang_after=0.3) as session:
        slow = "import time\nif rank == 3:\n    time.sleep(1.5)\ndist.all_reduce(x)"
        run = session.run(with_free_ports(TWO_GROUPS + slow))
        assert run.ok, str(ddt.diagnose(run))
        assert not ddt.diagnose(run).findings
        hung = session.run("if rank == 2:\n    dist.all_reduce(x)")
        (finding,) = ddt.diagnose(hung).findings
        assert (finding.ranks, finding.waiting) == ([3], [2])
