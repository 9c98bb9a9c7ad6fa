"""What logs say about the job as a whole, and what is concluded from it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ddt_notebook import api
from ddt_notebook.diagnosis.text import diagnose_log, diagnose_text
from ddt_notebook.model import Finding, Report
from ddt_notebook.model.log_facts import LogFacts

from .builders import facts

LOGS = Path(__file__).parents[2] / "fixtures" / "logs"


def of(name: str) -> tuple[Report, LogFacts]:
    """The report on one of the logs, and what the log says about the job."""
    report = (
        api.diagnose_dumps(LOGS / name) if (LOGS / name).is_dir() else diagnose_log(LOGS / name)
    )
    assert report.log is not None
    return report, report.log


def values(said: tuple, name: str) -> dict[str, tuple[int, ...]]:
    """By value, the ranks that printed it."""
    return {one.value: one.ranks for one in said if one.name == name}


def kinds(report: Report) -> list[str]:
    return [finding.kind for finding in report.findings]


def quoted(finding: Finding) -> str:
    return "\n".join(f.values["text"] for f in finding.facts if f.kind == "line-of-text")


def test_a_watchdog_of_eight_ranks():
    report, log = of("torchrun_watchdog.log")
    first = report.findings[0]
    assert first.symptom == "D.2.1"
    assert first.waiting == [0, 1, 2, 4, 5, 6, 7]
    assert facts(first)["gave-up-nothing"].ranks == (3,)
    assert facts(first)["quiet-since"].ranks == (3,)
    assert facts(first)["quiet-since"].values["since_s"] == pytest.approx(629, abs=1)
    assert "limit-too-short" not in kinds(report)
    (timeout,) = log.timeouts
    assert (timeout.op, timeout.sequence, timeout.limit_s) == ("ALLREDUCE", 1580, 600)
    assert timeout.waited_s == pytest.approx(600, abs=1)
    assert (log.world_size, log.ranks, log.silent) == (8, tuple(range(8)), ())
    assert values(log.network, "network") == {"Socket": tuple(range(8))}
    assert values(log.versions, "NCCL").keys() == {"2.21.5+cuda12.4"}
    assert values(log.versions, "torch") == {"2.5.1+cu124": (0,)}
    assert {(end.ranks, end.signal, end.reason, end.first) for end in log.ends} == {
        ((3,), 15, "launcher", False),
        ((0,), 6, "", True),
    }
    assert [one.value for one in log.launchers] == ["torchrun"]


def test_slurm_ends_a_task_that_used_too_much_memory():
    report, log = of("slurm_oom.log")
    first = report.findings[0]
    assert (first.symptom, first.ranks) == ("D.1.2", [6])
    assert "task 6: Out Of Memory" in quoted(first)
    memory = [end for end in log.ends if end.reason == "memory" and end.ranks]
    assert [(end.ranks, end.where) for end in memory] == [((6,), "node18")]
    assert {(end.ranks, end.code) for end in log.ends if end.code} == {
        ((0, 1, 2, 3), 1),
        ((4, 5, 7), 1),
    }


def test_a_container_that_was_started_again():
    report, log = of("kubernetes_oom.log")
    assert report.findings[0].symptom == "D.1.2"
    assert log.restarts == 3
    assert log.restarted is not None
    assert "Restart Count" in log.restarted.text
    (end,) = log.ends
    assert (end.where, end.code, end.signal) == ("llm-pretrain-worker-1", 137, 9)
    assert end.reason == "memory"


def test_hosts_with_infiniband_that_use_sockets():
    report, log = of("infiniband_not_used.log")
    first = report.findings[0]
    assert (first.symptom, first.kind) == ("D.2.3", "sockets-despite-infiniband")
    assert first.values == {"disabled": True, "absent": False}
    assert "ib0" in quoted(first)
    assert "NCCL_IB_DISABLE" in quoted(first)
    assert values(log.variables, "NCCL_IB_DISABLE") == {"1": (0, 1, 2, 3)}
    assert values(log.network, "transport") == {"P2P/IPC": (0, 2), "NET/Socket": (1, 3)}


def test_a_limit_that_was_shorter_than_the_work_behind_it():
    report, log = of("tokenising_behind_a_barrier.log")
    first, *others = report.findings
    assert (first.symptom, first.kind) == ("D.2.1", "limit-too-short")
    assert (first.ranks, first.waiting, first.cause) == ([0], [1, 2, 3], "rank-too-slow")
    assert first.values["worked_s"] == 31 * 60 + 2
    assert "[31:02<" in quoted(first)
    assert not {finding.symptom for finding in others} & {"D.2.1", "C.4", "B.2"}
    assert log.work[0].after


def test_releases_and_clocks_that_differ_between_hosts():
    report, log = of("versions_apart")
    (differ,) = (finding for finding in report.findings if finding.kind == "versions-differ")
    found = dict(differ.values["of"])
    assert {version: ranks for version, ranks, _ in found["NCCL"]} == {
        "2.20.5": (0, 1),
        "2.21.5": (2, 3),
    }
    assert found.keys() == {"NCCL", "torch"}
    (skew,) = log.skews
    assert (skew.ranks, skew.ahead_s) == ((2, 3), pytest.approx(41, abs=0.1))
    assert [line.file for line in skew.lines] == ["rank0.log", "rank2.log"]
    # By the stamps as they are, rank 0 failed 14 s before rank 3; by one clock, 27 s after it.
    assert report.findings[0].ranks == [3]


@pytest.mark.parametrize("path", sorted(LOGS.iterdir()), ids=lambda path: path.stem)
def test_every_fact_quotes_a_line_of_the_log(path: Path):
    report, log = of(path.name)
    lines = [
        one.line
        for group in (
            log.launchers, log.versions, log.variables, log.network,
            log.timeouts, log.work, log.quiet, log.ends,
        )
        for one in group
    ]  # fmt: skip
    assert lines
    for line in lines:
        file = path / line.file if line.file else path
        source = " ".join(file.read_text(encoding="utf-8").splitlines()[line.number - 1].split())
        assert line.text.removesuffix("…") in source
    assert Report.from_json(report.to_json()) == report


# -- look-alikes ---------------------------------------------------------------------------------


def test_sockets_within_a_host_are_no_fault():
    text = (LOGS / "torchrun_watchdog.log").read_text().replace("eth0", "ib0")
    assert "sockets-despite-infiniband" not in kinds(diagnose_text(text))


@pytest.mark.parametrize(
    "change",
    [
        ("ib0", "eth1"),  # Ethernet only
        ("Using network Socket", "Using network IB"),
    ],
)
def test_hosts_that_use_what_they_have_are_no_fault(change: tuple[str, str]):
    text = (LOGS / "infiniband_not_used.log").read_text().replace(*change)
    assert diagnose_text(text.replace("via NET/Socket", "via NET/IB")).findings == []


def test_a_person_s_words_and_the_log_are_one_finding():
    text = "all_reduce is slow between the nodes\n" + (LOGS / "infiniband_not_used.log").read_text()
    found = [f for f in diagnose_text(text).findings if f.symptom == "D.2.3"]
    assert [f.kind for f in found] == ["sockets-despite-infiniband"]


def _with_bar(bar: str, again: str = "") -> str:
    gave_up = "\n".join(
        line
        for line in (LOGS / "tokenising_behind_a_barrier.log").read_text().splitlines()
        if "Watchdog" in line
    )
    return f"[default0]:world size 4\n[default0]:{bar}\n{gave_up}\n[default0]:{again}\n"


def test_the_bar_of_a_training_that_hangs_shows_no_work():
    bar = "Epoch 3:  41%|████      | 410/1000 [2:14:09<3:13:05,  1.31s/it, loss=2.1]"
    for text in (_with_bar(bar), _with_bar(bar, bar)):  # tqdm repeats the bar when it is closed
        report = diagnose_text(text)
        assert report.findings[0].symptom == "D.2.1"
        assert "limit-too-short" not in kinds(report)


def test_a_bar_that_goes_on_shows_work():
    bar = "Evaluating:  41%|████      | 410/1000 [29:31<42:00,  4.31s/it]"
    report = diagnose_text(_with_bar(bar, bar.replace("410/", "432/").replace("29:31", "30:59")))
    assert kinds(report)[0] == "limit-too-short"


def test_a_bar_on_the_line_of_the_watchdog_shows_work():
    """The log of https://github.com/hiyouga/LlamaFactory/issues/2424: a bar ends no line."""
    watchdog = (
        "[E ProcessGroupNCCL.cpp:475] [Rank {}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) "
        "ran for 1800328 milliseconds before timing out."
    )
    bar = "Running tokenizer:   9%|█ | 280000/2969526 [29:55<4:48:08, 155.57 examples/s]"
    second = "Running tokenizer:   0%|  | 0/2969526 [00:00<?, ? examples/s]"
    lines = [bar + watchdog.format(2), watchdog.format(1), second + watchdog.format(3)]
    report = diagnose_text("\n".join(lines))
    assert kinds(report)[0] == "limit-too-short"
    assert report.findings[0].values["worked_s"] == 29 * 60 + 55
    # As in issue 8261 there: training stood still one minute after it began.
    training = bar.replace("29:55", "01:08").replace("155.57 examples/s", "2.88s/it")
    assert "limit-too-short" not in kinds(diagnose_text(training + watchdog.format(5)))


