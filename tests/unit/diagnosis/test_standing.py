"""A diagnosis from the stacks alone, of a job that was started without a recorder."""

from __future__ import annotations

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.dumps import stacks
from ddt_notebook.dumps.evidence import Evidence

ALL_REDUCE = """\
Process 11: python -u train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 11 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:3252)
    _exception_logger.<locals>.wrapper (torch/distributed/c10d_logger.py:83)
    main (/job/train.py:21)
    <module> (/job/train.py:25)
Thread 12 (idle): "Thread-1"
    wait (threading.py:331)
"""
BACKWARD = """\
Thread 0x00007f7b8f7fe700 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait

Thread 0x00007f7c4a3ff740 (most recent call first):
  File "/venv/site-packages/torch/autograd/graph.py", line 979 in _engine_run_backward
  File "/venv/site-packages/torch/_tensor.py", line 623 in backward
  File "/job/train.py", line 30 in step
  File "/job/train.py", line 40 in <module>
"""
FORWARD = """\
Thread 31 (idle): "MainThread"
    DistributedDataParallel._pre_forward (torch/nn/parallel/distributed.py:1775)
    DistributedDataParallel.forward (torch/nn/parallel/distributed.py:1886)
    Module._call_impl (torch/nn/modules/module.py:1789)
    <module> (/job/train.py:24)
"""
LOADS = """\
Thread 21 (active): "MainThread"
    load_batch (/job/data.py:8)
    main (/job/train.py:20)
    <module> (/job/train.py:25)
"""
BARRIER = ALL_REDUCE.replace("all_reduce", "barrier").replace("train.py:21", "train.py:22")
RECEIVES = ALL_REDUCE.replace("all_reduce", "recv")


def evidence(*texts: str) -> Evidence:
    return Evidence(stacks={rank: stacks.read(text) for rank, text in enumerate(texts)})


def test_the_main_thread_is_read() -> None:
    assert [(f.file, f.line) for f in stacks.read(ALL_REDUCE)][:2] == [
        ("/job/train.py", 25),
        ("/job/train.py", 21),
    ]
    assert stacks.read(BACKWARD)[-1].function == "_engine_run_backward"
    assert stacks.process(ALL_REDUCE) == 11
    assert stacks.process(LOADS) is None


@pytest.mark.parametrize("text", ["", "[", "[{}]", "[3]", '{"a": 1}', "Thread 1 (idle): x", "\0"])
def test_texts_without_a_stack_give_none(text: str) -> None:
    assert stacks.read(text) == ()


@pytest.mark.parametrize("waits", [ALL_REDUCE, BACKWARD, FORWARD])
def test_the_rank_that_is_elsewhere_is_named(waits: str) -> None:
    (finding,) = diagnose(evidence(waits, waits, LOADS).snapshot()).findings
    assert (finding.kind, finding.ranks, finding.waiting) == ("stands-elsewhere", [2], [0, 1])
    assert finding.confidence == "likely"
    assert (finding.places[2].file, finding.places[2].line) == ("/job/data.py", 8)
    assert finding.places[0].role == "waits"


def test_different_calls_are_a_hint() -> None:
    report = diagnose(evidence(ALL_REDUCE, ALL_REDUCE, BARRIER).snapshot())
    assert [hint.ranks for hint in report.hints] == [[2]]
    assert all(
        f.kind not in ("stands-elsewhere", "stand-in-different-calls") for f in report.findings
    )


@pytest.mark.parametrize(
    "texts", [(ALL_REDUCE, ALL_REDUCE), (ALL_REDUCE, RECEIVES), (LOADS, LOADS)]
)
def test_stages_and_equal_stacks_accuse_no_rank(texts: tuple[str, ...]) -> None:
    report = diagnose(evidence(*texts).snapshot())
    kinds = {finding.kind for finding in (*report.findings, *report.hints)}
    assert not kinds & {"stands-elsewhere", "stand-in-different-calls"}


def test_a_backward_pass_that_computes_is_not_a_wait() -> None:
    seen = evidence(BACKWARD, LOADS)
    seen.cpu_shares = {0: 0.9, 1: 0.1}
    assert not diagnose(seen.snapshot()).findings
    seen.cpu_shares = {0: 0.02, 1: 0.1}
    (finding,) = diagnose(seen.snapshot()).findings
    assert finding.ranks == [1]


def test_ranks_that_wait_for_no_rank_are_not_a_hang() -> None:
    assert diagnose(evidence(LOADS, LOADS).snapshot()).ok


def test_a_job_that_makes_progress_is_not_a_hang() -> None:
    seen = evidence(ALL_REDUCE, LOADS)
    seen.moves = True
    assert diagnose(seen.snapshot()).ok
