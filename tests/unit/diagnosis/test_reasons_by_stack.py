"""Why a rank did not reach a call, where both stacks show in which function the ranks parted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.model import Cell, Finding, RankReport
from ddt_notebook.model.branches import BranchOutcome, RankBranches
from ddt_notebook.model.partition import Epoch, LoaderPartition, RankPartition

from .builders import all_reduce, at, call, only, peer_error, raised, rank, snapshot


def stands(number: int, *calls: Any, lines: Sequence[tuple[int, str]]) -> RankReport:
    """A rank that is blocked in its last call, with the lines that led there, outermost first."""
    report = rank(number, *calls, blocked=True)
    return replace(report, stack=tuple(at(line, function=name) for line, name in lines))


def found(*ranks: RankReport, source: str, **fields: Any) -> Finding:
    return only(diagnose(snapshot(*ranks, source=source, outcome="hung", **fields)))


def assert_reason_at(finding: Finding, line: int) -> None:
    assert [
        one.place.line for one in finding.facts if one.place and one.place.role == "passed"
    ] == [line]


HELPERS = """\
def sync():
    dist.barrier()
"""
METERS = """\
def mean(x):
    dist.all_reduce(x)

def epoch(loader):
    for x in loader:
        mean(x)
    sync()

epoch(loader)
"""


def test_a_loop_that_a_rank_has_left_for_a_function_of_another_cell() -> None:
    waiter = stands(0, *[all_reduce(2)] * 3, lines=[(9, "<module>"), (6, "epoch"), (2, "mean")])
    barrier = replace(call("barrier", 2), where=at(2, cell=2, function="sync"))
    left = stands(1, *[all_reduce(2)] * 2, barrier, lines=[(9, "<module>"), (7, "epoch")])
    left = replace(left, stack=(*left.stack, at(2, cell=2, function="sync")))
    helpers = Cell(number=2, source=HELPERS)
    finding = found(waiter, left, source=METERS, earlier_cells=(helpers,))
    assert finding.cause == "uneven-iterations"
    assert_reason_at(finding, 5)


ROUNDS = """\
def step(params):
    for p in params:
        dist.broadcast(p, 0)

for i in range(9):
    last = i == stop
    if last:
        break
    dist.all_reduce(x)
    step(chosen)
"""


def test_a_rank_that_is_a_round_ahead_has_left_the_loop_in_a_function() -> None:
    calls = [all_reduce(9), call("broadcast", 3, root=0), call("broadcast", 3, root=0)]
    waiter = stands(0, *calls, lines=[(10, "<module>"), (3, "step")])
    calls = [all_reduce(9), call("broadcast", 3, root=0), all_reduce(9)]
    finding = found(waiter, stands(1, *calls, lines=[(9, "<module>")]), source=ROUNDS)
    assert finding.cause == "uneven-iterations"
    assert_reason_at(finding, 2)


SKIPS = """\
def total(x, op="sum"):
    if op == "max":
        dist.all_reduce(x, op=MAX)
    else:
        dist.all_reduce(x)

def step(x):
    try:
        model(x)
    except RuntimeError as error:
        if "memory" not in str(error):
            raise
        return
    total(x)

for x in range(9):
    step(x)
    dist.barrier()
"""


def test_a_constant_argument_decides_alike_and_a_handler_may_still_go_on() -> None:
    waiter = stands(0, all_reduce(5), lines=[(16, "<module>"), (14, "step"), (5, "total")])
    skipped = stands(1, call("barrier", 17), lines=[(17, "<module>")])
    finding = found(waiter, skipped, source=SKIPS)
    assert finding.cause == "exception-swallowed"
    assert_reason_at(finding, 10)


ACCUMULATES = """\
def step(x, at, training):
    for y in x.chunk({chunks}):
        {condition}
            dist.all_reduce(y)

def epoch(loader, training):
    for at, x in enumerate(loader):
        step(x, at, training)
    dist.barrier()

parser.add_argument("--accumulate", default=2)
opts = parser.parse_args()
epoch(loader, training=True)
"""


@pytest.mark.parametrize(
    ("condition", "named"),
    [
        ("if training:", 2),
        ("if opts.accumulate:", 2),
        ("if y.sum() > 0:", 3),
        ("if at:", 3),  # a parameter, to which no constant is passed
    ],
)
def test_a_condition_that_is_alike_in_every_round_is_no_reason(condition: str, named: int) -> None:
    source = ACCUMULATES.format(chunks="2", condition=condition)
    calls = [all_reduce(4)] * 2
    waiter = stands(0, *calls, lines=[(13, "<module>"), (8, "epoch"), (4, "step")])
    other = stands(1, all_reduce(4), call("barrier", 9), lines=[(13, "<module>"), (9, "epoch")])
    assert_reason_at(found(waiter, other, source=source), named)


DELAYS = """\
parser.add_argument("--accumulate", default=2)
opts = parser.parse_args()
for at, x in enumerate(loader):
    loss = model(x)
    delay = {delay}
    if not delay:
        dist.all_reduce(loss)