def test_a_machine_without_infiniband_is_healthy():
    """The log of https://github.com/facebookresearch/detectron2/issues/4730."""
    lines = """host1:1379562:1379562 [0] NCCL INFO Bootstrap : Using enp36s0f1:168.188.129.189<0>
host1:1379562:1379562 [0] misc/ibvwrap.cc:63 NCCL WARN Failed to open libibverbs.so[.1]
host1:1379562:1379562 [0] NCCL INFO NET/Socket : Using [0]enp36s0f1:168.188.129.189<0>
host1:1379562:1379562 [0] NCCL INFO Using network Socket
host2:1379564:1379564 [2] NCCL INFO Using network Socket
[7839] rank = 0, world_size = 2, n = 1, device_ids = [0]"""
    found = diagnose_text(lines).findings
    assert not [one for one in found if one.confidence != "possible"]


def test_a_rank_that_ended_did_not_work_too_long():
    bar = "Map:  99%|█████████▉| 1980/2000 [30:31<00:20, 5.40 examples/s]"
    end = "  rank      : 0 (local_rank: 0)\n  exitcode  : -9 (pid: 90)"
    text = _with_bar(bar) + f"Root Cause (first observed failure):\n[0]:\n{end}\n"
    report = diagnose_text(text)
    assert "limit-too-short" not in kinds(report)
    assert any(end.ranks == (0,) and end.signal == 9 for end in report.log.ends)


