"""Paths past a call in real code: helpers, attributes, comprehensions, local decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Call, Finding, Position, RankError, RankReport
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition
from ddt_notebook.views.source_positions import of_finding

from .builders import (
    GLOO_PEER,
    all_reduce,
    at,
    call,
    fact,
    only,
    peer_error,
    raised,
    rank,
    sides,
    snapshot,
)

UNDER_RANK, EARLY = "collective-under-rank-condition", "early-exit-on-rank-condition"
LOCAL, UNEVEN = "collective-under-local-condition", "uneven-iterations"
CLOCK = "loop-ends-by-clock"


def cause(source: str, line: int, waiter: RankReport | None = None, *absent: RankReport) -> str:
    waiter = waiter or rank(0, all_reduce(line), blocked=True)
    scene = snapshot(waiter, *(absent or (rank(1),)), source=source, outcome="hung")
    return str(only(diagnose(scene)).cause)


STOPS = """
class Budget(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if CONDITION:
            control.should_training_stop = True

trainer.train()
"""


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("time.time() > self.end", CLOCK),
        ("args.process_index == 1", EARLY),
        ("state.best > 2", LOCAL),
    ],
)
@pytest.mark.parametrize("asked", [(1,), (0, 1), ()])
def test_a_rank_that_alone_asked_the_trainer_to_stop(
    condition: str, expected: str, asked: tuple[int, ...]
) -> None:
    """The rank that asked may have died of the calls that do not fit, with all it observed."""
    stop = call("TrainerControl.should_training_stop", 5, kind="setup", sequence=1)
    reports = [
        rank(
            number,
            *([replace(stop, index=0)] if number in asked else []),
            all_reduce(7, index=1, dtypes=("float32" if number else "int64",)),
            blocked=True,
        )
        for number in range(2)
    ]
    source = STOPS.replace("CONDITION", condition)
    finding = only(diagnose(snapshot(*reports, source=source, outcome="hung")))
    if asked == (1,):
        assert finding.cause == expected
        assert fact(finding, "asks-to-stop").place.line == 4  # type: ignore[union-attr]
    else:
        assert finding.cause == "dtype-differs"


KERAS = """
class Averaged(keras.Model):
    def train_step(self, data):
        for gradient in self.gradients:
            dist.all_reduce(gradient)
model = Averaged()
model.fit(x, y, callbacks=[keras.callbacks.EarlyStopping()])
"""


def in_fit(number: int, times: int, *before: Call, blocked: bool = False) -> RankReport:
    """A rank that came to the call ``times`` times, in a function that the library called."""
    step = at(5, function="train_step")
    calls = [all_reduce(where=step, callers=(at(7),)) for _ in range(times)]
    return rank(number, *calls, *before, blocked=blocked)


def test_a_callback_of_the_library_ended_the_loop_of_one_rank() -> None:
    stop = call("Model.stop_training", 7, kind="setup", detail="EarlyStopping", shapes=())
    reports = in_fit(0, 5, blocked=True), in_fit(1, 4, stop)
    finding = only(diagnose(snapshot(*reports, source=KERAS, outcome="hung")))
    assert (finding.cause, finding.ranks) == (LOCAL, [1])
    stopped = fact(finding, "callback-stops")
    assert stopped.place.line == 7  # type: ignore[union-attr]
    assert stopped.values == {"callback": "EarlyStopping"}


@pytest.mark.parametrize("batches", [None, (7, 6)])
def test_a_loop_over_gradients_in_a_function_that_the_library_called(
    batches: tuple[int, int] | None,
) -> None:
    """The library called the function more often on one rank, perhaps for more batches."""
    partition = [
        RankPartition(
            rank=number,
            run=1,
            loaders=(
                LoaderPartition(
                    name="loader",
                    dataset="ArrayDataset",
                    made_at=at(7),
                    expected_batches=expected,
                    epochs=(Epoch(number=1, run=1, batches=expected, samples=9, trained=5),),
                ),
            ),
        )
        for number, expected in enumerate(batches or ())
    ]
    reports = in_fit(0, 5, blocked=True), in_fit(1, 4)
    scene = snapshot(*reports, source=KERAS, outcome="hung", partition=tuple(partition))
    finding = only(diagnose(scene))
    assert (finding.cause, finding.ranks) == (UNEVEN, [1])
    reason = fact(finding, "loaders-differ" if batches else "uneven-rounds")
    assert reason.place.line == 7  # type: ignore[union-attr]


def test_whether_a_path_was_given_is_less_likely_to_differ_than_what_lies_there() -> None:
    source = (
        "def load(args):\n    if not os.path.isfile(args.load):\n        return\n"
        "    dist.all_reduce(x)\nif args.load is not None:\n    load(args)\nend()\n"
    )
    waiter = rank(0, all_reduce(4, callers=(at(6),)), blocked=True)
    finding = only(diagnose(snapshot(waiter, rank(1), source=source, outcome="hung")))
    assert finding.cause == LOCAL
    assert fact(finding, "leaves-by-own-finding").place.line == 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "line", "expected"),
    [
        ("def main():\n    return dist.get_rank() == 0\nif main():\n    f(x)\n", 4, UNDER_RANK),
        ("self.main = rank == 0\nif self.main:\n    dist.all_reduce(x)\n", 3, UNDER_RANK),
        ("rank == 0 and dist.all_reduce(x)\n", 1, UNDER_RANK),
        ("dist.all_reduce(x) if rank == 0 else None\n", 1, UNDER_RANK),
        ("train(model, [p for p in model.all() if p.wanted])\n", 1, "rank-skips-collective"),
        ("if losses and dist.all_reduce(x):\n    f(x)\n", 1, LOCAL),
        ("while left > 0 and dist.all_reduce(x):\n    left -= 1\n", 1, LOCAL),
        ("print(x > 3 or rank == 1 or dist.all_reduce(x))\n", 1, UNDER_RANK),
        ("print(dist.all_reduce(x) if self.log else 1)\n", 1, LOCAL),
        ("total = [dist.all_reduce(x) for x in xs if x.wanted]\n", 1, LOCAL),
        ("assert quick or dist.all_reduce(x)\n", 1, LOCAL),
        ("match rank:\n    case 0:\n        dist.all_reduce(x)\n", 3, UNDER_RANK),
        ("if not self.main:\n    raise Stop\ndist.all_reduce(x)\nself.main = rank == 0", 3, EARLY),
        ("for i in range(3):\n    if bad > 2:\n        break\n    f(x)\n", 4, LOCAL),
        ("for i in range(3):\n    if isnan(x):\n        continue\n    f(x)\n", 4, LOCAL),
        ("while 1:\n  if rank:\n    if bad > 2:\n      break\n  f(x)\n", 5, EARLY),
        ("while 1:\n  if time() > 3:\n    end = True\n  f(x)\n  if end:\n    break\n", 4, CLOCK),
    ],
)
def test_the_reason_why_a_rank_went_past_the_call(source: str, line: int, expected: str) -> None:
    assert cause(source, line) == expected


@pytest.mark.parametrize(
    "source",
    [
        "for i in range(3):\n    dist.all_reduce(stop)\n    if stop:\n        break\n    f(x)\n",
        "if world_size == 1:\n    raise Stop\n\n\ndist.all_reduce(x)\n",
        "if not dist.is_initialized():\n    raise Stop\n\n\ndist.all_reduce(x)\n",
        "for i in range(3):\n    if i == 2:\n        continue\n\n    dist.all_reduce(x)\n",
    ],
)
def test_a_condition_with_the_same_value_on_every_rank_is_not_a_reason(source: str) -> None:
    assert cause(source, 5) == "rank-skips-collective"


RENDERS = """
def render(x):
    if rank == 0:
        dist.gather(x, [x, x])
    else:
        dist.gather(x)

for step in range(9):
    if time.time() > next_image:
        render(x)
    dist.all_reduce(x)
"""


def test_a_condition_whose_sides_both_make_the_collective_keeps_no_rank_from_it() -> None:
    outer = Position(file="cell[3]", line=10, function="<module>")
    made = replace(call("gather", 6), where=Position(file="cell[3]", line=6, function="render"))
    frames = (made.where, outer)
    waiter = replace(rank(1, made, blocked=True), stack=frames)
    scene = snapshot(rank(0, all_reduce(11), blocked=True), waiter, source=RENDERS, outcome="hung")
    finding = only(diagnose(scene))
    assert finding.cause != UNDER_RANK, finding


@pytest.mark.parametrize(
    "source",
    [
        "if dist.all_reduce(x) and losses:\n    f(x)\n",  # the call comes first
        "if dist.is_initialized() and dist.all_reduce(x):\n    f(x)\n",
        "dist.all_reduce(f(x) if losses else x)\n",  # only the argument depends on it
        "dist.all_reduce(sum(x for x in xs if x.wanted))\n",
        "print(rank == 0 or x, dist.all_reduce(x))\n",
    ],
)
def test_a_condition_within_a_line_that_does_not_guard_the_call(source: str) -> None:
    assert cause(source, 1) == "rank-skips-collective"


def test_a_comprehension_over_uneven_items_is_a_reason() -> None:
    waiter = rank(0, *[all_reduce(1)] * 3, blocked=True)
    absent = rank(1, *[all_reduce(1)] * 2)
    assert cause("[total(x) for x in shards]\n", 1, waiter, absent) == UNEVEN


def test_an_exception_that_is_swallowed_before_an_else_is_a_reason() -> None:
    source = "try:\n    load(x)\nexcept OSError:\n    pass\nelse:\n    dist.all_reduce(x)\n"
    assert cause(source, 6) == "exception-swallowed"


READS = """\
for i in {rounds}:
    try:
        x = read(i)
    except {error}:
        {leave}
    dist.all_reduce(x)
    if self.done:
        break
"""


@pytest.mark.parametrize(
    ("rounds", "error", "leave", "expected"),
    [
        ("range(cfg['steps'])", "StopIteration", "break", UNEVEN),
        ("range(args.steps)", "OSError", "raise", LOCAL),  # the condition below it
        ("range(len(loader))", "OSError", "raise", UNEVEN),
        ("range(steps)", "OSError", "raise", UNEVEN),  # where it comes from is not shown
        ("tqdm(range(2 * args.steps))", "OSError", "raise", LOCAL),
        ("range(args.steps // rank)", "OSError", "raise", UNEVEN),
    ],
)
def test_a_loop_of_as_many_rounds_as_configured_is_no_reason(
    rounds: str, error: str, leave: str, expected: str
) -> None:
    source = READS.format(rounds=rounds, error=error, leave=leave)
    waiter = rank(0, *[all_reduce(6)] * 3, blocked=True)
    assert cause(source, 6, waiter, rank(1, *[all_reduce(6)] * 2)) == expected


def test_a_handler_before_the_call_that_goes_on_to_the_next_round_is_a_reason() -> None:
    source = READS.format(rounds="range(args.steps)", error="OSError", leave="continue")
    waiter = rank(0, *[all_reduce(6)] * 3, blocked=True)
    absent = rank(1, *[all_reduce(6)] * 2)
    source = source.partition("    if self")[0]
    assert cause(source, 6, waiter, absent) == "exception-swallowed"


SAVES = """\
while True:
    if loss < best:
        if step > 0:
            dist.barrier()
    for micro in batches:
        dist.all_reduce(x)
    step += 1
"""


def test_a_rank_that_comes_to_a_loop_later_in_its_round_has_not_left_it() -> None:
    """Rank 1 stands in a barrier before the loop, and the condition on the step is the same."""
    both = [all_reduce(6)] * 2
    scene = snapshot(
        rank(0, *both, all_reduce(6), blocked=True, stack=(at(6),)),
        rank(1, *both, call("barrier", 4), blocked=True, stack=(at(4),)),
        source=SAVES,
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert finding.cause == LOCAL
    assert fact(finding, "decided-by-each-rank").place.line == 2


SHARED = """\
def forward(x):
    dist.all_gather(out, x)
for x in train:
    {skip}
    forward(x)
    dist.all_reduce(x)
for x in test:
    forward(x)
"""


@pytest.mark.parametrize(
    ("skip", "expected", "line"),
    [("if bad(x): continue", LOCAL, 4), ("y = x", UNEVEN, 3)],
    ids=["left out", "fewer rounds"],
)
def test_a_loop_counts_its_own_calls_of_a_shared_function(
    skip: str, expected: str, line: int
) -> None:
    """Rank 0 made one round less of the first loop, so it is ahead in the second one."""
    trained, tested = (call("all_gather", 2, callers=(at(caller),)) for caller in (5, 8))
    rounds = [trained, all_reduce(6)] * 2
    epoch = Epoch(number=1, run=1, batches=3, samples=6, trained=1, where=at(3))
    loader = LoaderPartition(
        name="train", dataset="Data", dataset_size=6, expected_batches=3, epochs=(epoch,)
    )
    scene = snapshot(
        rank(0, *rounds, tested, tested, blocked=True, stack=(at(8), at(2, function="forward"))),
        rank(1, *rounds, trained, all_reduce(6), blocked=True, stack=(at(6),)),
        source=SHARED.format(skip=skip),
        outcome="hung",
        partition=tuple(
            RankPartition(rank=r, run=1, loaders=(loader,)) for r in (0, 1) if "bad" in skip
        ),
    )
    finding = only(diagnose(scene))
    assert finding.cause == expected
    assert line in [one.place.line for one in finding.facts if one.place is not None]


GUARDED = """\
if rank != 0:
    dist.barrier()
load()
if rank == 0{more}:
    dist.barrier()
engine = library.initialize([p for p in model.all() if p.wanted])
"""


def test_the_barrier_of_the_rank_that_prepares_is_skipped() -> None:
    """Rank 0 is expected at its own line, not at that of the others."""

    def found(more: str) -> Finding:
        scene = snapshot(
            rank(0, call("new_group", 6, kind="setup", new_members=(0, 1)), blocked=True),
            rank(1, call("barrier", 2), blocked=True),
            source=GUARDED.format(more=more),
            outcome="hung",
        )
        return only(diagnose(scene))

    finding = found(" and verbose")
    assert (finding.kind, finding.cause, finding.ranks) == ("never-entered", UNDER_RANK, [0])
    assert fact(finding, "keeps-from-line").place.line == 4
    assert fact(finding, "keeps-from-line").values["call_line"] == 5
    assert found("").kind == "wait-cycle"


EXCHANGE = """\
def exchange(x):
    for peer, ids in parts.items():
        if len(ids) > 5:
            dist.isend(x[ids], peer)
    works = [dist.irecv(b, peer) for peer, b in buffers.items()]
    for work in works:
        work.wait()

def epoch():
    exchange(x)
    dist.all_reduce(total)

for i in range(3):
    epoch()
    exchange(y)
"""


@pytest.mark.parametrize("took_part", [True, False])
def test_a_message_left_out_in_a_statement_that_both_ranks_run(took_part: bool) -> None:
    """Rank 0 left out one message. A rank without any may have another part in the program."""
    received = [call("irecv", 5, peer=1)] if took_part else []
    scene = snapshot(
        rank(0, *received, all_reduce(11), blocked=True, stack=(at(14), at(11, function="epoch"))),
        rank(
            1,
            *[call("isend", 4, peer=0)] * took_part,
            call("irecv", 5, peer=0),
            blocked=True,
            stack=(at(14), at(10, function="epoch"), at(7, function="exchange")),
        ),
        source=EXCHANGE,
        outcome="hung",
    )
    finding = only(diagnose(scene))
    if took_part:
        assert (finding.cause, finding.ranks) == ("message-without-partner", [0])
        assert fact(finding, "messages-left-out").place.line == 4
    else:
        assert finding.cause == "wait-cycle"


LIBRARY = "run_schedule(loss_function, batch)"
PIPELINE = """\
def loss_function(output):
    dist.all_reduce(output)
    return output

for batch in batches:
    losses = run_schedule(loss_function, batch)
"""


@pytest.mark.parametrize("by_library", [True, False])
def test_a_collective_in_a_function_that_a_schedule_calls(by_library: bool) -> None:
    """The first stage waits in a message of the same step, which the library would receive."""
    sends, own = call("isend", 6, peer=1), "run_schedule(loss_function, dist.isend(batch, 1))"
    scene = snapshot(
        rank(0, sends, sends, blocked=True, stack=(at(6),)),
        rank(
            1,
            call("irecv", 6, peer=0),
            all_reduce(2),
            blocked=True,
            stack=(at(6), at(2, function="loss_function")),
        ),
        source=PIPELINE if by_library else PIPELINE.replace(LIBRARY, own),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    if by_library:
        assert finding.cause == "collective-within-pipeline-step"
        assert (finding.ranks, finding.waiting) == ([0], [1])
        assert fact(finding, "called-back").place.line == 6
    else:
        assert finding.cause == "message-without-partner"


TENSOR_RANK = """\
if mpu.get_tensor_model_parallel_rank() == 0:
    dist.all_reduce(x)
"""


def test_a_condition_on_the_place_in_a_group_is_one_on_the_rank() -> None:
    scene = snapshot(
        rank(0, all_reduce(2), blocked=True), rank(1), source=TENSOR_RANK, outcome="hung"
    )
    finding = only(diagnose(scene))
    assert (finding.cause, finding.ranks) == (UNDER_RANK, [1])
    assert fact(finding, "keeps-from-line").place.line == 1
    assert "in this group" in finding.fixes[0].advice


def test_fields_that_differ_together_are_distinguished() -> None:
    one = call("broadcast", 2, root=0)
    other = call("broadcast", 2, root=1, shapes=((5,),))
    scene = snapshot(rank(0, one, blocked=True), rank(1, other, blocked=True), outcome="hung")
    finding = only(diagnose(scene))
    assert finding.values["fields"] == ("root", "shape")
    assert sides(finding, "root") == [((0,), 0), ((1,), 1)]
    assert sides(finding, "shapes") == [((0,), ((4,),)), ((1,), ((5,),))]


def out_of_step() -> Finding:
    """A shorter inner loop: rank 1 meets rank 0's third call with one from the line below."""
    source = "for e in epochs:\n    for b in batches:\n        f(b)\n    f(metric)\n"
    return only(
        diagnose(
            snapshot(
                rank(0, *[all_reduce(3)] * 3, blocked=True),
                rank(
                    1,
                    *[all_reduce(3)] * 2,
                    all_reduce(4, shapes=((1,),)),
                    all_reduce(3),
                    blocked=True,
                ),
                source=source,
                outcome="hung",
            )
        )
    )


def test_rounds_are_counted_up_to_where_the_ranks_met() -> None:
    finding = out_of_step()
    assert (finding.symptom, finding.cause) == ("D.2.1", UNEVEN)
    rounds = fact(finding, "uneven-rounds").values
    assert (rounds["caller_times"], rounds["times"]) == (3, 2)


def test_the_fix_names_the_call_that_is_under_the_condition() -> None:
    scene = snapshot(
        rank(0, call("barrier", 2), blocked=True),
        rank(1, all_reduce(3), blocked=True),
        rank(2, all_reduce(3), blocked=True),
        source="if rank == 0:\n    dist.barrier()\ndist.all_reduce(x)\n",
        outcome="hung",
    )
    finding = only(diagnose(scene))
    assert (finding.cause, finding.ranks, finding.waiting) == (UNDER_RANK, [0], [1, 2])
    assert finding.fixes[0].advice.startswith("call barrier on every rank")


CHAIN = f"""\
---------------------------------------------------------------------------
OSError                                   Traceback (most recent call last)
Cell cell[3], line 2, in work()
----> 2     raise OSError("disk full")

OSError: disk full

During handling of the above exception, another exception occurred:

RuntimeError                              Traceback (most recent call last)
Cell cell[3], line 4
----> 4     dist.barrier()

RuntimeError: {GLOO_PEER}"""


def test_an_exception_that_is_being_handled_is_the_cause() -> None:
    freed = RankError(type="RuntimeError", message=GLOO_PEER, traceback=CHAIN, released=True)
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(3), blocked=True),
                rank(1, call("barrier", 4), blocked=True, error=freed),
                source='try:\n    raise OSError("disk full")\nfinally:\n    dist.barrier()\n',
                outcome="hung",
            )
        )
    )
    assert finding.kind == "raised-while-others-wait"
    assert (finding.values["error"], finding.values["op"]) == ("OSError", "barrier")
    assert (finding.ranks, finding.waiting, finding.confidence) == ([1], [0], "likely")
    assert (finding.places[1].line, finding.places[1].role) == (2, "raised")