dist.barrier()
"""


@pytest.mark.parametrize(
    ("delay", "named"),
    [
        ("(at + 1) % opts.accumulate != 0", 3),
        ("(at + 1) % opts.accumulate != 0 or loss > 3", 6),
        ("x > 3", 6),
    ],
)
def test_a_condition_on_a_loops_counter_is_no_reason_by_way_of_a_name(
    delay: str, named: int
) -> None:
    waiter = stands(0, *[all_reduce(7)] * 2, lines=[(7, "<module>")])
    other = stands(1, all_reduce(7), call("barrier", 8), lines=[(8, "<module>")])
    assert_reason_at(found(waiter, other, source=DELAYS.format(delay=delay)), named)


HOOKS = """\
class Evaluate:
    def after(self):
        dist.barrier()

class Trainer:
    def hooks(self):
        found = [Timer()]
        if {condition}:
            found.append(Evaluate())
        return found

    def run(self):
        for hook in self.all_hooks:
            hook.after()
        dist.all_reduce(x)

Trainer().run()
"""


@pytest.mark.parametrize(
    ("condition", "named"), [("rank == 0", True), ("rank < 2", False), ("wanted", False)]
)
def test_an_object_that_only_some_ranks_make(condition: str, named: bool) -> None:
    waiter = stands(0, call("barrier", 3), lines=[(17, "<module>"), (14, "run"), (3, "after")])
    other = stands(1, all_reduce(15), lines=[(17, "<module>"), (15, "run")])
    finding = found(waiter, other, source=HOOKS.format(condition=condition))
    assert (finding.cause == "collective-under-rank-condition") is named
    if named:
        assert_reason_at(finding, 8)


GATHERS = """\
def gather(x):
    if rank == 0:
        dist.gather(x, out)
        return out
    dist.gather(x)

for i in range(9):
    gather(x)
    if rank == 0:
        dist.barrier()
    dist.all_reduce(x)
"""


def test_a_condition_after_which_both_ranks_make_the_call_is_no_reason() -> None:
    calls = [call("gather", 3, root=0), call("barrier", 10)]
    waiter = stands(0, *calls, lines=[(10, "<module>")])
    other = stands(1, call("gather", 5, root=0), all_reduce(11), lines=[(11, "<module>")])
    finding = found(waiter, other, source=GATHERS)
    assert finding.cause == "collective-under-rank-condition"
    assert_reason_at(finding, 9)


def loaders(number: int, batches: int) -> RankPartition:
    epoch = Epoch(number=1, batches=batches, samples=batches, trained=batches, where=at(1))
    loader = LoaderPartition(
        name="loader",
        dataset="Subset",
        dataset_size=8,
        sampler="RandomSampler",
        made_at=at(4, function="loader"),
        expected_batches=batches,
        epochs=(epoch,),
    )
    return RankPartition(rank=number, loaders=(loader,))


@pytest.mark.parametrize("batches", [(5, 4), (4, 4)])
def test_loaders_with_which_a_library_trains(batches: tuple[int, int]) -> None:
    source = "trainer.fit(model)\n\ndef loader():\n    return DataLoader(mine())\n"
    waiter = rank(0, all_reduce(1), blocked=True)
    other = rank(1, call("barrier", 1), blocked=True)
    partition = tuple(map(loaders, (0, 1), batches))
    finding = found(waiter, other, source=source, partition=partition)
    differ = batches[0] != batches[1]
    assert finding.cause == ("uneven-iterations" if differ else "different-collectives")
    if differ:
        assert "has 5 batches on rank 0 and 4 on rank 1" in str(
            diagnose(snapshot(waiter, other, source=source, outcome="hung", partition=partition))
        )


@pytest.mark.parametrize(("line", "named"), [(3, True), (6, False)])
def test_a_rank_that_ended_its_script_itself(line: int, named: bool) -> None:
    source = "def check():\n    if late:\n        sys.exit(0)\n\nmain()\nsys.exit(main())\n"
    waiter = rank(0, all_reduce(5), blocked=True)
    gone = replace(rank(1), exited_at=at(line), position=at(line))
    finding = found(waiter, gone, source=source)
    assert (finding.cause == "process-exit") is named
    assert any(one.kind == "ended-itself" for one in finding.facts) is named
    assert finding.places[1].line == line


LAYERS = """\
def forward(x):
    for layer in self.layers:
        dist.all_reduce(layer(x))

