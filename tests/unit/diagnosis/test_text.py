"""Diagnosis of pasted texts: every kind of message that the frameworks are known for."""

from __future__ import annotations

import pytest

from ddt_notebook import faults
from ddt_notebook.diagnosis.advice import causes
from ddt_notebook.diagnosis.text import diagnose_text, learned, nearest
from ddt_notebook.messages import clues, messages
from ddt_notebook.messages import message as entry
from ddt_notebook.symptoms import loader as taxonomy

from .builders import facts

#: A symptom, and a message or a complaint as users post it.
KNOWN = [
    # A · package build & import
    ("A.1", "ERROR: Failed building wheel for mpi4py"),
    ("A.1", "CMake Error at CMakeLists.txt:12 (find_package): Could not find NCCL"),
    ("A.1", "error: command '/usr/bin/nvcc' failed with exit code 1\nninja: build stopped"),
    ("A.1", "csrc/adam.cpp:4:10: fatal error: cuda_runtime.h: No such file or directory"),
    ("A.1", "I cannot install apex, pip install ends with an error"),
    ("A.1", "RuntimeError: Error building extension 'fused_adam'"),
    ("A.1", "ERROR: Could not find a version that satisfies the requirement torch==1.4"),
    ("A.2", "ModuleNotFoundError: No module named 'flash_attn'"),
    ("A.2", "ImportError: libcudart.so.11.0: cannot open shared object file: No such file"),
    ("A.2", "ImportError: cannot import name 'LlamaConfig' from 'transformers'"),
    ("A.2", "ImportError: /x/_C.so: undefined symbol: _ZN3c105ErrorC2E"),
    ("A.2", "ImportError: Extension horovod.torch has not been built"),
    # B · communication setup
    ("B.1", "RuntimeError: The server socket has failed to listen: Address already in use"),
    ("B.1", "There are not enough slots available in the system to satisfy the 8 slots"),
    ("B.1", "ORTE was unable to reliably start one or more daemons."),
    ("B.1", "ssh: Could not resolve hostname worker-1: Name or service not known"),
    ("B.1", "ValueError: Error initializing: environment variable RANK expected, but not set"),
    ("B.1", "AssertionError: tensor model parallel group is already initialized"),
    ("B.1", "Permission denied (publickey). The launcher could not reach the second host"),
    ("B.2", "DistStoreError: Timed out after 901 seconds waiting for clients. 3/4 clients joined."),
    ("B.2", "init_process_group hangs on the second node and never returns"),
    ("B.2", "the job gets stuck in hvd.init() on two machines, there is no output"),
    ("B.2", "Horovod timed out waiting for tasks to start"),
    # C · data & model preparation
    ("C.1", 'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s): "a.weight"'),
    ("C.2", "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed."),
    ("C.4", "the processes hang when the model is wrapped in DistributedDataParallel"),
    ("C.5", "RuntimeError: CUDA error: invalid device ordinal"),
    ("C.6", "ValueError: DataLoader with IterableDataset: expected unspecified sampler option"),
    # D · training & evaluation
    ("D.1.1", "ncclUnhandledCudaError: Call to CUDA function failed, NCCL error in all_reduce"),
    ("D.1.1", "Mismatched allreduce tensor types: one rank sent float32, another float16"),
    ("D.1.2", "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB"),
    ("D.1.2", "OOM when allocating tensor with shape[64,512]; ResourceExhaustedError"),
    ("D.1.3", "Expected all tensors to be on the same device, found cuda:0 and cuda:1"),
    ("D.1.4", "RuntimeError: Expected to mark a variable ready only once."),
    ("D.1.5", "ValueError: Dimensions must be equal: incompatible shapes [8,10] vs. [4,10]"),
    ("D.1.6", "ModelCheckpoint fails to save the parallel model: can't save_model after fit"),
    ("D.1.7", "worker 3: Segmentation fault (core dumped)"),
    ("D.1.8", "AttributeError: 'DeepSpeedEngine' object has no attribute 'generate'"),
    ("D.1.9", "FileNotFoundError: [Errno 2] No such file or directory: 'ckpt/latest'"),
    ("D.1.10", "NotImplementedError: sparse gradients are not supported by this backend"),
    ("D.2.1", "training hangs after 300 steps, all GPUs at 100 %"),
    ("D.2.1", "WARNING: tensors were submitted by a subset of ranks. Missing ranks: 2"),
    ("D.2.1", "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, OpType=BARRIER)"),
    ("D.2.2", "all four processes run on the same GPU, the other devices are idle"),
    ("D.2.2", "hvd.size() returns 1 in every process"),
    ("D.2.3", "two GPUs are slower than one: the throughput drops"),
    ("D.2.4", "the loss that the ranks print is different, I expected the same value"),
    ("D.2.5", "with eight GPUs the model does not converge, the accuracy is worse"),
    # what may have killed it is Ray's own list of guesses
    ("D.1.11", ("The worker exits with error code 2. Some common causes include: (1) the "
     "process was killed by the OOM killer due to high memory usage, (2) ray stop --force")),
]  # fmt: skip