IN_FILES = (
    CHAIN.replace("Cell cell[3], line 2, in work()", "File /srv/job/helpers.py:2, in work(path)")
    .replace("Cell cell[3], line 4", "File /srv/job/train.py:4")
    .replace(
        "\n\nOSError: disk full",
        "\n\nFile /usr/lib/python3.12/pathlib.py:9, in Path.open(self)\n\nOSError: disk full",
    )
)


def test_the_line_of_a_handled_exception_is_the_innermost_of_the_users_files() -> None:
    freed = RankError(type="RuntimeError", message=GLOO_PEER, traceback=IN_FILES, released=True)
    scene = snapshot(
        rank(0, all_reduce(3), blocked=True),
        rank(1, call("barrier", 4), blocked=True, error=freed),
        outcome="hung",
    )
    finding = only(diagnose(scene))
    place = finding.places[1]
    assert (finding.kind, finding.values["error"]) == ("raised-while-others-wait", "OSError")
    assert (place.file, place.line, place.role) == ("/srv/job/helpers.py", 2, "raised")
    (who,) = [one.who for one in of_finding(finding, scene) if "helpers.py" in one.place]
    assert who == "rank 1 raised, then went on to wait in cell[3] line 4"


@pytest.mark.parametrize("destroys_at", [9, None])
def test_a_group_destroyed_in_finally_does_not_hide_the_call_that_failed(
    destroys_at: int | None,
) -> None:
    """A collective that DDP issued is known from the Flight Recorder, which retires it."""
    failed = all_reduce(3, source="flight recorder", status="done", sequence=2)
    destroy = [call("destroy_process_group", destroys_at, kind="setup")] if destroys_at else []
    scene = snapshot(
        rank(0, all_reduce(2), call("destroy_process_group", 9, kind="setup")),
        raised(1, all_reduce(2), failed, *destroy, error=peer_error(None, where=at(3))),
        source="x\nstep()\nloss.backward()\nif stop:\n    pass\n",
        outcome="failed",
    )
    finding = only(diagnose(scene))
    assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [0], [1])


