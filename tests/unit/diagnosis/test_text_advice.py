"""The advice for a text: in the words of its framework, and for the versions that it shows."""

from __future__ import annotations

import re
import tomllib
from importlib import resources

import pytest

from ddt_notebook.diagnosis.advice import fixes
from ddt_notebook.diagnosis.text import advising, diagnose_text, frameworks
from ddt_notebook.messages import message
from ddt_notebook.symptoms import loader as taxonomy

#: Descriptions in a user's words, for the symptoms that are most frequent in the study.
SAID = {
    "A.1": "pip fails to build {}: Failed building wheel",
    "A.2": "ModuleNotFoundError: No module named 'x_kernels', while {} is imported",
    "B.1": "{}: ssh: Could not resolve hostname worker-1: Name or service not known",
    "B.2": "{} gets stuck when the process group is formed on two machines, and times out",
    "D.1.2": "{}: CUDA out of memory. Tried to allocate 2.00 GiB",
    "D.2.1": "training with {} hangs after 300 steps, all GPUs at 100 %",
    "D.2.3": "{}: two GPUs are slower than one: the throughput drops",
}
FRAMEWORKS = ("horovod", "tensorflow", "keras", "deepspeed", "megatron", "colossalai")
#: No advice of the framework itself is known to be right; the general advice holds.
GENERAL = {("colossalai", "B.2"), ("megatron", "D.2.1")}


def table(name: str) -> dict[str, list[dict[str, str]]]:
    file = resources.files("ddt_notebook.diagnosis.text").joinpath("advice", f"{name}.toml")
    return tomllib.loads(file.read_text(encoding="utf-8"))


def own(framework: str) -> set[str]:
    """All advice for a framework, for Keras that for TensorFlow, too."""
    names = [framework, "tensorflow"] if framework == "keras" else [framework]
    return {e["advice"] for name in names for entries in table(name).values() for e in entries}


@pytest.mark.parametrize("symptom", SAID)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_frequent_symptoms_have_advice_for_each_framework(framework: str, symptom: str) -> None:
    title = "colossalai" if framework == "colossalai" else frameworks.title(framework)
    report = diagnose_text(SAID[symptom].format(title))
    found = next(finding for finding in report.findings if finding.symptom == symptom)
    advised = {fix.advice for fix in found.fixes} & own(framework)
    assert bool(advised) != ((framework, symptom) in GENERAL), found.fixes


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_no_advice_has_words_of_another_framework(framework: str) -> None:
    others = r"\bhvd\.|HOROVOD_" if framework != "horovod" else r"DEEPSPEED_|ZeRO|TF_CONFIG"
    for entries in table(framework).values():
        assert not [e["advice"] for e in entries if re.search(others, e["advice"])]


@pytest.mark.parametrize("name", ["general", *FRAMEWORKS])
def test_advice_has_a_symptom_and_one_of_the_study_s_patterns(name: str) -> None:
    codes = {symptom.code for symptom in taxonomy.symptoms()}
    for code, entries in table(name).items():
        assert code in codes
        patterns = [entry["pattern"] for entry in entries]
        assert len(set(patterns)) == len(patterns), (name, code)
        assert set(patterns) <= set(taxonomy.fix_patterns())


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("deepspeed: ModuleNotFoundError: No module named 'torch._six'", "torch 2.0 removed"),
        ("train.py: error: unrecognized arguments: --local-rank=0", "read LOCAL_RANK"),
        ("UnpicklingError: Weights only load failed. This file", "since torch 2.6"),
        ("hvd: module 'tensorflow' has no attribute 'ConfigProto'", "tf.compat.v1"),
        ("ImportError: cannot import name 'multi_gpu_model' from 'keras.utils'", "Mirrored"),
        ("ImportError: libtorch_cuda.so: undefined symbol: ncclCommRegister", "2.19"),
        (
            "ImportError: libcudart.so.10.0: cannot open shared object file\nNative TensorFlow",
            "1.13 to 2.0",
        ),
        ("ModuleNotFoundError: No module named 'megatron.training'", "PYTHONPATH"),
        ("ModuleNotFoundError: No module named 'megatron.mpu'", "megatron.core import mpu"),
        (
            "colossalai: launch_from_torch() got an unexpected keyword argument 'config'",
            "take no config",
        ),
        ("AttributeError: module 'colossalai' has no attribute 'initialize'", "legacy"),
        ("RuntimeError: CUDA error: no kernel image is available for execution", "sm_90"),
        (
            "compiled using NumPy 1.x cannot be run in\nImportError: numpy.core.multiarray",
            "numpy<2",
        ),
        (
            "RuntimeError: hvd.broadcast_global_variables() does not support eager execution.",
            "hvd.broadcast_variables",
        ),
        (
            "deepspeed CUDAMismatchException: Installed CUDA version 11.5 does not match",
            "DS_SKIP_CUDA_CHECK",
        ),
        ("module 'torch.distributed' has no attribute 'all_gather_into_tensor'", "1.13"),
        ("cannot import name 'fully_shard' from 'torch.distributed.fsdp'", "torch 2.6"),
        ("ModuleNotFoundError: No module named 'torch.distributed.tensor'", "torch 2.5"),
        ("cannot import name 'init_device_mesh' from 'torch.distributed'", "torch 2.2"),
        ("horovod: ModuleNotFoundError: No module named 'distutils'", "Python 3.12"),
    ],
)
def test_advice_about_a_name_that_moved_comes_first(text: str, advice: str) -> None:
    assert advice in diagnose_text(text).findings[0].fixes[0].advice


def test_every_advice_by_version_can_be_given() -> None:
    for entry in advising._versions():
        codes = {symptom.code for symptom in taxonomy.symptoms()}
        assert entry.symptoms <= codes
        assert entry.frameworks <= {*FRAMEWORKS, "pytorch"}
        assert entry.pattern in taxonomy.fix_patterns()


def test_a_version_is_not_blamed_without_its_words() -> None:
    plain = diagnose_text("ImportError: libcudart.so.10.0: cannot open shared object file")
    assert "TensorFlow" not in plain.findings[0].fixes[0].advice


def test_an_observed_error_shows_the_card_s_other_ways_after_the_message_s() -> None:
    entry = message("c10d-environment")
    own = [text for _, text in entry.fixes]
    shown = [fix.advice for fix in fixes(entry.symptoms[0], entry.card, message=entry.id)]
    assert shown[: len(own)] == own
    assert any("mpirun and ssh" in text for text in shown[len(own) :])
    patterns = [fix.pattern for fix in fixes(entry.symptoms[0], entry.card, message=entry.id)]
    assert not {pattern for pattern, _ in entry.fixes} & {*patterns[len(own) :]}
    # The advice of a card names the call.
    shape = message("accelerate-shape-mismatch")
    named = fixes(shape.symptoms[0], shape.card, "all_reduce", message=shape.id)
    assert any("give all_reduce tensors" in fix.advice for fix in named)