@pytest.mark.parametrize(("symptom", "text"), KNOWN)
def test_a_known_message_is_the_first_finding(symptom: str, text: str) -> None:
    found = diagnose_text(text).findings
    assert found, text
    assert found[0].symptom == symptom, [(f.symptom, f.title) for f in found]


@pytest.mark.parametrize("name", faults.card_ids())
def test_every_message_of_a_card_is_recognised(name: str) -> None:
    card = faults.card(name)
    for message in (*card.gloo, *card.nccl):
        found = {finding.symptom for finding in diagnose_text(message).findings}
        assert found & set(card.symptoms), (message, found)


def test_a_message_of_only_one_card_gives_its_cause() -> None:
    found = diagnose_text("DataLoader worker (pid(s) 4711) exited unexpectedly").findings
    assert found[0].cause == "dataloader-worker"


@pytest.mark.parametrize("text", ["", "\n\n", "hello", "please help me", "it is broken, see here"])
def test_a_text_without_information_is_not_classified(text: str) -> None:
    report = diagnose_text(text)
    assert report.findings == []
    assert not report.ok
    assert "look at" in report.checked


def test_the_words_that_decided_are_marked() -> None:
    found = diagnose_text("first line\nOSError: [Errno 98] Address already in use\n").findings[0]
    line = facts(found)["line-of-text"].values
    assert line == {"number": 2, "text": "OSError: [«Errno 98»] Address already in use"}


def test_an_alternative_is_less_likely_than_the_first_symptom() -> None:
    order = ["certain", "likely", "possible"]
    for _, text in KNOWN:
        levels = [order.index(finding.confidence) for finding in diagnose_text(text).findings]
        assert levels == sorted(levels), text
        assert levels.count(0) <= 1, text


def test_fixes_are_the_study_s_patterns_and_ranked_by_its_shares() -> None:
    found = diagnose_text("the training is slow").findings[0]
    shares = [fix.share for fix in found.fixes]
    assert shares == sorted(shares, reverse=True)
    patterns = {pattern.pattern for pattern in taxonomy.fixes(found.symptom)}
    assert {fix.pattern for fix in found.fixes} <= patterns


def test_every_symptom_that_a_text_can_have_says_what_to_change() -> None:
    for symptom, text in KNOWN:
        found = diagnose_text(text).findings[0]
        assert found.fixes, symptom
        assert all(fix.pattern in taxonomy.fix_patterns() for fix in found.fixes)


def test_advice_fits_the_framework_of_the_text() -> None:
    horovod = diagnose_text("horovod: all processes run on the same GPU").findings[0]
    torch = diagnose_text("torchrun: all processes run on the same GPU").findings[0]
    assert "hvd.local_rank()" in horovod.fixes[0].advice
    assert "hvd" not in torch.fixes[0].advice


def test_clues_name_causes_and_symptoms_that_exist() -> None:
    codes = {symptom.code for symptom in taxonomy.symptoms()}
    for clue in clues():
        assert set(clue.votes) <= codes, clue.says
        assert clue.cause is None or clue.cause in causes(), clue.says


def test_a_report_survives_json() -> None:
    report = diagnose_text("RuntimeError: CUDA out of memory")
    assert type(report).from_json(report.to_json()) == report


CAUSES = [
    ("device-ordinal", "RuntimeError: CUDA error: invalid device ordinal"),
    ("no-cuda", "AssertionError: Torch not compiled with CUDA enabled"),
    ("spawn-in-a-cell", "AttributeError: Can't get attribute 'f' on <module '__main__'>"),
    ("parameter-ready-twice", "RuntimeError: Expected to mark a variable ready only once."),
    ("port-in-use", "OSError: [Errno 98] Address already in use"),
    (None, "RuntimeError: Connection closed by peer [127.0.0.1]:4711"),
    (None, "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9"),
]


@pytest.mark.parametrize(("cause", "text"), CAUSES)
def test_a_cause_is_named_only_if_the_words_show_it(cause: str | None, text: str) -> None:
    assert diagnose_text(text).findings[0].cause == cause


#: What every traceback of a step with DDP has above its last line, and ``python -m`` below it.
FRAMES = """\
  File "train.py", line 30, in <module>
    loss.backward()
  File "torch/_tensor.py", line 623, in backward
    torch.autograd.backward(
  File "torch/autograd/__init__.py", line 395, in backward
    _engine_run_backward(
"""
LAUNCHER = '  File "<frozen runpy>", line 198, in _run_module_as_main\n'


def test_frames_of_libraries_show_no_symptom() -> None:
    lost = "RuntimeError: Connection closed by peer [127.0.0.1]:4711\n"
    report = diagnose_text("Traceback (most recent call last):\n" + FRAMES + lost + LAUNCHER)
    assert report.findings[0].symptom == "D.1.1"
    facts = [fact for finding in report.findings for fact in finding.evidence]
    assert not [fact for fact in facts if "«autograd" in fact or "«froze" in fact]