def test_ranks_that_all_gave_up_were_not_at_work():
    text = (LOGS / "tokenising_behind_a_barrier.log").read_text()
    line = next(line for line in text.splitlines() if "Watchdog" in line)
    text += re.sub(r"([Rr]ank ?|default)1", r"\g<1>0", line)
    assert "limit-too-short" not in kinds(diagnose_text(text))


def test_stamped_lines_show_work_and_another_time_zone_does_not():
    def log(hour: int) -> str:
        steps = "\n".join(
            f"[rank{rank}]: 2026-11-24 {hour:02d}:10:0{rank},100 INFO waiting for the cache"
            for rank in (1, 2)
        )
        work = "\n".join(
            f"[rank0]: 2026-11-24 {hour:02d}:{minute}:05,000 INFO indexed {minute}00 files"
            for minute in range(11, 20)
        )
        gave_up = "\n".join(
            f"[rank{rank}]: [E1124 10:20:02.5 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog "
            "caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=BROADCAST, NumelIn=1, "
            "NumelOut=1, Timeout(ms)=600000) ran for 600002 milliseconds before timing out."
            for rank in (1, 2)
        )
        return f"[rank0]: world size 3\n{steps}\n{work}\n{gave_up}\n"

    found = diagnose_text(log(10)).findings[0]
    assert (found.kind, found.ranks, found.waiting) == ("limit-too-short", [0], [1, 2])
    assert "limit-too-short" not in kinds(diagnose_text(log(8)))


def test_one_rank_with_two_releases_was_started_twice():
    text = "[rank0]: torch version: 2.4.1\n[rank0]: step 1\n[rank0]: torch version: 2.5.1\n"
    assert kinds(diagnose_text(text)) == []
    other = text.replace("[rank0]: torch version: 2.5.1", "[rank1]: torch version: 2.5.1")
    assert kinds(diagnose_text(other)) == ["versions-differ"]


def test_clocks_are_not_compared_by_ranks_that_are_only_late(tmp_path: Path):
    for rank in range(3):  # each step takes 5 s, and rank 2 prints 3 s after the others
        steps = [f"2026-11-24 10:00:{5 * n + 3 * (rank == 2):02d} step {n}" for n in range(8)]
        own = [
            *steps,
            "Traceback (most recent call last):",
            '  File "/srv/t.py", line 3',
            "OSError",
        ]
        (tmp_path / f"rank{rank}.log").write_text("\n".join(own))
    log = api.diagnose_dumps(tmp_path).log
    assert log is None or log.skews == ()


def test_a_rendezvous_shows_the_clocks_of_hosts(tmp_path: Path):
    for host, second in (("a", "10"), ("b", "52")):
        (tmp_path / f"host_{host}.log").write_text(
            f"I1124 10:00:{second}.123000 77 torch/distributed/elastic/agent/server/api.py:525] "
            "[default] Rendezvous complete for workers. Result:\n  restart_count=2\n"
        )
    log = api.diagnose_dumps(tmp_path).log
    assert log is not None
    (skew,) = log.skews
    assert (skew.files, skew.ahead_s) == (("host_b.log",), 42)
    assert log.restarts == 2