def test_a_connection_that_breaks_where_the_group_is_destroyed_blames_no_rank() -> None:
    destroy = call("destroy_process_group", 9, kind="setup")
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(2), destroy),
                raised(1, all_reduce(2), destroy, error=peer_error(None, where=at(9))),
                source="pass\n" * 9,
                outcome="failed",
            )
        )
    )
    assert finding.kind == "connection-lost"


def test_members_wait_for_a_rank_that_passed_a_group_it_is_not_in() -> None:
    stray = all_reduce(2, group="1", sequence=-1)
    finding = only(
        diagnose(
            snapshot(
                rank(0, all_reduce(2, group="1"), call("barrier", 3), blocked=True),
                rank(1, all_reduce(2, group="1"), call("barrier", 3), blocked=True),
                rank(2, stray, call("barrier", 3), blocked=True),
                rank(3, all_reduce(2, group="2"), blocked=True),
                outcome="hung",
                groups={"0": (0, 1, 2, 3), "1": (0, 1), "2": (2, 3)},
            )
        )
    )
    assert (finding.symptom, finding.cause) == ("D.2.1", "caller-not-in-group")
    assert (finding.ranks, finding.waiting) == ([2], [0, 1, 3])


def test_a_handle_is_waited_for_at_another_line() -> None:
    waiter = rank(
        0, call("irecv", 1, peer=1, asynchronous=True), blocked=True, position=at(5, function="f")
    )
    finding = only(diagnose(snapshot(waiter, rank(1), outcome="hung")))
    assert finding.places[0].line == 5
    assert fact(finding, "waits-for-handle").place.line == 1


