"""Diagnosis of logs: ranks are distinguished, and the cause is found among its consequences."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.text import diagnose_log, diagnose_text, digest
from ddt_notebook.diagnosis.text.lines import separate
from ddt_notebook.messages import messages
from ddt_notebook.views.report import show

from . import builders
from .builders import all_reduce, at, fact, facts, snapshot

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/srv/train.py", line 31, in <module>',
    "    loss = loss_of(model(x), y)",
    '  File "/srv/lib/python3.11/site-packages/torch/nn/functional.py", line 9, in f',
    "    return torch._C._nn.cross_entropy_loss(input, target)",
    "ValueError: Expected input batch_size (3) to match target batch_size (4).",
]
PEER = [
    "Traceback (most recent call last):",
    '  File "/srv/train.py", line 33, in <module>',
    "    loss.backward()",
    "RuntimeError: [/pytorch/gloo/transport/tcp/pair.cc:553] Connection closed by peer [::1]:4",
]
PREFIXES = [
    "[rank{}]: ",
    "[default{}]:",
    "[{}]: ",
    "[{}]<stderr>:",
    "[1,{}]<stderr>:",
    "Mon Jul 22 10:00:00 2024[{}]<stderr>:",
    "{}: ",
]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_lines_are_separated_by_rank_and_the_rank_that_raised_is_named(prefix: str) -> None:
    lines = []
    for index in range(6):
        for rank in (0, 1, 2):
            own = TRACEBACK if rank == 2 else PEER
            if index < len(own):
                lines.append(prefix.format(rank) + own[index])
    found = diagnose_text("\n".join(lines)).findings[0]
    assert found.symptom == "D.1.5"
    assert found.ranks == [2]
    assert (found.places[2].line, found.places[2].role) == (31, "raised")


def test_peers_that_print_first_do_not_hide_the_cause() -> None:
    lines = [f"[rank0]: {line}" for line in PEER] + [f"[rank1]: {line}" for line in TRACEBACK]
    found = diagnose_text("\n".join(lines)).findings[0]
    assert (found.symptom, found.ranks) == ("D.1.5", [1])


def test_the_summary_of_torchrun_names_the_root_cause() -> None:
    text = "\n".join([
        "[rank0]: RuntimeError: CUDA error: device-side assert triggered",
        "[rank3]: AttributeError: 'Net' object has no attribute 'head'",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2024-01-01_10:00:00",
        "  host      : node7",
        "  rank      : 3 (local_rank: 3)",
        "  exitcode  : 1 (pid: 4711)",
    ])  # fmt: skip
    found = diagnose_text(text).findings[0]
    assert (found.symptom, found.ranks) == ("D.1.8", [3])


def test_numbers_of_a_list_are_not_taken_for_ranks() -> None:
    lines = separate(enumerate(["My steps:", "1: start", "then it hangs", "and I wait"], start=1))
    assert [line.rank for line in lines] == [None] * 4


def test_without_a_rank_the_line_of_the_user_is_evidence() -> None:
    found = diagnose_text("\n".join(TRACEBACK)).findings[0]
    assert found.places == {}
    place = facts(found)["raised-at"].place
    assert place is not None
    assert place.line == 31


def test_a_log_is_read_from_a_path_and_from_a_stream(tmp_path: Path) -> None:
    text = "\n".join(TRACEBACK)
    path = tmp_path / "job.log"
    path.write_text(text)
    assert diagnose_log(path) == diagnose_log(io.BytesIO(text.encode())) == diagnose_text(text)


def _log(middle: list[str], noise: str = "step {} of the training, loss 0.3", lines: int = 60_000):
    quiet = [noise.format(number) for number in range(lines)]
    text = [*quiet[: lines // 2], *middle, *quiet[lines // 2 :]]
    return io.BytesIO("\n".join(text).encode()), lines // 2 + len(middle)


@pytest.mark.parametrize(
    "noise",
    [
        "step {} of the training, loss 0.3",
        "WARNING: error {} was skipped, timeout expected",
        "50% |#####| {}\r51% |#####| error\r",
    ],
)
def test_an_error_in_the_middle_of_a_long_log_is_found_with_its_line(noise: str) -> None:
    stream, line = _log(TRACEBACK, noise)
    read = digest.read(stream)
    assert len(read.lines) < 2000
    assert (line, TRACEBACK[-1]) in read.lines
    assert read.total == 60_000 + len(TRACEBACK)
    found = diagnose_log(io.BytesIO(stream.getvalue())).findings[0]
    assert found.symptom == "D.1.5"


def test_a_traceback_across_two_blocks_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, line = _log(TRACEBACK, lines=2000)
    for block in range(3000, 3100, 7):
        monkeypatch.setattr(digest, "_BLOCK", block)
        stream.seek(0)
        kept = dict(digest.read(stream).lines)
        assert [kept.get(line - 5 + offset) for offset in range(6)] == TRACEBACK


@pytest.mark.parametrize("size", [0, 1, 100, 5_000_000])
def test_a_log_that_is_one_very_long_line(size: int) -> None:
    read = digest.read(io.BytesIO(b"x" * size))
    assert sum(len(text) for _, text in read.lines) <= 10_000


def test_thousands_of_tracebacks_are_not_all_kept() -> None:
    read = digest.read(io.BytesIO("\n".join(TRACEBACK * 5000).encode()))
    assert len(read.lines) < 3000


def test_bytes_that_are_not_text_are_tolerated() -> None:
    assert diagnose_log(io.BytesIO(bytes(range(256)) * 100)).ok is False


@pytest.mark.parametrize("tag", ["[rank0]: ", "12:00:31 "])
def test_the_first_error_of_a_log_is_the_cause(tag: str) -> None:
    first, later = "RuntimeError: CUDA out of memory", "Segmentation fault (core dumped)"
    steps = [f"step {number} loss 0.3" for number in range(10)]
    for lines, symptom in (([first, later], "D.1.2"), ([later, first], "D.1.7")):
        text = "\n".join(f"{tag}{line}" for line in (*steps, lines[0], *steps, lines[1]))
        assert diagnose_text(text).findings[0].symptom == symptom


def test_the_questions_of_a_form_for_bug_reports_are_not_the_problem() -> None:
    form = (
        "1. Framework: (TensorFlow, Keras, PyTorch, MXNet)\n"
        "If your question is about hang, did you read this doc?\n"
        "If your question is about docker, did you read this doc?\n"
        "- [x] I have searched for jobs that hang during training\n"
    )
    said = "the loss of our two GPUs is not the same"
    assert diagnose_text(form + said).findings == diagnose_text("\n" * 4 + said).findings


def test_a_rate_in_each_progress_line_of_a_log_is_no_complaint():
    lines = [f"[rank0] step {n} loss 1.0 tokens/s {410 + n}" for n in range(20)]
    found = diagnose_text("\n".join([*lines, "[rank0]: StopIteration"])).findings
    assert "D.2.3" not in [finding.symptom for finding in found]
    said = "Training on 2 GPUs gives 400 tokens/s, on one it was 700"
    assert diagnose_text(said).findings[0].symptom == "D.2.3"


HEALTHY = [
    "\n".join(f"Epoch {n}/30 loss {1 / n:.3f} accuracy 0.9 12 s per epoch" for n in range(1, 40)),
    "\n".join(f"[1,{n % 4}]<stdout>: step {n} loss 0.1 img/sec 430.2" for n in range(100)),
    "Collecting torch\nSuccessfully installed torch-2.13.0 horovod-0.28.1",
    "\n".join([
        "W0101 torch/distributed/run.py:766] Setting OMP_NUM_THREADS environment variable to 1",
        "[rank0]: initializing process group (nccl), world size 4",
        "node1:14:66 [0] NCCL INFO Using network Socket",
        "[rank0]: downloading dataset MNIST, done",
        "[rank1]: epoch 1 step 100 loss 0.3390 lr 0.001 810 tokens/s",
        "[rank0]: validation accuracy 0.912, saved checkpoint to ckpt/epoch1.pt",
        "[rank0]: training finished in 312 s",
    ]),
    "\n".join([
        f"node1:14:66 [{n}] NCCL INFO ncclCommInitRank comm 0x5a{n} rank {n} nranks 4 cudaDev {n} "
        f"busId {n}000 commId 0x1d03b9 - Init COMPLETE\n[rank{n}]: step 1 loss 0.3"
        for n in range(4)
    ]),
]  # fmt: skip


#: A log of one process, which could be a person's text.
PRINTED = """
Distributed environment: MULTI_GPU  Backend: nccl
Num processes: 4, mixed precision: fp16, gradient accumulation steps: 4
train: 12000 samples, 750 batches per rank; validation: 800 samples
learning rate warm-up for 100 steps, then a cosine schedule, max grad norm 1.0
EarlyStopping: patience 3, metric val_loss improved to 0.41
step 10 loss 1.2 grad_norm 0.9 learning_rate 0.0 epoch 0.1
gradient overflow, skipping step, loss scale is 32768 now
accuracy of 800 validation samples over 4 ranks: 0.91
"""


@pytest.mark.parametrize("text", [*HEALTHY, PRINTED])
def test_what_a_healthy_run_prints_describes_no_problem(text: str) -> None:
    described = [entry for entry in messages() if entry.kind == "complaint"]
    assert described
    assert [entry.id for entry in described if entry.find(text.lower())] == []


@pytest.mark.parametrize("text", HEALTHY)
def test_the_log_of_a_healthy_run_is_not_accused(text: str) -> None:
    report = diagnose_text(text)
    assert report.findings == []
    assert report.hints == []


def _torchrun(lines: list[str], rank: int, code: int) -> str:
    """What torchrun prints when a rank fails and it ends the other one."""
    other = 1 - rank
    return "\n".join([
        *lines,
        f"W1120 multiprocessing/api.py:1028] Sending process 4{other} closing signal SIGTERM",
        f"E1120 elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: {rank}",
        "Traceback (most recent call last):",
        '  File "/usr/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "train.py FAILED",
        "Failures:",
        "[1]:",
        f"  rank      : {other} (local_rank: {other})",
        "  exitcode  : -15 (pid: 41)  (SIGTERM)",
        "  traceback : Signal 15 (SIGTERM) received by PID 41",
        "Root Cause (first observed failure):",
        "[0]:",
        f"  rank      : {rank} (local_rank: {rank})",
        f"  exitcode  : {code} (pid: 42)",
    ])  # fmt: skip


def test_the_signal_that_the_launcher_sends_is_not_a_cause() -> None:
    lines = [f"[rank0]: {line}" for line in PEER]
    found = diagnose_text(_torchrun(lines, 1, -11)).findings[0]
    assert (found.symptom, found.ranks) == ("D.1.7", [1])


def test_a_rank_that_was_killed_is_named() -> None:
    lines = [f"[rank0]: {line}" for line in PEER]
    found = diagnose_text(_torchrun(lines, 1, -9)).findings[0]
    assert (found.cause, found.ranks) == ("killed-from-outside", [1])


def test_a_time_out_names_the_waiting_ranks_and_accuses_none() -> None:
    lines = [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/srv/train.py", line 33, in <module>',
        "[rank0]:     dist.all_reduce(t)",
        "[rank0]: RuntimeError: [unbound_buffer.cc:78] Timed out waiting 8000ms for recv operation",
    ]
    found = diagnose_text(_torchrun(lines, 0, 1)).findings[0]
    assert (found.symptom, found.cause) == ("D.2.1", None)
    assert (found.ranks, found.waiting) == ([], [0])


def test_a_file_that_is_no_log_is_not_accused() -> None:
    """Random bytes contain short words, such as ``oom``, by chance."""
    report = diagnose_log(io.BytesIO(random.Random(0).randbytes(4_000_000)))
    assert report.findings == []


def test_the_first_error_of_a_build_is_found() -> None:
    text = "\n".join([
        "Collecting horovod",
        "  Downloading horovod-0.28.1.tar.gz (3.5 MB)",
        "Building wheels for collected packages: horovod",
        "  Building wheel for horovod (setup.py): started",
        "  error: subprocess-exited-with-error",
        "  [ 12%] Building CXX object horovod/torch/mpi_ops.cc.o",
        "  /tmp/x/adapter.h:19:10: fatal error: torch/torch.h: No such file or directory",
        "  compilation terminated.",
        "  gmake[2]: *** [horovod/torch/mpi_ops.cc.o] Error 1",
        "  ERROR: Failed building wheel for horovod",
        "ImportError: no module named horovod",
    ])  # fmt: skip
    found = diagnose_text(text).findings[0]
    assert (found.symptom, found.confidence) == ("A.1", "certain")
    assert any("horovod" in fix.advice.lower() for fix in found.fixes)


# A pattern that takes quadratic time does not end within this limit on any machine.
@pytest.mark.timeout(120)
@pytest.mark.parametrize("word", ["parallel", "a.b.", "hang ", "x: ", "/tmp/", "[", "error "])
def test_a_long_line_of_one_word_takes_no_quadratic_time(word: str) -> None:
    assert not diagnose_text(word * (60_000 // len(word))).ok


STOPPED = [
    "[ddt-notebook] the job is stopped, since it hangs",
    "Traceback (most recent call last):",
    '  File "/srv/bin/torchrun", line 8, in <module>',
    "    sys.exit(main())",
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 16 got signal: 15",
    "[ddt-notebook] 2 ranks, 78 calls recorded, 1 finding; %ddt_load /srv/my job opens the record",
]


@pytest.mark.parametrize("filler", [0, 40_000])
def test_a_report_of_ddt_notebook_in_a_log_is_the_answer_and_no_evidence(filler: int) -> None:
    source = "if rank == 0:\n    dist.all_reduce(x)\n"
    ended = builders.rank(1, all_reduce(1), position=at(2))
    waiter = builders.rank(0, all_reduce(1), all_reduce(2), blocked=True)
    hung = snapshot(waiter, ended, source=source, outcome="hung")
    before = diagnose(hung)
    printed = show(before, hung).to_text().splitlines()
    assert any(line.lstrip().startswith("#") for line in printed)  # the picture of the lanes
    steps = [f"step {n} loss 0.1" for n in range(filler)]
    text = "\n".join([*steps, "epoch 3", "", *printed, *steps, "", *STOPPED])
    alone = diagnose_text("\n".join(["epoch 3", *STOPPED[1:-1]]))
    assert alone.findings[0].symptom == "D.1.11"  # what the end of the job looks like by itself
    report = diagnose_text(text)
    (found,) = report.findings
    (known,) = before.findings
    assert (found.symptom, found.title, found.cause) == (known.symptom, known.title, known.cause)
    assert found.fixes == known.fixes
    number = len(steps) + 3
    opened = fact(found, "reported-before").values
    assert (opened["number"], opened["folder"]) == (number, "/srv/my job")
    quoted = " ".join(one.values["text"] for one in found.facts if one.kind == "line-of-text")
    assert "cell[3] line 2" in quoted
    assert "#" not in quoted
    assert not report.hints


def test_a_certain_failure_after_the_report_is_shown_too() -> None:
    report = "hang D.2.1 · training & evaluation · likely\n  rank 0 never entered all_reduce #4\n"
    tagged = [f"[rank1]: {line}" for line in TRACEBACK]
    found = diagnose_text("\n".join([report, *tagged])).findings
    assert [one.symptom for one in found] == ["D.2.1", "D.1.5"]


@pytest.mark.parametrize(
    "line", ["hang Z.2.1 · training & evaluation · certain", "this is · certain", "D.2.1 · certain"]
)
def test_a_line_that_only_looks_like_a_report_is_a_line_of_the_log(line: str) -> None:
    tagged = [f"[rank1]: {line}" for line in TRACEBACK]
    found = diagnose_text("\n".join([line, *tagged])).findings
    assert found[0].symptom == "D.1.5"
    assert all(one.kind != "reported-before" for one in found)