@pytest.mark.parametrize(
    ("confidence", "text"),
    [
        ("certain", "RuntimeError: use_libuv was requested but PyTorch was built without libuv"),
        # Raised in several stages, so the message alone does not name the symptom.
        ("likely", "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000"),
        # Only "others" in the study's words.
        ("likely", "ValueError: Cannot flatten integer dtype tensors"),
        # Many words that all say the same, but words of a person.
        ("likely", "It hangs, it is stuck, it freezes: a deadlock, and it never finishes."),
    ],
)
def test_only_an_error_that_means_one_thing_is_certain(confidence: str, text: str) -> None:
    assert diagnose_text(text).findings[0].confidence == confidence


@pytest.mark.parametrize(
    ("confidence", "text"),
    [
        # Neither the collective nor the spawned process is shown that needs the object.
        ("likely", "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7faa79e11550>"),
        # An error that nothing explains, and words that speak of something else.
        ("possible", "Training on two GPUs is slow and then ends.\nOddError: no such gearbox"),
    ],
)
def test_what_an_answer_rests_on_limits_its_confidence(confidence: str, text: str) -> None:
    assert diagnose_text(text).findings[0].confidence == confidence


def test_an_object_is_pickled_for_a_process_or_for_a_collective() -> None:
    lost = "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'"
    frame = '  File "torch/distributed/distributed_c10d.py", line 2890, in broadcast_object_list\n'
    assert diagnose_text(lost).findings[0].symptom == "B.1"
    assert diagnose_text(frame + lost).findings[0].symptom == "C.3"


def test_a_line_of_code_is_no_description() -> None:
    code = "    connection.set_protocol(file, protocol)  # slow, gpu 0 hangs"
    text = f'  File "train.py", line 60, in dump\n{code}\nValueError: unknown word'
    assert diagnose_text(text).findings[0].symptom == "D.1.11"


def test_a_batch_of_one_is_no_world_size_of_one() -> None:
    assert diagnose_text("DataLoader(dataset, batch_size=1)").findings == []
    assert diagnose_text("print(world_size) returns 1").findings[0].symptom == "D.2.2"


def test_a_report_without_an_error_hang_or_slowness_is_about_a_wrong_value() -> None:
    found = diagnose_text("Validation covers 16 tracks where there are 14 of them.").findings
    assert found[0].symptom == "D.2.4"
    assert found[0].confidence == "possible"


#: A problem in words that no pattern of the catalogue knows.
OTHER_WORDS = (
    "Tokens that are padding count when the mean over a micro-batch is formed, so the sum over "
    "micro-batches weighs short sequences more."
)


def test_a_description_in_other_words_has_the_advice_of_the_nearest_entry() -> None:
    found = diagnose_text(OTHER_WORDS).findings[0]
    assert (found.symptom, found.kind, found.confidence) == ("D.2.4", "words-fit", "possible")
    assert found.cause is None
    nearest = facts(found)["nearest-description"].values["means"]
    assert nearest == entry("local-mean-of-tokens").means
    assert entry("local-mean-of-tokens").fixes[0][1] in [fix.advice for fix in found.fixes]


@pytest.mark.parametrize(
    "text",
    [
        "We bake a cake with four eggs, a pound of flour and some butter, and leave it to cool.",
        "The train is late at every station of the line, and the passengers wait on each platform.",
        "[rank0]: " + OTHER_WORDS,
    ],
)
def test_only_a_person_s_words_about_training_are_near_to_an_entry(text: str) -> None:
    assert diagnose_text(text).findings == []


def test_words_that_say_little_each_tell_symptoms_apart() -> None:
    """No pattern knows these words; each of them was in reports of one symptom or another."""
    text = "trained on 8 gpus, the validation loss of the resumed run differs from epoch to epoch"
    votes, word = learned.votes(text)
    assert max(votes, key=lambda code: votes[code]).startswith("D.2")
    assert word in text
    assert learned.votes("zebra") == ({}, "")


def test_words_alone_are_no_finding() -> None:
    """The weights give every text a most likely symptom, also a text about something else."""
    text = "the conductor resumed the rehearsal with half of the orchestra and lost his memory"
    assert learned.votes(text)[0]
    assert learned.votes(f"{text} with horovodrun") == ({}, "")
    assert diagnose_text(text).findings == []


def test_a_described_problem_gets_the_advice_of_the_entries_near_to_it() -> None:
    text = (
        "With two graphics cards the copies drift apart: I call model.module.forward instead of "
        "the wrapper in our training step, and gradients are never averaged between processes."
    )
    found = diagnose_text(text).findings[0]
    near = nearest.advisers(text.lower(), messages())
    ours = {advice for entry in near for _, advice in entry.fixes[:1]}
    assert any(fix.advice in ours for fix in found.fixes)
    assert not {fix.advice for fix in diagnose_text(KNOWN[0][1]).findings[0].fixes} & ours