@pytest.mark.parametrize("others_calls", [1, 3])
def test_waiting_for_one_of_several_asynchronous_calls_raised(others_calls: int) -> None:
    """A script's rank ends and closes its connections while another waits for a handle."""
    issued = [all_reduce(2, asynchronous=True, status="issued")] * 2
    mine = (all_reduce(2), all_reduce(2, asynchronous=True, status="failed"), *issued)
    error = RankError(type="RuntimeError", message=GLOO_PEER, where=at(3))
    scene = snapshot(
        raised(0, *mine[: others_calls + 1], error=error),
        rank(1, *[all_reduce(2)] * others_calls),
        outcome="failed",
    )
    finding = only(diagnose(scene))
    if others_calls == 1:
        assert (finding.kind, finding.ranks, finding.waiting) == ("never-entered", [1], [0])
    else:
        assert finding.kind == "connection-lost"


@pytest.mark.parametrize("line", [4, None], ids=["line", "line not read"])
def test_victims_of_a_rank_that_died_in_a_librarys_collective(line: int | None) -> None:
    """The recorder of a dead process is lost, and retires what failed on the others."""
    issued = all_reduce(line, source="flight recorder", caller="DistributedDataParallel")
    error = RankError(type="RuntimeError", message=GLOO_PEER, where=at(4))
    scene = snapshot(
        raised(0, issued, error=error),
        rank(1, state="died", exit_signal=9),
        raised(2, issued, error=error),
        outcome="failed",
    )
    finding = only(diagnose(scene))
    assert (finding.ranks, finding.waiting) == ([1], [0, 2])


