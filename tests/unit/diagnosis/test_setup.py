"""Ranks that do not find each other, and healthy programs that look similar."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.errors import classify
from ddt_notebook.model import Finding, RankError, RankReport, Rendezvous, Snapshot

from .builders import at, call, fact, only, raised, rank, snapshot

HERE = "127.0.0.1:29500"
TAKEN = RankError(type="DistNetworkError", message="failed to listen ... EADDRINUSE", call=0)


def joining(number: int, *, waits: bool = True, **said: Any) -> RankReport:
    """A rank of the session in ``init_process_group``; by default with the right arguments."""
    meeting = Rendezvous(**{"address": HERE, "rank": number, "world_size": 2, **said})
    return rank(
        number,
        call("init_process_group", rendezvous=meeting, entered_s=1.0 + number),
        blocked=waits,
    )


def failing(number: int, error: RankError = TAKEN, **said: Any) -> RankReport:
    meeting = Rendezvous(**{"address": HERE, "rank": number, "world_size": 2, **said})
    one = call("init_process_group", rendezvous=meeting, status="failed", entered_s=1.0)
    return raised(number, one, error=error)


def hung(*ranks: RankReport) -> Snapshot:
    return snapshot(*ranks, outcome="hung")


def found(*ranks: RankReport) -> Finding:
    return only(diagnose(hung(*ranks)))


def test_two_ranks_with_the_same_number_are_reported():
    finding = found(joining(0), joining(1, rank=0))
    assert (finding.symptom, finding.cause) == ("B.2", "rank-number-repeated")
    assert (finding.ranks, finding.waiting) == ([1], [0])
    assert finding.kind == "rank-number-repeated"
    assert (finding.values["joined_alike"], finding.values["missing"]) == ((0, 1), (1,))
    assert fact(finding, "joined").values == {"as_rank": 0, "world_size": 2, "address": HERE}


def test_the_second_rank_0_finds_the_port_taken():
    finding = found(joining(0), failing(1, rank=0))
    assert (finding.symptom, finding.cause, finding.ranks) == ("B.1", "rank-number-repeated", [1])


def test_ranks_whose_wait_timed_out_count_as_hung():
    late = RankError(type="DistStoreError", message="wait timeout after 3000ms, keys: /0", call=0)
    finding = found(failing(0, late), failing(1, late, rank=0))
    assert (finding.symptom, finding.ranks, finding.waiting) == ("B.2", [1], [0])


def test_a_port_that_another_program_uses_is_reported():
    finding = found(failing(0), joining(1))
    assert (finding.cause, finding.ranks, finding.waiting) == ("port-in-use", [0], [1])


@pytest.mark.parametrize(
    ("sizes", "culprits"),
    [((2, 3, 3), [0]), ((3, 3, 4), [2]), ((3, 6, 6), [1, 2]), ((4, 4, 8), [2])],
)
def test_different_world_sizes_are_reported(sizes: tuple[int, ...], culprits: list[int]):
    ranks = [joining(number, world_size=size) for number, size in enumerate(sizes)]
    finding = only(diagnose(hung(*ranks)))
    assert (finding.cause, finding.ranks) == ("world-size-differs", culprits)


def test_of_equally_frequent_world_sizes_the_sessions_is_right():
    finding = found(joining(0, world_size=2), joining(1, world_size=4))
    assert (finding.ranks, finding.waiting) == ([1], [0])


def test_a_group_of_the_wrong_size_is_found_though_it_forms():
    ranks = [joining(0, waits=False), joining(1, waits=False), joining(2, rank=2, world_size=4)]
    assert only(diagnose(hung(*ranks))).cause == "world-size-differs"
    ranks[2] = joining(2, world_size=4, waits=False)
    assert only(diagnose(snapshot(*ranks))).cause == "world-size-differs"


def test_ranks_that_count_from_1_are_reported():
    finding = found(joining(0, rank=1), joining(1, rank=2))
    assert (finding.cause, finding.ranks) == ("rank-outside-world", [1])


def test_different_addresses_are_reported():
    finding = found(joining(0), joining(1, address="127.0.0.1:4711"))
    assert (finding.cause, finding.ranks, finding.waiting) == ("rendezvous-differs", [1], [0])
    assert (finding.values["address"], finding.values["others_address"]) == ("127.0.0.1:4711", HERE)


def test_a_file_of_an_earlier_run_is_reported():
    place = {"address": "file:///tmp/meeting"}
    finding = found(joining(0, left_over=True, **place), joining(1, left_over=True, **place))
    assert (finding.cause, finding.confidence) == ("rendezvous-file-left-over", "likely")


def test_a_file_that_a_peer_has_just_written_is_not_reported():
    place = {"address": "file:///tmp/meeting"}
    report = diagnose(hung(joining(0, **place), joining(1, left_over=True, **place)))
    assert "rendezvous-file-left-over" not in [finding.cause for finding in report.findings]


def test_an_address_that_does_not_answer_is_reported():
    there = {"address": "192.0.2.1:29500"}
    finding = found(joining(0, **there), joining(1, **there))
    assert (finding.cause, finding.confidence) == ("master-unreachable", "likely")
    assert finding.ranks == [0, 1]


def test_a_missing_rank_does_not_count_as_different_settings():
    finding = found(joining(0, world_size=3), joining(1, world_size=3), rank(2))
    assert (finding.cause, finding.ranks) == ("rank-missing-at-setup", [2])


def test_the_first_failure_is_reported_and_not_what_follows():
    error = RankError(type="ValueError", message="environment variable RANK expected, but not set")
    finding = found(joining(0), failing(1, error, address="", rank=None))
    assert (finding.cause, finding.ranks, finding.waiting) == ("environment-not-set", [1], [0])


@pytest.mark.parametrize(
    "ranks",
    [
        [joining(0, rank=1, waits=False), joining(1, rank=0, waits=False)],
        [joining(r, rank=0, world_size=1, waits=False) for r in range(2)],
        [
            joining(r, address=f"127.0.0.1:{29500 + r // 2}", rank=r % 2, waits=False)
            for r in range(4)
        ],
        [
            *(joining(r, waits=False) for r in range(2)),
            joining(2, rank=0, world_size=1, waits=False),
        ],
        [joining(r, address="node-7:29500", waits=False) for r in range(2)],
    ],
    ids=["numbered otherwise", "each alone", "two groups", "one beside", "by name"],
)  # fmt: skip
def test_groups_that_form_give_no_finding(ranks: list[RankReport]):
    assert diagnose(snapshot(*ranks)).ok


def test_a_failed_attempt_that_the_user_handles_is_not_a_finding():
    tried = [
        rank(r, call("init_process_group", rendezvous=Rendezvous(
            address="192.0.2.1:29500", rank=r, world_size=2), status="failed"))
        for r in range(2)
    ]  # fmt: skip
    assert diagnose(snapshot(*tried)).ok


def _error(kind: str, message: str, *files: str) -> RankError:
    frames = tuple(
        at(2) if file == "cell" else at(2).__class__(file=file, line=1) for file in files
    )
    return RankError(type=kind, message=message, frames=frames, where=at(2))


TORCH = "/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py"


@pytest.mark.parametrize(
    ("error", "symptom", "cause"),
    [
        (_error("CalledProcessError", "Command 'pip install x' returned non-zero exit status 1.\n"
                "ERROR: Could not find a version that satisfies the requirement torch<1.5"),
         "A.1", "requirement-not-met"),
        (_error("CalledProcessError", "Command '[...]' ...\nERROR: x-1-cp39-cp39-win32.whl is not "
                "a supported wheel on this platform."), "A.1", "wheel-not-supported"),
        (_error("CalledProcessError", "Command '[...]' ...\nERROR: Failed building wheel for apex"),
         "A.1", "build-failed"),
        (_error("RuntimeError", "Error building extension 'x': [1/2] g++ ...\nmain.cpp:1:1: error"),
         "A.1", "build-failed"),
        (_error("RuntimeError", "Error building extension 'x': [1/2]\n/bin/sh: 1: nvcc: not found"),
         "A.1", "toolchain-missing"),
        (_error("OSError", "CUDA_HOME environment variable is not set."), "A.1",
         "toolchain-missing"),
        (_error("CalledProcessError", "Command 'pip install x' returned non-zero exit status 2."),
         "A.1", "install-failed"),
        (_error("ModuleNotFoundError", "No module named 'apex'"), "A.2", "module-not-found"),
        (_error("ModuleNotFoundError", "No module named 'torch._six'"), "A.2", "package-version"),
        (_error("ModuleNotFoundError", "No module named 'hta.x'; 'hta' is not a package\n"
                "'hta' was loaded from /project/hta.py"), "A.2", "module-shadowed"),
        (_error("ModuleNotFoundError", "No module named 'os.x'; 'os' is not a package\n"
                "'os' was loaded from /usr/lib/python3.11/os.py"), "A.2", "package-version"),
        (_error("ImportError", "cannot import name 'mean' from 'statistics' (/p/statistics.py)"),
         "A.2", "module-shadowed"),
        (_error("ImportError", "cannot import name 'a' from 'os' (/usr/lib/python3.11/os.py)"),
         "A.2", "import-error"),
        (_error("ImportError", "cannot import name 'Net' from partially initialized module 'nets' "
                "(most likely due to a circular import) (/project/nets.py)"), "A.2",
         "circular-import"),
        (_error("AttributeError", "partially initialized module 'random' has no attribute 'seed' "
                "(most likely due to a circular import)"), "A.2", "module-shadowed"),
        (_error("ImportError", "cannot import name 'X' from 'torch.nn' "
                "(/venv/lib/python3.11/site-packages/torch/nn/__init__.py)"), "A.2",
         "package-version"),
        (_error("OSError", "libcudart.so.10.1: cannot open shared object file: No such file or "
                "directory"), "A.2", "shared-library"),
        (_error("ImportError", "/x/amp_C.so: undefined symbol: _ZN3c104impl3cow"), "A.2",
         "shared-library"),
        (_error("ValueError", "Error initializing torch.distributed using tcp:// rendezvous: rank "
                "parameter missing", "cell", TORCH), "B.1", "init-method-incomplete"),
        (_error("RuntimeError", "[enforce fail at gloo/context.cc:23] rank < size. 2 vs 2"), "B.1",
         "rank-outside-world"),
        (_error("PackageNotFoundError", "No package metadata was found for apex"), "A.2",
         "module-not-found"),
        (_error("ProcessExitedException", "process 0 terminated with exit code 1"), "B.1",
         "spawn-in-a-cell"),
        (_error("RuntimeError", "No backend type associated with device type cpu"), "B.3",
         "device-without-backend"),
    ],
)  # fmt: skip
def test_errors_of_packages_and_setup_have_a_symptom(error: RankError, symptom: str, cause: str):
    meaning = classify(error)
    assert (meaning.symptom, meaning.cause) == (symptom, cause)


#: What pip 23.2 prints if setup.py raises, with a shortened traceback.
_PIP_PRINTED = """\
  error: subprocess-exited-with-error

  × Preparing metadata (pyproject.toml) did not run successfully.
  │ exit code: 1
  ╰─> [26 lines of output]
      Traceback (most recent call last):
        File "<string>", line 9, in <module>
        File "torch/utils/cpp_extension.py", line 3302, in _join_cuda_home
          raise OSError('CUDA_HOME environment variable is not set. '
      OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.
      [end of output]

  note: This error originates from a subprocess, and is likely not a problem with pip.
error: metadata-generation-failed

× Encountered error while generating package metadata.
╰─> See above for output.

note: This is an issue with the package mentioned above, not pip.
hint: See above for details."""


def test_a_failed_build_is_described_by_its_own_error_and_not_by_pips_words():
    error = _error("CalledProcessError", f"Command 'pip' returned 1.\n{_PIP_PRINTED}")
    finding = only(diagnose(snapshot(raised(0, error=error))))
    said = "CUDA_HOME environment variable is not set. Please set it to your CUDA install root."
    cause = f"OSError: {said}"
    assert (finding.cause, finding.values["message"]) == ("toolchain-missing", cause)
    printed = [fact.values["line"] for fact in finding.facts if fact.kind == "command-printed"]
    assert printed == [cause]


@pytest.mark.parametrize(
    "error",
    [
        _error("OSError", "[Errno 98] Address already in use"),
        _error("CalledProcessError", "Command 'make data' returned non-zero exit status 2."),
        _error("FileNotFoundError", "[Errno 2] No such file or directory: 'libx.so'"),
        _error("ValueError", "invalid literal for int() with base 10: 'x'"),
        _error("AttributeError", "'Config' object has no attribute 'pip'"),
    ],
)
def test_errors_that_belong_to_neither_packages_nor_setup(error: RankError):
    assert classify(error).symptom[0] not in "AB"


@pytest.mark.parametrize("came", [True, False])
def test_a_rank_that_aborts_where_ranks_meet_has_met_nobody(came: bool) -> None:
    """So Horovod ends after its time limit; a rank that met all others has another fault."""
    init = call("hvd.init", 2, kind="setup", members=(0, 1), status="pending")
    scene = snapshot(
        rank(0, init, state="died", exit_signal=signal.SIGABRT),
        rank(1, *[init] * came, state="finished"),
        source="prepare()\nhvd.init()",
        outcome="failed",
    )
    finding = only(diagnose(scene))
    if came:
        assert (finding.kind, finding.ranks) == ("died", [0])
    else:
        assert (finding.symptom, finding.cause) == ("B.2", "rank-missing-at-setup")
        assert (finding.ranks, finding.waiting) == ([1], [0])