def test_text_and_page_show_the_same_facts():
    shown = api.diagnose_text((LOGS / "slurm_oom.log").read_text())
    text, page = " ".join(shown.to_text().split()), shown.to_html()
    for words in ("rank 6 on node18: signal 9 SIGKILL, out of memory", "torch 2.4.1+cu121"):
        assert words in text
        assert words in page
    assert "task 6: Out Of Memory" in page


@pytest.mark.parametrize(
    ("line", "group", "name", "value"),
    [
        ("a:1:2 [0] NCCL INFO NET/OFI Selected Provider is efa (found 4 nics)", "network",
         "libfabric provider", "efa"),
        ("a:1:2 [0] NCCL INFO NET/OFI Initializing aws-ofi-nccl 1.9.1-aws", "versions",
         "aws-ofi-nccl", "1.9.1-aws"),
        ("a:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE; OOB ib0:10.0.0.1<0>",
         "network", "InfiniBand", "mlx5_0:1/IB mlx5_1:1/RoCE"),
        ("a:1:2 [3] NCCL INFO Channel 01/0 : 3[3] -> 4[0] [send] via NET/IB/2/GDRDMA", "network",
         "transport", "NET/IB/GDRDMA"),
        ("a:1:2 [3] NCCL INFO Channel 01/0 : 3[3] -> 4[0] via SHM/direct/direct", "network",
         "transport", "SHM/direct/direct"),
        ("a:1:2 [0] NCCL INFO GPU Direct RDMA Disabled for HCA 0 'mlx5_0'", "network",
         "GPU Direct RDMA", "Disabled"),
        ("export NCCL_P2P_DISABLE=1", "variables", "NCCL_P2P_DISABLE", "1"),
        ("[2026-11-24 10:00:00,000] [INFO] DeepSpeed info: version=0.16.2, git-hash=unknown",
         "versions", "DeepSpeed", "0.16.2"),
    ],
)  # fmt: skip
def test_what_nccl_and_trainers_print_about_the_job(line: str, group: str, name: str, value: str):
    log = diagnose_text(line).log
    assert log is not None
    assert [(one.name, one.value) for one in getattr(log, group)] == [(name, value)]


@pytest.mark.parametrize(
    ("line", "end"),
    [
        ("mpirun noticed that process rank 3 with PID 0 on node b exited on signal 9 (Killed).",
         ((3,), "b", None, 9, "")),
        ("[launch.py:319:sigkill_handler] x exits with return code = -7", ((), "", None, 7, "")),
        ("srun: error: n2: tasks 2,4-5: Segmentation fault (core dumped)",
         ((2, 4, 5), "n2", None, 11, "")),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 10:00:00 DUE TO TIME LIMIT ***",
         ((), "n1", None, 15, "time")),
    ],
)  # fmt: skip
def test_how_launchers_report_the_end_of_a_process(line: str, end: tuple):
    log = diagnose_text(line).log
    assert log is not None
    assert [(e.ranks, e.where, e.code, e.signal, e.reason) for e in log.ends] == [end]


@pytest.mark.parametrize(
    ("line", "limit_s"),
    [
        ("[rank1]: RuntimeError: [unbound_buffer.cc:78] Timed out waiting 60000ms for recv", 60),
        (
            "[rank1]: [W324 c10d] waitForInput: socket SocketImpl(fd=79) timed out after 600000ms",
            600,
        ),
        ("[rank0]: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 30000 ms", 30),
    ],
)
def test_time_limits_of_gloo_and_of_the_store(line: str, limit_s: float):
    log = diagnose_text(line).log
    assert log is not None
    (timeout,) = log.timeouts
    assert timeout.limit_s == limit_s
    assert len(timeout.ranks) == 1


def test_a_container_s_time_stamp_before_the_mark_of_a_rank():
    text = "2026-11-24T08:12:01.532001Z [default3]:RuntimeError: CUDA out of memory"
    assert diagnose_text(text).findings[0].ranks == [3]


# A pattern that takes quadratic time does not end within this limit on any machine.
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "word", ["NCCL", "12%|# 1/2 [00:01<00:02, 3 it/s]", "torch        ", "a:1:"]
)
def test_a_long_line_about_a_job_takes_no_quadratic_time(word: str):
    watchdog = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=BARRIER, "
    diagnose_text(f"{word * (60_000 // len(word))} [Rank 1] {watchdog}Timeout(ms)=1000)")