def test_equal_facts_of_several_ranks_are_reported_once() -> None:
    source = "for b in loader:\n    dist.all_reduce(b)\n"
    early = [rank(number, *[all_reduce(2)] * 2) for number in (1, 2, 3)]
    other = rank(4, all_reduce(2))
    waiter = rank(0, *[all_reduce(2)] * 3, blocked=True)
    scene = snapshot(waiter, *early, other, source=source, outcome="hung")
    finding = only(diagnose(scene))
    assert [(f.kind, f.ranks, f.values.get("sequence")) for f in finding.facts[1:3]] == [
        ("finished", (1, 2, 3), 2),
        ("finished", (4,), 1),
    ]
    rounds = [fact for fact in finding.facts if fact.kind == "uneven-rounds"]
    assert [(f.ranks, f.values["caller_times"], f.values["times"]) for f in rounds] == [
        ((1, 2, 3), 3, 2),
        ((4,), 3, 1),
    ]
    waiter = rank(0, all_reduce(2), blocked=True)
    never = only(diagnose(snapshot(waiter, rank(1), rank(2), source=source, outcome="hung")))
    assert fact(never, "finished").ranks == (1, 2)
    assert fact(never, "uneven-rounds").values["times"] == 0


def test_a_rank_deeper_in_the_program_has_not_left_above() -> None:
    source = (
        "def main(epochs):\n"
        "    if warm_up >= epochs:\n"
        "        raise ValueError\n"
        "    train()\n"
        "def train():\n"
        "    def check():\n"
        "        dist.barrier()\n"
        "    fit(check)\n"
        "main(3)\n"
    )
    above = (at(9), at(4, function="main"), at(8, function="train"))
    waits = replace(all_reduce(8), where=at(8, function="train"))
    elsewhere = replace(call("barrier", 7), where=at(7, function="check"))
    scene = snapshot(
        rank(0, waits, blocked=True, stack=above),
        rank(1, elsewhere, blocked=True, stack=(at(7, function="check"),)),
        source=source,
        outcome="hung",
    )
    assert only(diagnose(scene)).cause == "different-collectives"


@pytest.mark.parametrize("line", [None, 3])
def test_rounds_of_a_rank_that_did_not_tell_its_lines_are_not_counted(line: int | None) -> None:
    """Rank 0 was too busy to tell the stacks of its Flight Recorder in time."""
    source = "for b in batches:\n    f(b)\n    model(b)\n"
    library = "" if line is None else "DistributedDataParallel"
    issued = [all_reduce(at, source="flight recorder") for at in (None, line)]
    issued[1] = replace(issued[1], caller=library or None)
    scene = snapshot(
        rank(0, *[issued[0]] * 3, all_reduce(2), blocked=True),
        rank(1, *[issued[1]] * 3, state="finished"),
        source=source,
        outcome="hung",
    )
    told = {one.kind for one in only(diagnose(scene)).facts}
    assert ("uneven-rounds" in told) == (line is None)
