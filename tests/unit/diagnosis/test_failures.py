"""Crashes, exceptions, and which of them follow from others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.errors import classify, is_peer_error
from ddt_notebook.model import Call, Position, RankError
from ddt_notebook.views.source_positions import of_finding

from .builders import (
    GLOO_PEER,
    GLOO_TIMEOUT,
    all_reduce,
    at,
    call,
    fact,
    only,
    peer_error,
    raised,
    rank,
    snapshot,
)


@pytest.mark.parametrize(
    ("ending", "symptom", "cause"),
    [
        ({"exit_signal": 11}, "D.1.7", "segmentation-fault"),
        ({"exit_signal": 6}, "D.1.7", "native-abort"),
        ({"exit_signal": 9}, "D.1.11", "killed-from-outside"),
        ({"exit_code": 1}, "D.1.11", "process-exit"),
    ],
)
def test_the_end_of_a_rank_has_a_cause(ending: dict[str, int], symptom: str, cause: str):
    finding = only(diagnose(snapshot(rank(0), rank(1, state="died", **ending), outcome="failed")))
    assert (finding.symptom, finding.cause, finding.ranks) == (symptom, cause, [1])


def test_a_peer_that_sent_another_size_explains_an_abort_in_gloo():
    text = (
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  "
        "[enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 72 vs 20. Received data "
        "size doesn't match expected size. Is there a distributed collective mismatch?"
    )
    dead = rank(1, state="died", exit_signal=6, abort_text=text)
    sent = all_reduce(shapes=((72,),), source="flight recorder")
    own = raised(0, sent, error=peer_error(0))
    finding = only(diagnose(snapshot(own, dead, outcome="failed")))
    assert (finding.cause, finding.ranks, finding.confidence) == (
        "different-collectives",
        [1],
        "likely",
    )
    assert fact(finding, "last-collective").values["shapes"] == ((72,),)
    unrelated = rank(1, state="died", exit_signal=6, abort_text=text.replace("size", "type"))
    assert only(diagnose(snapshot(own, unrelated, outcome="failed"))).cause == "native-abort"


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("for _ in range(steps + rank):\n    dist.all_reduce(x)\nsave(model)", "uneven-iterations"),
        ("for _ in range(6):\n    dist.all_reduce(x)\nsave(model)", "different-collectives"),
    ],
)
def test_a_loop_that_ended_early_explains_an_abort_in_gloo(source: str, cause: str):
    text = "gloo::EnforceNotMet Received data size doesn't match expected size."
    step = all_reduce(2)
    stack = 'Current thread 0x1 (most recent call first):\n  File "cell[3]", line 3 in <module>\n'
    dead = rank(
        1, step, state="died", exit_signal=6, abort_text=text, crash_text=stack, position=at(3)
    )
    own = raised(0, step, step, error=peer_error(1))
    finding = only(diagnose(snapshot(own, dead, outcome="failed", source=source)))
    assert (finding.cause, finding.ranks, finding.confidence) == (cause, [1], "likely")


def test_out_of_memory_needs_evidence():
    dead = rank(1, state="died", exit_signal=9, memory_bytes=2**30)
    note = "the kernel counted an out of memory kill in this cgroup"
    finding = only(diagnose(snapshot(rank(0), dead, outcome="failed", notes=(note,))))
    assert (finding.symptom, finding.confidence) == ("D.1.2", "likely")
    assert fact(finding, "note").values == {"note": note}
    assert fact(finding, "memory-held").values == {"memory_bytes": 2**30}


def test_faulthandler_names_the_line():
    text = 'Fatal Python error: Segmentation fault\n\n  File "cell[3]", line 4 in boom\n'
    dead = rank(1, state="died", exit_signal=11, crash_text=text, position=at(4))
    finding = only(diagnose(snapshot(rank(0), dead, outcome="failed")))
    frame = fact(finding, "crash-frame").place
    assert (frame.place, frame.function) == ("cell[3] line 4", "boom")


@pytest.mark.parametrize("last_seen", [None, at(2)])
def test_the_thread_that_crashed_counts(last_seen):
    text = (
        'Thread 0x1 (most recent call first):\n  File "connection.py", line 395 in _recv\n\n'
        'Current thread 0x2 (most recent call first):\n  File "ctypes.py", line 519 in string_at\n'
        '  File "cell[3]", line 6 in <module>\n'
    )
    dead = rank(1, state="died", exit_signal=11, crash_text=text, position=last_seen)
    finding = only(diagnose(snapshot(rank(0), dead, outcome="failed", source="\n" * 5 + "boom()")))
    assert (finding.kind, finding.values["signal"]) == ("died", 11)
    assert finding.where == {1: "cell[3] line 6: boom()"}
    assert finding.places[1].role == "died"


def test_a_rank_that_the_session_killed_is_not_a_crash():
    dead = rank(1, state="died", exit_signal=9, killed=True)
    scene = snapshot(rank(0, all_reduce(), blocked=True), rank(2), dead, outcome="hung")
    assert only(diagnose(scene)).ranks == [2]


def test_a_session_without_gpus_can_simulate_them():
    error = RankError(
        type="AssertionError", message="Torch not compiled with CUDA enabled", where=at(1)
    )
    scene = snapshot(*[raised(r, error=error) for r in range(2)], outcome="failed")
    for origin, first in (("session", True), ("job", False)):
        finding = only(diagnose(replace(scene, origin=origin)))
        assert finding.cause == "no-cuda"
        assert ("--simulate cuda:2" in finding.fixes[0].advice) == first


def test_a_framework_that_is_missing_has_an_advice_of_its_own():
    for module, own in (("tensorflow", True), ("tinynet", False), ("tensorflow.addons", False)):
        error = RankError(
            type="ModuleNotFoundError", message=f"No module named '{module}'", where=at(1)
        )
        scene = snapshot(*[raised(r, error=error) for r in range(2)], outcome="failed")
        for origin in ("session", "job"):
            advice = [fix.advice for fix in only(diagnose(replace(scene, origin=origin))).fixes]
            named = any("%ddt_start --framework tensorflow" in one for one in advice)
            assert named == (own and origin == "session")
            assert (len(advice) == 1) == named


def test_equal_exceptions_are_one_finding():
    error = RankError(type="NameError", message="name 'y' is not defined", where=at(1))
    finding = only(
        diagnose(snapshot(*[raised(r, error=error) for r in range(4)], outcome="failed"))
    )
    assert (finding.kind, finding.ranks) == ("raised", [0, 1, 2, 3])
    assert (finding.values["error"], finding.values["name"]) == ("NameError", "y")
    assert finding.symptom == "D.1.11"
    assert finding.cause == "name-not-defined"
    assert "has most likely not run on all ranks" in finding.fixes[0].advice


@pytest.mark.parametrize(
    ("frame", "status", "alone", "cause"),
    [
        ("/usr/lib/python3.11/argparse.py", "2", False, "arguments-not-accepted"),
        ("/job/train.py", "2", False, "all-ranks-exit"),
        ("/usr/lib/python3.11/argparse.py", "2", True, "process-exit"),
    ],
)
def test_ranks_that_exit_alike_are_not_at_odds(frame: str, status: str, alone: bool, cause: str):
    frames = (replace(at(1), file=frame),)
    error = RankError(type="SystemExit", message=status, where=at(1), frames=frames)
    second = rank(1, state="finished") if alone else raised(1, error=error)
    finding = only(diagnose(snapshot(raised(0, error=error), second, outcome="failed")))
    assert finding.cause == cause


@pytest.mark.parametrize(
    ("what", "source", "failed", "advice"),
    [
        ("variable", "y", 2, "`%ddt_push y`"),
        ("variable", "y", 1, "not of rank 0: `%ddt_push y`"),
        ("module", "y", 2, "import it in a `%%ddt` cell"),
        ("", "y", 2, "has most likely not run on all ranks"),
    ],
)
def test_the_advice_for_a_name_that_the_notebook_has(
    what: str, source: str, failed: int, advice: str
):
    error = RankError(type="NameError", message="name 'y' is not defined", where=at(1))
    ranks = [raised(r, error=error) if r < failed else rank(r) for r in range(2)]
    names = {"y": what} if what else {}
    finding = only(
        diagnose(snapshot(*ranks, source=source, outcome="failed", notebook_names=names))
    )
    assert finding.values["name"] == "y"
    assert advice in finding.fixes[0].advice


def test_the_advice_for_the_file_of_a_cell():
    error = RankError(type="NameError", message="name '__file__' is not defined", where=at(2))
    source = "import os\nos.path.dirname(__file__)"
    ranks = [raised(r, error=error) for r in range(2)]
    finding = only(diagnose(snapshot(*ranks, source=source, outcome="failed")))
    assert "`%ddt --script FILE.py`" in finding.fixes[0].advice


def test_the_advice_for_missing_data_of_an_exercise():
    error = RankError(type="NameError", message="name 'exercise' is not defined", where=at(2))
    source = "# exercise: own-clock\nexercise.data"
    finding = only(diagnose(snapshot(raised(0, error=error), source=source, outcome="failed")))
    assert "`%ddt_exercise own-clock --prepare`" in finding.fixes[0].advice


_UNCLOSED = "'(' was never closed"


@pytest.mark.parametrize(
    ("kind", "message", "where", "cause"),
    [
        ("SyntaxError", f"{_UNCLOSED} (cell[3], line 1)", at(1), "syntax"),
        ("IndentationError", "unexpected indent (cell[3], line 1)", at(1), "syntax"),
        # text that the cell gives to eval, and a module of the user's
        ("SyntaxError", f"{_UNCLOSED} (<string>, line 1)", at(1), None),
        ("SyntaxError", f"{_UNCLOSED} (mine.py, line 1)", at(1), None),
        ("NameError", "name 'y' is not defined", Position(file="/mine.py", line=1), None),
        ("NameError", "my own text", at(1), None),
        ("UnboundLocalError", "cannot access local variable 'y'", at(1), None),
    ],
)
def test_errors_in_the_text_of_the_cell_itself(
    kind: str, message: str, where: Position, cause: str | None
):
    error = RankError(type=kind, message=message, where=where, frames=(where,))
    finding = only(diagnose(snapshot(raised(0, error=error), rank(1), outcome="failed")))
    assert finding.cause == cause
    assert ("%%ddt -r 0" in finding.fixes[0].advice) == (cause is None)


def test_the_earliest_exception_is_the_first_finding():
    late = RankError(type="KeyError", message="'a'", where=at(2), at_s=5.0)
    early = RankError(type="ValueError", message="b", where=at(3), at_s=4.0)
    report = diagnose(snapshot(raised(0, error=late), raised(1, error=early), outcome="failed"))
    assert [finding.ranks for finding in report.findings] == [[1], [0]]


def test_an_error_in_a_mismatched_collective_is_its_consequence():
    error = RankError(type="RuntimeError", message="Invalid scalar type", call=0, where=at(2))
    scene = snapshot(
        rank(0, all_reduce(), blocked=True),
        raised(1, all_reduce(dtypes=("int16",), status="failed"), error=error),
        outcome="failed",
    )
    finding = only(diagnose(scene))
    assert finding.cause == "dtype-differs"
    assert fact(finding, "raised").values["message"] == "Invalid scalar type"


def test_an_exception_after_a_silent_mismatch_is_the_first_finding():
    error = RankError(type="FileNotFoundError", message="[Errno 2] no such file", where=at(9))
    scene = snapshot(
        rank(0, all_reduce()),
        raised(1, all_reduce(reduce_op="MAX"), error=error),
        outcome="failed",
    )
    assert [f.symptom for f in diagnose(scene).findings] == ["D.1.9", "D.2.4"]


def test_a_peer_error_alone_is_a_lost_connection():
    scene = snapshot(raised(0, error=peer_error(None)), rank(1), outcome="failed")
    finding = only(diagnose(scene))
    assert (finding.cause, finding.confidence) == ("connection-lost", "likely")


def test_mismatch_repeats_are_counted():
    scene = snapshot(rank(0, *[all_reduce()] * 9), rank(1, *[all_reduce(reduce_op="MAX")] * 9))
    assert fact(only(diagnose(scene)), "later-mismatches").values == {"collectives": 8}


def test_ranks_out_of_step_are_one_finding():
    """Rank 1 skips the first of two; every later pair differs, and rank 0 hangs at the end."""
    source = "if rank == 0:\n    dist.all_reduce(a)\ndist.broadcast(b, 0)\ndist.all_reduce(c)\n"
    scene = snapshot(
        rank(0, all_reduce(2), call("broadcast", 3, root=0), all_reduce(4), blocked=True),
        rank(1, call("broadcast", 3, root=0), all_reduce(4)),
        source=source,
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.symptom, finding.cause) == ("D.2.1", "collective-under-rank-condition")


def _error(type_: str, message: str, **fields) -> RankError:
    return RankError(type=type_, message=message, **fields)


@pytest.mark.parametrize(
    "error",
    [
        _error("RuntimeError", GLOO_PEER),
        _error("DistBackendError", GLOO_TIMEOUT),
        _error("RuntimeError", "Application timeout caused pair closure"),
        _error("DistStoreError", "wait timeout after 4000ms, keys: /default_pg/0//cpu//0/0"),
        _error(
            "DistBackendError", "remote process exited or there was a network error, NCCL version"
        ),
        _error("AnythingAtAll", "x", released=True),
        _error("TrainingError", "step failed", traceback=GLOO_PEER + "\nThe above exception ..."),
    ],
)
def test_errors_that_show_a_lost_peer(error: RankError):
    assert is_peer_error(error)


@pytest.mark.parametrize(
    "error",
    [
        _error("ConnectionResetError", "[Errno 104] Connection reset by peer"),
        _error("RuntimeError", "mat1 and mat2 shapes cannot be multiplied"),
        _error("TimeoutError", "timed out"),
    ],
)
def test_errors_that_show_no_lost_peer(error: RankError):
    assert not is_peer_error(error)


DEVICE_IDS = (
    "DistributedDataParallel device_ids and output_device arguments only work with "
    "single-device/multiple-device GPU modules or CPU modules"
)
OTHER_SIZES = (
    "[1]: params[0] in this process with sizes [5, 4] appears not to match sizes of the same param "
    "in process 0."
)
_OBJECT = Call(index=0, op="broadcast_object_list")
_INIT = Call(index=0, op="init_process_group", kind="setup")
_FRAME = Position(file="distributed_c10d.py", line=1, function="_object_to_tensor")


@pytest.mark.parametrize(
    ("error", "made", "symptom"),
    [
        (_error("ModuleNotFoundError", "No module named 'hta'"), None, "A.2"),
        (_error("ImportError", "cannot import name 'x'"), None, "A.2"),
        (_error("ValueError", "environment variable RANK expected, but not set"), _INIT, "B.1"),
        (_error("ValueError", "Default process group has not been initialized"), None, "B.1"),
        (_error("ValueError", "initialize the default process group twice!"), _INIT, "B.1"),
        (_error("DistNetworkError", "failed to listen ... EADDRINUSE"), _INIT, "B.1"),
        (_error("DistStoreError", "Timed out after 5 seconds waiting for clients"), _INIT, "B.2"),
        (_error("RuntimeError", "Error(s) in loading state_dict for N:\n Missing"), None, "C.1"),
        (_error("RuntimeError", "DataLoader worker (pid(s) 7) exited unexpectedly"), None, "C.2"),
        (_error("ValueError", "Caught ValueError in DataLoader worker process 0."), None, "C.2"),
        (_error("AttributeError", "Can't pickle local object 'f.<lambda>'"), _OBJECT, "C.3"),
        (_error("TypeError", "cannot pickle 'module' object", frames=(_FRAME,)), None, "C.3"),
        (_error("AssertionError", "Torch not compiled with CUDA enabled"), None, "C.5"),
        (_error("ValueError", DEVICE_IDS), None, "C.5"),
        (_error("RuntimeError", "DefaultCPUAllocator: can't allocate memory"), None, "D.1.2"),
        (_error("MemoryError", ""), None, "D.1.2"),
        (_error("RuntimeError", "Expected all tensors to be on the same device"), None, "D.1.3"),
        (_error("RuntimeError", "Expected to mark a variable ready only once."), None, "D.1.4"),
        (_error("RuntimeError", OTHER_SIZES), None, "D.1.5"),
        (_error("RuntimeError", "mat1 and mat2 shapes cannot be multiplied (4x8"), None, "D.1.5"),
        (_error("RuntimeError", "PytorchStreamReader failed reading zip archive"), None, "D.1.6"),
        (_error("EOFError", ""), None, "D.1.6"),
        (_error("AttributeError", "'Linear' object has no attribute 'a'"), None, "D.1.8"),
        (_error("FileNotFoundError", "[Errno 2] No such file or directory: 'x'"), None, "D.1.9"),
        (_error("RuntimeError", "Invalid scalar type"), all_reduce(), "D.1.10"),
        (_error("RuntimeError", "something about tensors"), all_reduce(), "D.1.1"),
        (_error("ZeroDivisionError", "division by zero"), None, "D.1.11"),
    ],
)  # fmt: skip
def test_an_exception_has_a_symptom(error: RankError, made: Call | None, symptom: str):
    assert classify(error, made).symptom == symptom


DDP_CRASH = (
    "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
    '  File "lib/torch/nn/parallel/distributed.py", line 1473 in _ddp_init_helper\n'
    '  File "cell[3]", line 2 in <module>\n'
)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("dist.set_debug_level(dist.DebugLevel.DETAIL)\nDDP(net)", "debug-level-detail"),
        ("os.environ['TORCH_DISTRIBUTED_DEBUG'] = 'DETAIL'\nDDP(net)", "debug-level-detail"),
        ("log('DETAIL')\nDDP(net)", "segmentation-fault"),
    ],
)
def test_a_crash_of_ddp_under_the_debug_level_detail(source: str, cause: str):
    dead = rank(1, state="died", exit_signal=11, crash_text=DDP_CRASH)
    finding = only(diagnose(snapshot(rank(0), dead, source=source, outcome="failed")))
    assert finding.cause == cause


def test_out_of_memory_after_the_hang_was_declared_is_its_cause():
    error = RankError(type="MemoryError", message="", where=at(2), released=True)
    scene = snapshot(
        rank(0, all_reduce(4), blocked=True),
        rank(1, state="running", position=at(2), error=error),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.symptom, finding.cause) == ("D.1.2", "out-of-memory")
    assert (finding.ranks, finding.waiting, finding.confidence) == ([1], [0], "likely")
    interrupted = RankError(type="KeyboardInterrupt", message="", where=at(2), released=True)
    late = rank(1, state="running", position=at(2), error=interrupted)
    finding = only(diagnose(snapshot(rank(0, all_reduce(4), blocked=True), late, outcome="hung")))
    assert finding.cause == "rank-too-slow"


def test_a_running_rank_is_not_blamed_if_another_raised():
    error = RankError(type="MemoryError", message="", where=at(2))
    scene = snapshot(
        rank(0, all_reduce(4), blocked=True),
        raised(1, error=error),
        rank(2, state="running", position=at(3)),
        outcome="hung",
    )
    assert only(diagnose(scene)).ranks == [1]


def test_a_rank_that_left_a_mismatch_does_not_wait_there():
    source = (
        "for x in data:\n    net(x).backward()\n    if rank == 0:\n        dist.all_reduce(total)\n"
    )
    met = all_reduce(4, shapes=((),))
    gradients = [rank(number, all_reduce(2, shapes=((9,),)), blocked=True) for number in (1, 2, 3)]
    first = rank(0, met, all_reduce(2, shapes=((9,),)), blocked=True)
    seen = snapshot(first, *gradients, source=source, outcome="hung")
    report = diagnose(seen)
    finding = only(report)
    assert (finding.kind, finding.values["blocked"]) == ("out-of-step", (0, 1, 2, 3))
    sides = [fact for fact in finding.facts if fact.kind == "entered"]
    assert [(s.ranks, s.place.line, s.values["shapes"]) for s in sides] == [
        ((1, 2, 3), 2, ((9,),)), ((0,), 4, ((),))
    ]  # fmt: skip
    assert finding.facts[0].kind == "keeps-from-line"
    assert (finding.facts[0].ranks, finding.facts[0].place.line) == ((1, 2, 3), 3)
    assert fact(finding, "returned-wrong").ranks == (0,)
    assert [place.who for place in of_finding(finding, seen)] == [
        "ranks 1-3 wait in all_reduce",
        "rank 0 called all_reduce, then went on to wait in line 2",
    ]


def test_a_rank_that_is_blocked_in_a_mismatch_waits_there():
    source = "if rank == 0:\n    dist.all_reduce(total)\ndist.all_reduce(x)\n"
    first = rank(0, all_reduce(2, shapes=((),)), blocked=True)
    seen = snapshot(first, rank(1, all_reduce(3), blocked=True), source=source, outcome="hung")
    finding = only(diagnose(seen))
    assert "returned-wrong" not in [fact.kind for fact in finding.facts]
    assert {place.who for place in of_finding(finding, seen)} == {
        "rank 0 waits in all_reduce",
        "rank 1 waits in all_reduce",
    }


def test_an_exception_of_a_spawned_process_is_shown_by_its_last_line():
    text = (
        "\n\n-- Process 0 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 26, in work\n    Worker(rank).run()\nValueError: no samples left\n'
    )
    error = RankError(type="ProcessRaisedException", message=text, where=at(9))
    finding = only(
        diagnose(snapshot(rank(0), rank(1, state="raised", error=error), outcome="failed"))
    )
    assert finding.values["message"] == "ValueError: no samples left"
    assert finding.cause is None


def test_ranks_that_spawn_ranks_meet_those_of_each_other():
    text = (
        "\n\n-- Process 0 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 12, in work\n    dist.init_process_group("gloo", rank=rank)\n'
        "torch.distributed.DistNetworkError: address already in use (EADDRINUSE)\n"
    )
    error = RankError(type="ProcessRaisedException", message=text, where=at(9))
    failed = rank(1, state="raised", error=error)
    finding = only(diagnose(snapshot(rank(0), failed, outcome="failed")))
    assert (finding.symptom, finding.cause) == ("B.1", "ranks-spawned-again")
    assert fact(finding, "ranks-spawn").ranks == (0, 1)
    alone = only(diagnose(snapshot(replace(failed, rank=0), outcome="failed")))
    assert alone.cause == "port-in-use"


def test_a_condition_behind_the_order_of_two_models_is_named():
    source = (
        "def update(model, batch):\n"
        "    model(batch).sum().backward()\n"
        "def step(batch):\n"
        "    if batch.mean() > 0:\n"
        "        update(actor, batch)\n"
        "        update(critic, batch)\n"
        "    else:\n"
        "        update(critic, batch)\n"
        "        update(actor, batch)\n"
        "for batch in batches:\n"
        "    step(batch)\n"
    )

    def stack(line: int) -> tuple[Position, ...]:
        return at(11), at(line, function="step"), at(2, function="update")

    own = all_reduce(2, source="flight recorder", caller="DistributedDataParallel", reduce_op=None)
    gone = peer_error(0, where=at(2, function="update"), frames=stack(5))
    text = "Received data size doesn't match expected size."
    crash = "Current thread 0x1 (most recent call first):\n" + "".join(
        f'  File "{frame.file}", line {frame.line} in {frame.function}\n'
        for frame in reversed(stack(8))
    )
    died = rank(0, state="died", exit_signal=6, abort_text=text, crash_text=crash)
    scene = snapshot(died, raised(1, own, error=gone), source=source, outcome="failed")
    finding = only(diagnose(scene))
    assert (finding.kind, finding.cause) == ("died", "collective-under-local-condition")
    assert any(one.place is not None and one.place.line == 4 for one in finding.facts)
    same = replace(died, crash_text=crash.replace("line 8", "line 5"))
    scene = snapshot(same, raised(1, own, error=gone), source=source, outcome="failed")
    assert only(diagnose(scene)).cause == "different-collectives"


def test_a_condition_under_which_only_the_rank_that_died_made_a_call():
    source = (
        "def step(batch):\n"
        "    if draw() < 0.1:\n"
        "        penalty(batch).backward()\n"
        "    loss(batch).backward()\n"
        "for batch in batches:\n"
        "    step(batch)\n"
    )
    own = all_reduce(4, source="flight recorder", caller="DistributedDataParallel", reduce_op=None)
    frames = at(6), at(4, function="step")
    gone = peer_error(0, where=frames[-1], frames=frames)
    file = frames[0].file
    crash = (
        "Current thread 0x1 (most recent call first):\n"
        f'  File "{file}", line 3 in step\n  File "{file}", line 6 in <module>\n'
    )
    text = "Received data size doesn't match expected size."
    died = rank(1, state="died", exit_signal=6, abort_text=text, crash_text=crash)
    scene = snapshot(raised(0, own, error=gone), died, source=source, outcome="failed")
    finding = only(diagnose(scene))
    assert (finding.kind, finding.cause) == ("died", "collective-under-local-condition")
    assert any(one.place is not None and one.place.line == 2 for one in finding.facts)


@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ('if math.isnan(loss):\n    raise RuntimeError("loss")', "nan-from-one-rank"),
        ("assert torch.isfinite(loss).all(), 'loss'\n", "nan-from-one-rank"),
        ('if loss > limit:\n    raise RuntimeError("loss")', None),
        ("if math.isnan(loss):\n    print(loss)\n    raise_it()", None),
    ],
)
def test_a_check_of_the_program_for_numbers_that_are_not_finite(source: str, cause: str | None):
    line = next(n for n, one in enumerate(source.splitlines(), 1) if "raise" in one or "ass" in one)
    error = RankError(type="RuntimeError", message="loss", where=at(line))
    failed = raised(1, error=error)
    finding = only(diagnose(snapshot(rank(0), failed, outcome="failed", source=source)))
    assert (finding.cause, finding.ranks) == (cause, [1])