for i, x in enumerate(loader):
    forward(x)
    dist.barrier()
"""


@pytest.mark.parametrize(("layers", "line"), [(1, 5), (3, 2)])
def test_a_loop_that_the_absent_rank_ran_as_far_is_no_reason(layers: int, line: int) -> None:
    once = [*[all_reduce(3)] * 2, call("barrier", 7)]
    waiter = stands(0, *once, *[all_reduce(3)] * layers, lines=[(6, "<module>"), (3, "forward")])
    finding = found(waiter, rank(1, *once), source=LAYERS)
    assert finding.cause == "uneven-iterations"
    assert_reason_at(finding, line)


FUNCTION = """\
class Exchange(torch.autograd.Function):
    def forward(ctx, x):
        return dist.all_to_all_single(x)

def main():
    for step in range(len(mine) // size):
        dist.all_reduce(x)
        Exchange.apply(x)
    dist.barrier()
"""


def test_calls_of_an_autograd_function_are_in_the_loop_that_applies_it() -> None:
    applied = call("all_to_all_single", 3, callers=(at(8, function="main"),))
    once = [all_reduce(7), applied]
    waiter = stands(0, *once * 2, all_reduce(7), lines=[(7, "main")])
    finding = found(
        waiter, stands(1, *once * 2, call("barrier", 9), lines=[(9, "main")]), source=FUNCTION
    )
    assert finding.cause == "uneven-iterations"
    assert_reason_at(finding, 6)


SCHEDULE = """\
for step, x in enumerate(loader):
    if x.empty():
        continue
    dist.all_reduce(x)
    if self.step % 5 == 0:
        dist.barrier()
"""


def test_a_schedule_is_a_worse_reason_than_the_data_and_an_interrupt_is_none() -> None:
    waiter = stands(0, all_reduce(4), lines=[(4, "<module>")])
    other = stands(1, call("barrier", 6), lines=[(6, "<module>")])
    assert_reason_at(found(waiter, other, source=SCHEDULE), 2)
    source = "try:\n    work()\n    dist.all_reduce(x)\nexcept KeyboardInterrupt:\n    pass\n"
    assert found(rank(0, all_reduce(3), blocked=True), rank(1), source=source).cause == (
        "rank-skips-collective"
    )


def test_a_list_that_grows_later_may_end_a_loop() -> None:
    source = """\
stop = []
signal(lambda: stop.append(1))
for i in range(3):
    if stop:
        break
    dist.all_reduce(x)
"""
    finding = found(rank(0, all_reduce(6), blocked=True), rank(1), source=source)
    assert finding.cause == "collective-under-local-condition"


RETRIES = """\
def read():
    for attempt in range(3):
        dist.barrier()
        try:
            return load()
        except OSError as error:
            print(error)

read()
dist.all_reduce(x)
"""


@pytest.mark.parametrize("noted_before", [True, False])
def test_a_handler_that_reported_its_error_and_tried_again(noted_before: bool) -> None:
    noted = BranchOutcome(file=at(1).file, line=7, function="read", kind="handled", error="OSError")
    branches = RankBranches(rank=0, outcomes=(noted,), events=(0,), callbacks_only=True)
    calls = [call("barrier", 3), call("barrier", 3, branches_before=int(noted_before))]
    again = stands(0, *calls, lines=[(9, "<module>"), (3, "read")])
    once = stands(1, call("barrier", 3), all_reduce(10), lines=[(10, "<module>")])
    finding = found(again, once, source=RETRIES, branches=(branches,))
    seen = [one for one in finding.facts if one.kind == "parted"]
    assert [one.place.line for one in seen if one.place] == [6] * noted_before
    assert (finding.cause == "exception-swallowed") is noted_before


REPORTS = """\
def run():
    for epoch in range(9):
        if mine == best:
            dist.all_reduce(x)
        train()

def train():
    dist.all_reduce(y)

try:
    run()
except Exception as error:
    print(error)
"""


def test_a_handler_that_reported_the_lost_connection_is_no_reason() -> None:
    noted = BranchOutcome(
        file=at(1).file, line=13, function="<module>", kind="handled", error="RuntimeError"
    )
    branches = RankBranches(rank=1, outcomes=(noted,), events=(0,), callbacks_only=True)
    waits = stands(0, all_reduce(4), lines=[(11, "<module>"), (4, "run")])
    where = at(8, function="train")
    error = replace(peer_error(None, where=where), frames=(at(11), at(5, function="run"), where))
    other = raised(1, replace(all_reduce(8), shapes=((9,),), where=where), error=error)
    finding = found(waits, other, source=REPORTS, branches=(branches,))
    assert finding.cause != "exception-swallowed"


ROUNDS_OR_BREAK = """\
def fit(args, rows):
    for step in range({rounds}):
        dist.all_reduce(x)
        if loss(rows) < args.best:
            break
"""


@pytest.mark.parametrize(
    ("rounds", "line"),
    [("args.steps", 4), ("2 * int(args.steps)", 4), ("len(rows)", 2), ("count(rows)", 2)],
)
def test_a_loop_that_counts_alike_was_left_early(rounds: str, line: int) -> None:
    waiter = stands(0, *[all_reduce(3)] * 3, lines=[(6, "<module>"), (3, "fit")])
    other = rank(1, *[all_reduce(3)] * 2)
    assert_reason_at(found(waiter, other, source=ROUNDS_OR_BREAK.format(rounds=rounds)), line)


RESUMES = """\
first = load(path)["epoch"]
for epoch in range(first, 9):
    dist.all_reduce(x)
"""


@pytest.mark.parametrize("begins", ["first, 9", "9", "0, 9"])
def test_a_loop_that_begins_where_a_run_was_resumed(begins: str) -> None:
    source = RESUMES.replace("first, 9", begins)
    waiter = stands(0, *[all_reduce(3)] * 3, lines=[(3, "<module>")])
    finding = found(waiter, rank(1, *[all_reduce(3)] * 2), source=source)
    named = begins == "first, 9"
    assert finding.cause == ("uneven-iterations" if named else "rank-skips-collective")


OPTIONS = """\
def validate(model, {given}):
    for batch in held_out:
        if {test}:
            dist.all_reduce(x)

options = argparse.Namespace(spread=True, depth=3)
for step in range(9):
    validate(model, {passed})
    dist.barrier()
"""


@pytest.mark.parametrize(
    ("test", "passed", "line"),
    [
        ("spread", "options.spread", 2),
        ("spread and options.depth > 2", "options.spread", 2),
        ("spread", "batch.spread_out", 3),
        ("spread > batch.mean()", "options.spread", 3),
    ],
)
def test_a_condition_on_options_is_the_same_on_all_ranks(test: str, passed: str, line: int) -> None:
    source = OPTIONS.format(given="spread", test=test, passed=passed)
    waiter = stands(0, *[all_reduce(4)] * 3, lines=[(8, "<module>"), (4, "validate")])
    other = stands(1, *[all_reduce(4)] * 2, call("barrier", 9), lines=[(9, "<module>")])
    assert_reason_at(found(waiter, other, source=source), line)


LEAVES = """\
def main():
    if rank > 1:
        return
    dist.all_reduce(x)
    {inner}
    dist.barrier()

{outer}main()
"""


@pytest.mark.parametrize("outer", ["", "for run in runs: "])
def test_a_rank_that_still_stands_in_the_function_has_not_returned_from_it(outer: str) -> None:
    source = LEAVES.format(inner="steps()", outer=outer)
    waiter = stands(0, all_reduce(4), lines=[(8, "<module>"), (4, "main")])
    left = stands(2, call("barrier", 6), lines=[(8, "<module>"), (6, "main")])
    finding = found(waiter, left, source=source)
    assert (finding.cause == "early-exit-on-rank-condition") is bool(outer)


AVERAGES = """\
def mean(x):
    dist.all_reduce(x)

def average(model):
    if model.pending:
        dist.all_reduce(model.grad)

def validate(batches):
    for batch in batches:
        mean(batch)

for step in range(9):
    mean(loss)
    loss.backward()
    if step % 2 == 0 and loss < most:
        validate(held_out)
"""


def held_out(batches: int) -> RankPartition:
    whole = loaders(1, batches)
    epoch = replace(whole.loaders[0].epochs[0], where=at(9, function="validate"))
    return replace(whole, loaders=(replace(whole.loaders[0], epochs=(epoch,)),))


@pytest.mark.parametrize(("rounds", "batches", "line"), [(2, 3, 15), (4, 3, 9)])
def test_a_hook_is_no_reason_and_a_loop_is_one_if_a_rank_ran_it_further(
    rounds: int, batches: int, line: int
) -> None:
    """One rank is in a validation; the other one in a hook that the next ``backward`` calls.

    A helper makes the calls of both, so that they fit for a while.
    """
    step = [all_reduce(2), all_reduce(6)]
    lines = [(16, "<module>"), (10, "validate"), (2, "mean")]
    one = stands(0, *step, *[all_reduce(2)] * rounds, lines=lines)
    before = [all_reduce(2)] * (rounds - 1)
    two = stands(1, *step, *before, all_reduce(6), lines=[(14, "<module>"), (6, "average")])
    two = replace(two, calls=(*two.calls[:-1], replace(two.calls[-1], shapes=((9,),))))
    finding = found(one, two, source=AVERAGES, partition=(held_out(batches),))
    assert_reason_at(finding, line)


STREAMS = """\
def fit(batches):
    for batch in batches:
        dist.all_reduce(x)
        if stopper.has_stopped():
            break

fit(loader)
"""


def delivered(number: int, batches: int) -> RankPartition:
    whole = loaders(number, batches)
    epoch = replace(whole.loaders[0].epochs[0], where=at(2, function="fit"))
    return replace(whole, loaders=(replace(whole.loaders[0], epochs=(epoch,)),))


@pytest.mark.parametrize(("known", "line"), [(True, 2), (False, 4)])
def test_a_break_comes_before_a_loop_whose_numbers_of_batches_are_not_known(
    known: bool, line: int
) -> None:
    waiter = stands(0, *[all_reduce(3)] * 3, lines=[(7, "<module>"), (3, "fit")])
    partition = (delivered(0, 3), delivered(1, 2)) if known else ()
    other = rank(1, *[all_reduce(3)] * 2)
    assert_reason_at(found(waiter, other, source=STREAMS, partition=partition), line)


BUILT = """\
class Trainer:
    def __init__(self, model, ranks):
        super().__init__(model)
        self.ranks = ranks

    def fit(self, batches):
        for batch in batches:
            if self.ranks > 1:
                dist.all_reduce(x)

Trainer(model, {ranks}).fit(loader)
"""


@pytest.mark.parametrize(
    ("ranks", "line"), [('int(os.environ["WORLD_SIZE"])', 7), ("model.ranks", 8)]
)
def test_what_a_class_is_given_when_it_is_made_is_followed(ranks: str, line: int) -> None:
    waiter = stands(0, *[all_reduce(9)] * 3, lines=[(11, "<module>"), (9, "fit")])
    other = rank(1, *[all_reduce(9)] * 2)
    assert_reason_at(found(waiter, other, source=BUILT.format(ranks=ranks)), line)


CHECKS = """\
def gather(x):
    if size(x) > 9:
        raise ValueError(x)
    dist.all_reduce(x)

def step(x):
    {begins}
        gather(x)
{ends}
for x in range(9):
    step(x)
"""


@pytest.mark.parametrize("handled", [False, True])
def test_a_rank_that_finished_has_raised_nothing_that_no_handler_caught(handled: bool) -> None:
    begins, ends = ("try:", "    except ValueError: pass\n") if handled else ("if True:", "")
    source = CHECKS.format(begins=begins, ends=ends)
    lines = [(12 if handled else 11, "<module>"), (8, "step"), (4, "gather")]
    waiter = stands(0, *[all_reduce(4)] * 3, lines=lines)
    finding = found(waiter, rank(1, *[all_reduce(4)] * 2), source=source)
    expected = "collective-under-local-condition" if handled else "rank-skips-collective"
    assert finding.cause == expected


CALLED_BACK = """\
def on_begin(trainer, model):
    if trainer.is_first:
        model.{does}

def step():
    try:
        train()
    except RuntimeError:
        return
    dist.all_reduce(x)

fit(step, on_begin)
dist.barrier()
"""


@pytest.mark.parametrize(("does", "parts"), [("log('rate', 1)", True), ("parameters()", False)])
def test_what_a_callback_only_reads_parts_no_ranks(does: str, parts: bool) -> None:
    ways = [
        BranchOutcome(file=at(1).file, line=2, function="on_begin", kind="branch", to_line=line)
        for line in (3, 0)
    ]
    branches = [
        RankBranches(rank=number, outcomes=(way,), events=(0,), callbacks_only=True)
        for number, way in enumerate(ways)
    ]
    lines = [(12, "<module>"), (10, "step")]
    waiter = stands(0, call("all_reduce", 10, branches_before=1), lines=lines)
    other = stands(1, call("barrier", 13, branches_before=1), lines=[(13, "<module>")])
    finding = found(waiter, other, source=CALLED_BACK.format(does=does), branches=branches)
    assert_reason_at(finding, 2 if parts else 8)
