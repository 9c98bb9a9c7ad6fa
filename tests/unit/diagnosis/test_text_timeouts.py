"""What a log shows when NCCL's watchdog gives a collective up on several ranks."""

from __future__ import annotations

import io

from ddt_notebook.diagnosis.text import diagnose_log, diagnose_text

from .builders import facts


def gave_up(rank: int, sequence: int, op: str = "ALLREDUCE", elements: int = 1024) -> str:
    """The line that a rank prints."""
    return (
        f"[rank{rank}]:[E321 02:07:08.4{rank} ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog "
        f"caught collective operation timeout: WorkNCCL(SeqNum={sequence}, OpType={op}, NumelIn="
        f"{elements}, NumelOut={elements}, Timeout(ms)=600000) ran for 600060 milliseconds before "
        "timing out."
    )


def groups(log: str) -> dict[tuple[int, ...], tuple[str, int]]:
    """By ranks, the collective that they gave up."""
    (finding, *_) = diagnose_text(log).findings
    return {
        fact.ranks: (fact.values["op"], fact.values["sequence"])
        for fact in finding.facts
        if fact.kind == "gave-up"
    }


def test_ranks_in_the_same_collective_are_one_group():
    log = "\n".join(gave_up(rank, 158) for rank in range(4))
    assert groups(log) == {(0, 1, 2, 3): ("ALLREDUCE", 158)}
    (finding, *_) = diagnose_text(log).findings
    assert finding.symptom == "D.2.1"
    assert facts(finding)["gave-up"].values["timeout_s"] == 600.0
    assert "gave-up-nothing" not in facts(finding)


def test_a_rank_in_another_collective_is_a_group_of_its_own():
    log = "\n".join([*(gave_up(rank, 158) for rank in (0, 1, 3)), gave_up(2, 157, "BARRIER", 1)])
    assert groups(log) == {(0, 1, 3): ("ALLREDUCE", 158), (2,): ("BARRIER", 157)}


def test_a_rank_that_printed_no_timeout_is_named():
    log = "\n".join(["[rank2]: evaluating", *(gave_up(rank, 158) for rank in (0, 1, 3))])
    (finding, *_) = diagnose_text(log).findings
    assert facts(finding)["gave-up-nothing"].ranks == (2,)
    assert finding.ranks == []  # it may have been ended before its watchdog printed


def test_a_long_log_keeps_the_line_of_every_rank():
    steps = "".join(f"[rank{n % 64}]: step {n}\n" for n in range(2000))
    log = steps + "\n".join(gave_up(rank, 158) for rank in range(64))
    (finding, *_) = diagnose_log(io.BytesIO(log.encode())).findings
    assert facts(finding)["gave-up"].ranks == tuple(range(64))
