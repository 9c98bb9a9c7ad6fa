"""The line at which ranks were seen to part, from made-up events."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest

from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.unexplained import lacks_reason
from ddt_notebook.model import Call, Cell, Finding, Position, RankError, RankReport, Snapshot
from ddt_notebook.model.branches import BranchOutcome, RankBranches

FILE = "cell[1]"


@dataclass
class Rank:
    """Events and calls of one rank, in order: ``(line, to_line)``, a handler, or a collective."""

    number: int
    steps: list[object]
    state: str = "finished"
    functions: dict[int, str] = field(default_factory=dict)
    callers: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()

    def report(self) -> tuple[RankReport, RankBranches]:
        outcomes: list[BranchOutcome] = []
        events: list[int] = []
        calls: list[Call] = []
        for step in self.steps:
            if isinstance(step, int):
                where = Position(
                    file=FILE, line=step, function=self.functions.get(step, "<module>")
                )
                calls.append(
                    Call(
                        index=len(calls),
                        op="all_reduce",
                        members=(0, 1),
                        sequence=len(calls) + 1,
                        where=where,
                        shapes=((self.sizes[len(calls)],),) if self.sizes else (),
                        branches_before=len(events),
                    )
                )
                continue
            outcome = self._outcome(step)
            if outcome not in outcomes:
                outcomes.append(outcome)
            events.append(outcomes.index(outcome))
        counted = tuple(replace(o, times=events.count(i)) for i, o in enumerate(outcomes))
        branches = RankBranches(rank=self.number, outcomes=counted, events=tuple(events))
        report = RankReport(rank=self.number, state="finished", calls=tuple(calls))
        if self.state == "blocked":
            last = replace(calls[-1], status="pending")
            assert last.where is not None
            report = replace(
                report,
                state="blocked",
                blocked_in=last.index,
                blocked_s=2.0,
                position=last.where,
                stack=(*(Position(file=FILE, line=n) for n in self.callers), last.where),
                calls=(*calls[:-1], last),
            )
        return report, branches

    def _outcome(self, step: object) -> BranchOutcome:
        assert isinstance(step, tuple)
        line, way, *values = step
        function = self.functions.get(line, "<module>")
        if way == "return":
            return BranchOutcome(file=FILE, line=line, function=function, kind="return")
        if isinstance(way, str):
            kind = "handled" if values else "raised"
            return BranchOutcome(file=FILE, line=line, function=function, kind=kind, error=way)
        known = dict(values[0]) if values else {}
        return BranchOutcome(file=FILE, line=line, function=function, to_line=way, values=known)


def _found(source: str, *ranks: Rank) -> Finding:
    reports = [rank.report() for rank in ranks]
    snapshot = Snapshot(
        cell=Cell(number=1, source=source),
        outcome="hung",
        ranks=tuple(report for report, _ in reports),
        branches=tuple(branches for _, branches in reports),
        groups={"0": (0, 1)},
        world_size=2,
    )
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    return diagnose(snapshot).findings[0]


def _line(finding: Finding) -> int | None:
    return next(
        (f.place.line for f in finding.facts if f.kind == "parted" and f.place is not None), None
    )


STOPS = """for step in range(9):
    dist.all_reduce(x)
    if rank == 0:
        print(step)
    if loss < best:
        break
"""
GOES_ON = [2, (3, 4), (5, 1, {"loss": "0.5"}), (1, 2)]


def test_the_condition_by_which_a_rank_left_is_named_with_its_values() -> None:
    stops = [(1, 2), 2, (3, 5), (5, 6, {"loss": "0.1"})]
    waits = [(1, 2), *GOES_ON, 2]
    found = _found(STOPS, Rank(0, waits, "blocked"), Rank(1, stops))
    assert (found.cause, found.ranks) == ("collective-under-local-condition", [1])
    assert _line(found) == 5, "not the line that lets rank 0 print"
    sides = next(fact.values["sides"] for fact in found.facts if fact.kind == "parted")
    assert sides == (("yes", (1,), (("loss", "0.1"),)), ("no", (0,), (("loss", "0.5"),)))


def test_the_end_of_a_loop_is_named_if_ranks_did_not_part_before() -> None:
    source = "for x in loader:\n    dist.all_reduce(x)\n"
    found = _found(
        source,
        Rank(0, [(1, 2), 2, (1, 2), 2], "blocked"),
        Rank(1, [(1, 2), 2, (1, 0)]),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 1)


def test_a_skipped_iteration_is_named_instead_of_the_end_of_the_loop() -> None:
    source = "for x in loader:\n    if x is None:\n        continue\n    dist.all_reduce(x)\n"
    usual = [(1, 2), (2, 4), 4]
    found = _found(
        source,
        Rank(0, usual * 3, "blocked"),
        Rank(1, [*usual, (1, 2), (2, 3), *usual, (1, 0)]),
    )
    assert (found.cause, _line(found)) == ("collective-under-local-condition", 2)


def test_an_exception_that_a_rank_caught_is_named() -> None:
    source = "try:\n    x = load()\n    dist.all_reduce(x)\nexcept OSError:\n    pass\n"
    raised = [(2, "OSError"), (4, "OSError", "handled"), (4, 5)]
    found = _found(source, Rank(0, [(9, 9), 3], "blocked"), Rank(1, [(9, 9), *raised]))
    assert (found.cause, _line(found)) == ("exception-swallowed", 4)


@pytest.mark.parametrize(
    "again",
    [
        [(2, "Abort"), (3, "Abort", "handled"), (3, "return", 0), (7, "Abort")],
        [(2, "Abort"), (3, "Abort", "handled"), (3, "Abort"), (7, "Abort")],
    ],
    ids=["line events", "sys.monitoring"],
)
def test_a_handler_that_raises_again_does_not_swallow(again: list[object]) -> None:
    source = """def step():
    with timed():
        check()
        dist.all_reduce(x)
for i in range(3):
    try:
        step()
    except Abort:
        break
"""
    functions = {2: "step", 3: "step", 4: "step"}
    found = _found(
        source,
        Rank(0, [(5, 7), 4, (5, 7), 4], "blocked", functions, callers=(7,)),
        Rank(1, [(5, 7), 4, (5, 7), *again, (8, "Abort", "handled"), (8, 9)], functions=functions),
    )
    assert (found.cause, _line(found)) == ("exception-swallowed", 8)


def test_calls_of_one_line_that_met_other_calls() -> None:
    source = """def mean(x):
    dist.all_reduce(x)
for epoch in range(2):
    for x in data:
        mean(x)
    if is_main:
        mean(score)
is_main = rank == 0
"""
    functions = {2: "mean"}
    steps = [(3, 4), (4, 5), 2, (4, 6)]
    found = _found(
        source,
        Rank(0, [*steps, (6, 7), 2, *steps], "blocked", functions),
        Rank(1, [*steps, (6, 3), *steps, (6, 3), (3, 8)], functions=functions),
    )
    assert (found.cause, _line(found)) == ("collective-under-rank-condition", 6)


def test_branches_whose_collectives_met_are_harmless() -> None:
    source = """if rank != 0:
    dist.all_reduce(x)
load()
if rank == 0:
    dist.all_reduce(x)
for x in loader:
    dist.all_reduce(x)
"""
    found = _found(
        source,
        Rank(0, [(1, 3), (4, 5), 5, (6, 7), 7, (6, 7), 7], "blocked"),
        Rank(1, [(1, 2), 2, (4, 6), (6, 7), 7, (6, 0)]),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 6)


@pytest.mark.parametrize("dropped", [0, 5])
def test_without_branch_events_the_source_gives_the_reason(dropped: int) -> None:
    stops = Rank(1, [(1, 2), 2, (3, 5), (5, 6)]).report()
    waits = Rank(0, [(1, 2), *GOES_ON, 2], "blocked").report()
    branches = (replace(waits[1], events_dropped=99), stops[1]) if dropped else ()
    snapshot = Snapshot(
        cell=Cell(number=1, source=STOPS),
        outcome="hung",
        ranks=(waits[0], stops[0]),
        branches=branches,
        groups={"0": (0, 1)},
        world_size=2,
    )
    found = diagnose(snapshot).findings[0]
    assert found.cause == "collective-under-local-condition"


ONE_LINE = """batches = iter(loader)
while True:
    x = next(batches, None)
    if x is None: break
    if bad(x): continue
    dist.all_reduce(x)
"""


@pytest.mark.parametrize(
    ("rounds", "line"), [(["used", "skipped", "used"], 5), (["used", "used"], 4)]
)
def test_a_skipped_batch_is_named_instead_of_the_end_of_the_data(
    rounds: list[str], line: int
) -> None:
    """Without a skipped one, the rank had less data: it left the loop before the other one."""
    ways: dict[str, list[object]] = {"used": [(4, 5), (5, 6), 6], "skipped": [(4, 5), (5, 3)]}
    found = _found(
        ONE_LINE,
        Rank(0, ways["used"] * 3, "blocked"),
        Rank(1, [step for name in rounds for step in ways[name]] + [(4, 0)]),
    )
    assert (found.cause, _line(found)) == ("collective-under-local-condition", line)
    sides = next(fact.values["sides"] for fact in found.facts if fact.kind == "parted")
    assert [(way, ranks) for way, ranks, _ in sides] == [("yes", (1,)), ("no", (0,))]


def _matching(subject: str) -> str:
    return f"""for step in range(3):
    match {subject}:
        case 1:
            continue
        case _:
            pass
    dist.all_reduce(x)
"""


@pytest.mark.parametrize(
    ("subject", "cause"),
    [
        ("poll(step)", "collective-under-local-condition"),
        ("rank", "early-exit-on-rank-condition"),
    ],
)
def test_a_case_of_a_match_is_a_branch(subject: str, cause: str) -> None:
    usual = [(1, 2), (3, 6), 7]
    found = _found(
        _matching(subject),
        Rank(0, usual * 3, "blocked"),
        Rank(1, [*usual, (1, 2), (3, 4), *usual, (1, 0)]),
    )
    assert (found.cause, _line(found)) == (cause, 3)


HELPER = """def mean(x):
    dist.all_reduce(x)
for step in range(3):
    if is_main:
        {body}
    mean(loss)
is_main = rank == 0
"""


@pytest.mark.parametrize(
    ("body", "cause"),
    [("mean(scores)", "collective-under-rank-condition"), ("print(step)", "shape-differs")],
)
def test_calls_of_one_line_of_a_helper_with_different_shapes(body: str, cause: str) -> None:
    """Rank 0 may have called it from another line, or may only have written a log before."""
    extra = body.startswith("mean")
    usual = [(3, 4), (4, 6), 2]
    main = [(3, 4), (4, 5), 2]
    found = _found(
        HELPER.format(body=body),
        Rank(0, main, "blocked", {2: "mean"}, callers=(5 if extra else 6,), sizes=(4,)),
        Rank(1, usual, "blocked", {2: "mean"}, callers=(6,), sizes=(1,)),
    )
    assert found.cause == cause
    assert _line(found) == (4 if extra else None)


def test_the_end_of_the_data_is_caught_as_an_exception() -> None:
    source = """while True:
    try:
        x = next(batches)
    except StopIteration:
        break
    dist.all_reduce(x)
"""
    found = _found(
        source,
        Rank(0, [(9, 9), 6, (9, 9), 6], "blocked"),
        Rank(1, [(9, 9), 6, (9, 9), (4, "StopIteration", "handled"), (4, 5)]),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 4)


CALLBACK = """class Stop:
    def on_step_end(self, trainer):
        {name}
            {arm}
    def on_log(self, trainer):
        if trainer.rank == 0:
            trainer.logged = True
trainer.fit(callbacks=[Stop()])
{after}
"""
WITHIN = {3: "on_step_end", 6: "on_log"}


def _with_callback(stops_at: int, **source: str) -> Finding:
    """Two ranks whose library calls collectives; a callback of rank 1 goes another way once."""
    text = CALLBACK.format(
        **{"name": "if trainer.loss < 1:", "arm": "trainer.should_stop = True", "after": ""}
        | source
    )
    steps: list[list[object]] = [[], []]
    for number in range(6):
        for one, done in enumerate(steps):
            if one and number > stops_at:
                continue
            done += [8, (3, 4 if one and number == stops_at else 0), (6, 0 if one else 7)]
    return _found(
        text,
        Rank(0, [*steps[0], 8], state="blocked", functions=WITHIN),
        Rank(1, steps[1], functions=WITHIN),
    )


@pytest.mark.parametrize(
    ("name", "arm", "cause"),
    [
        ("if trainer.loss < 1:", "trainer.should_stop = True", "collective-under-local-condition"),
        ("if trainer.rank == 1:", "raise StopIteration", "early-exit-on-rank-condition"),
        ("if time.time() > trainer.end:", "return -1", "loop-ends-by-clock"),
    ],
)
@pytest.mark.parametrize("stops_at", [1, 4])
def test_a_callback_that_ends_the_librarys_loop_on_one_rank_is_named(
    name: str, arm: str, cause: str, stops_at: int
) -> None:
    finding = _with_callback(stops_at, name=name, arm=arm)
    assert (_line(finding), finding.cause) == (3, cause)


@pytest.mark.parametrize(
    "source",
    [
        {"arm": "print(trainer.loss)"},  # the library does not see it
        {"arm": "return"},
        {"after": "stop.on_step_end(trainer)"},  # the user's own code calls it
    ],
)
def test_a_callback_that_does_not_end_the_librarys_loop_is_not_named(
    source: dict[str, str],
) -> None:
    finding = _with_callback(1, **source)
    assert finding.kind == "never-entered"
    assert _line(finding) is None


IN_TURN = """def first(is_main):
    if not is_main:
        dist.all_reduce(x)
    yield
    if is_main:
        dist.all_reduce(x)
def setup():
    try:
        with first(rank == 0):
            save()
    except OSError:
        pass
setup()
"""


@pytest.mark.parametrize(
    ("second", "cause", "line"),
    [
        ("dist.all_reduce(x)", "exception-swallowed", 11),
        ("print(x)", "collective-under-rank-condition", 2),
    ],
    ids=["in turn", "one of them alone"],
)
def test_an_exception_that_cut_a_function_short(second: str, cause: str, line: int) -> None:
    """The condition lets the ranks enter their calls one after the other, which is no fault."""
    functions = dict.fromkeys(range(1, 7), "first") | dict.fromkeys(range(7, 13), "setup")
    raised = [(10, "OSError"), (4, "OSError"), (11, "OSError", "handled"), (11, 12)]
    found = _found(
        IN_TURN.replace(
            "if is_main:\n        dist.all_reduce(x)", f"if is_main:\n        {second}"
        ),
        Rank(0, [(2, 3), 3], "blocked", functions, callers=(13, 9)),
        Rank(1, [(2, 4), (10, "return"), *raised], functions=functions),
    )
    assert (found.cause, _line(found)) == (cause, line)


BUDGET = """def batches(items, limit):
    batch = []
    for item in items:
        if len(batch) + item > limit:
            yield batch
            batch = []
        batch.append(item)
for batch in batches(data, 8):
    dist.all_reduce(x)
"""


def test_a_generator_that_forms_fewer_batches_on_a_rank() -> None:
    functions = dict.fromkeys(range(1, 8), "batches")
    full, part = [(3, 4), (4, 5), (8, 9), 9], [(3, 4), (4, 7)]
    found = _found(
        BUDGET,
        Rank(0, [*part, *full, *part, *full], "blocked", functions),
        Rank(1, [*part, *full, *part, *part, (3, 0), (8, 0)], functions=functions),
    )
    assert (found.cause, found.ranks) == ("uneven-iterations", [1])


REGISTERS = """class Summary:
    def epoch_end(self):
        dist.all_reduce(x)
def train():
    for step in range(2):
        dist.all_reduce(x)
    for one in callbacks:
        one.epoch_end()
callbacks = [History()]
if {condition}:
    callbacks.append({added})
{before}
train()
dist.all_reduce(x)
"""


@pytest.mark.parametrize(
    ("condition", "added", "cause", "line"),
    [
        ("rank == 0", "Summary()", "collective-under-rank-condition", 10),
        ("verbose", "Summary()", "collective-under-local-condition", 10),
        ("rank == 0", "Printer()", "uneven-iterations", 7),
    ],
)
def test_a_callback_that_one_rank_registered(
    condition: str, added: str, cause: str, line: int
) -> None:
    source = REGISTERS.format(condition=condition, added=added, before="print(rank)")
    functions = dict.fromkeys((2, 3), "epoch_end") | dict.fromkeys(range(4, 9), "train")
    steps = [(5, 6), 6, (5, 6), 6, (5, 7)]
    found = _found(
        source,
        Rank(0, [(10, 11), *steps, (7, 8), (7, 8), 3], "blocked", functions, callers=(13, 8)),
        Rank(1, [(10, 12), *steps, (7, 8), (7, 0), (4, "return")], functions=functions),
    )
    assert (found.cause, _line(found)) == (cause, line)


RESUMES = """first = 0
if state is not None:
    {body}
for epoch in {rounds}:
    dist.all_reduce(x)
"""


@pytest.mark.parametrize(
    ("body", "rounds", "cause", "line"),
    [
        ("first = state + 1", "range(first, 3)", "collective-under-local-condition", 2),
        ("print(state)", "range(first, 3)", "uneven-iterations", 4),
        ("data = tqdm(data)", "data", "uneven-iterations", 4),
    ],
)
def test_a_condition_that_set_the_first_round(
    body: str, rounds: str, cause: str, line: int
) -> None:
    source = RESUMES.format(body=body, rounds=rounds)
    found = _found(
        source,
        Rank(0, [(2, 4), (4, 5), 5, (4, 5), 5], "blocked"),
        Rank(1, [(2, 3), (4, 5), 5, (4, 0)]),
    )
    assert (found.cause, _line(found)) == (cause, line)


EPOCHS = """for batch in range(9):
    for epoch in range(4):
        dist.all_reduce(x)
        if kl > most:
            break
"""


def test_a_break_comes_before_rounds_that_met_by_chance() -> None:
    """Each rank breaks once, in another epoch, so that the last event only shows the loop's end."""
    goes_on, stops = [(2, 3), 3, (4, 2)], [(2, 3), 3, (4, 5)]
    one = [(1, 2), *stops, (1, 2), *goes_on * 4, (2, 1), (1, 2), *goes_on, *stops, (1, 0)]
    two = [(1, 2), *goes_on * 4, (2, 1), (1, 2), *stops, (1, 2), *goes_on * 3, (2, 3), 3]
    found = _found(EPOCHS, Rank(0, one), Rank(1, two, "blocked"))
    assert (found.cause, _line(found)) == ("collective-under-local-condition", 4)


LOGS = """for step in range(9):
    dist.all_reduce(x)
    if rank == 0:
        if step % 2 == 0:
            for batch in held_out:
                if batch > 4:
                    break
    if stop:
        break
"""


def test_a_break_of_an_inner_loop_does_not_leave_the_outer_one() -> None:
    stops = [(1, 2), 2, (3, 4), (4, 5), (5, 6), (6, 7), (8, 9)]
    waits = [(1, 2), 2, (3, 8), (8, 1), (1, 2), 2]
    found = _found(LOGS, Rank(0, stops), Rank(1, waits, "blocked"))
    assert (found.cause, _line(found)) == ("collective-under-local-condition", 8)


SHARES = """for group in groups:
    for i, p in enumerate(changed):
        if i % 2 == rank:
            update(p)
        dist.all_reduce(p)
dist.all_reduce(x)

def update(p):
    while far(p):
        turn(p)
"""


def test_a_share_of_the_work_is_no_parting_where_both_ranks_go_on_to_the_same_call() -> None:
    """The ranks work on other parameters, and meet by chance; later one has fewer of them."""
    within = {9: "update", 10: "update"}
    work = [(3, 4), (9, 10), (9, 0), (10, "return")]
    mine = [(1, 2), (2, 3), *work, 5, (2, 3), (3, 5), 5, (2, 3), *work, 5]
    theirs = [(1, 2), (2, 3), (3, 5), 5, (2, 3), *work, 5, (2, 1), (1, 6), 6]
    one = Rank(0, mine, "blocked", within, sizes=(1, 1, 1))
    found = _found(SHARES, one, Rank(1, theirs, "blocked", within, sizes=(1, 1, 9)))
    assert (found.cause, _line(found)) == ("uneven-iterations", 2)


ROOTS = """def gather(x):
    if rank == 0:
        dist.all_reduce(x)
        return x
    dist.all_reduce(x)

def build():
    if is_main:
        hooks.append(library.Evaluate())

class Evaluate:
    def after(self):
        dist.all_reduce(x)

build()
for step in range(9):
    gather(x)
    for hook in hooks:
        hook.after()
    dist.all_reduce(y)
"""


def test_the_two_arms_of_one_collective_are_no_parting_and_a_hook_made_on_one_rank_is() -> None:
    within = {2: "gather", 3: "gather", 5: "gather", 8: "build", 13: "after"}
    root = [(16, 17), (2, 3), 3, (3, "return")]
    leaf = [(16, 17), (2, 5), 5, (5, "return")]
    mine = [(8, 9), *root, (18, 19), 13]
    theirs = [(8, 0), *leaf, (18, 20), 20]
    waits = Rank(0, mine, "blocked", within, callers=(19,), sizes=(4, 4))
    found = _found(ROOTS, waits, Rank(1, theirs, "blocked", within, sizes=(4, 9)))
    assert (found.cause, _line(found)) == ("collective-under-rank-condition", 8)


RECORDS = """def reward(x):
    return x
def records(count):
    for number in range(rank, count, 2):
        yield reward(number) + reward(1)
def evaluate():
    for record in records(7):
        if ddp:
            dist.all_reduce(x)
    y = reward(1)
    dist.all_reduce(y)
evaluate()
"""


def test_a_generator_that_is_exhausted_on_one_rank() -> None:
    """Ranks meet by chance later; a condition that never came out differently is no reason."""
    functions = {2: "reward", 4: "records", 5: "records"} | dict.fromkeys((7, 8, 9, 11), "evaluate")
    usual: list[object] = [(4, 5), (2, "return"), (2, "return"), (7, 8), (8, 9), 9]
    ended: list[object] = [*usual, (4, 0), (5, "return"), (7, 0), (2, "return"), 11]
    found = _found(
        RECORDS,
        Rank(0, usual * 2, "blocked", functions, callers=(12,), sizes=(2, 2)),
        Rank(1, ended, "blocked", functions, callers=(12,), sizes=(2, 1)),
    )
    assert (found.cause, _line(found)) == ("uneven-iterations", 4)


def test_a_function_that_says_which_rank_it_is() -> None:
    source = """def is_first(function=None):
    if function is None:
        return not dist.is_initialized() or dist.get_rank() == 0
    def wrapper():
        return function() if is_first() else None
    return wrapper
for step in range(2):
    dist.all_reduce(x)
    if is_first():
        dist.all_reduce(y)
"""
    functions = {3: "is_first", 2: "is_first"}
    asks: list[object] = [(2, 3), (3, "return")]
    found = _found(
        source,
        Rank(0, [(7, 8), 8, *asks, (9, 10), 10], "blocked", functions),
        Rank(1, [(7, 8), 8, *asks, (9, 7), (7, 0)], functions=functions),
    )
    assert (found.cause, _line(found)) == ("collective-under-rank-condition", 9)


JOINED = """for step, batch in enumerate(loader):
    if len(batch) == 0:
        continue
    if out_of_data(join):
        break
    if step % 2 == 0:
        dist.all_reduce(x)
dist.barrier()
"""


def test_a_barrier_that_failed_since_another_rank_had_skipped_it() -> None:
    """The rank that waited left its loop; why the other one was late comes first."""
    join: list[object] = [(1, 2), (2, 4), 4]
    first = [*join, (4, 6), (6, 7), 7]
    left = Rank(0, [*first, *join, (4, 6), (6, 1), *join, (4, 5), 8], "blocked")
    late = Rank(1, [*first, (1, 2), (2, 3), *first], "blocked")
    ranks = []
    for one in (left, late):
        report, branches = one.report()
        made = Counter[str]()
        calls = []
        for call in report.calls:
            assert call.where is not None
            op = {4: "monitored_barrier", 8: "barrier"}.get(call.where.line, call.op)
            group = "1" if op == "monitored_barrier" else "0"
            made[group] += 1
            calls.append(replace(call, op=op, group=group, sequence=made[group]))
        if one is left:
            calls[3] = replace(calls[3], status="failed")
        ranks.append((replace(report, calls=tuple(calls)), branches))
    snapshot = Snapshot(
        cell=Cell(number=1, source=JOINED),
        outcome="hung",
        ranks=tuple(report for report, _ in ranks),
        branches=tuple(branches for _, branches in ranks),
        groups={"0": (0, 1), "1": (0, 1)},
        world_size=2,
    )
    finding = diagnose(snapshot).findings[0]
    assert (finding.cause, _line(finding)) == ("collective-under-local-condition", 2)


class TestRanksThatDied:
    """What a library issued in a process that died is not known."""

    SOURCE = """def train(padded):
    if padded:
        scale = 0
    loss.backward()
    if padded:
        dist.all_reduce(few)
    else:
        dist.all_reduce(many)
train(rank == 1)
"""

    def test_calls_of_a_library_are_not_counted(self) -> None:
        functions = dict.fromkeys(range(2, 9), "train")
        steps: dict[int, list[object]] = {
            0: [(2, 4), 4, (5, 8), 8],
            1: [(2, 3), 4, (5, 6), 6],
        }
        ranks = []
        for number, way in steps.items():
            one = Rank(number, way, "blocked", functions, callers=(9,), sizes=(50, 4 + number))
            report, branches = one.report()
            issued, own = report.calls
            issued = replace(issued, source="flight recorder", caller="DistributedDataParallel")
            if number == 0:
                own = replace(own, index=0)
                report = replace(
                    report,
                    state="died",
                    exit_signal=6,
                    calls=(own,),
                    blocked_in=None,
                    blocked_s=None,
                    crash_text="",
                )
            else:
                report = replace(report, calls=(issued, own))
            ranks.append((report, branches))
        snapshot = Snapshot(
            cell=Cell(number=1, source=self.SOURCE),
            outcome="failed",
            ranks=tuple(report for report, _ in ranks),
            branches=tuple(branches for _, branches in ranks),
            groups={"0": (0, 1)},
            world_size=2,
        )
        finding = diagnose(snapshot).findings[0]
        assert _line(finding) == 5, str(finding)


def test_a_step_in_which_a_trainer_raised_on_one_rank() -> None:
    source = "def step(batch):\n    if batch > 2:\n        return None\n    return batch\n"
    source += "def main():\n    trainer.fit(model)\nmain()"
    ways = {2: "step", 3: "step", 4: "step", 6: "main"}
    goes_on: list[object] = [(2, 4), (4, "return"), 6, (2, 4, {"batch": "1"}), (4, "return"), 6]
    leaves: list[object] = [(2, 4), (4, "return"), 6, (2, 3, {"batch": "7"}), (3, "return")]
    waiter, branches = Rank(0, goes_on, state="blocked", functions=ways).report()
    other, others = Rank(1, leaves, functions=ways).report()
    where = Position(file=FILE, line=6, function="main")
    library = Position(file="/x/site-packages/lightning/pytorch/loops/loop.py", line=9)
    error = RankError(
        type="RuntimeError", message="no loss", where=where, frames=(where, library), at_s=1.0
    )
    snapshot = Snapshot(
        cell=Cell(number=1, source=source),
        outcome="failed",
        ranks=(waiter, replace(other, state="raised", error=error)),
        branches=(branches, others),
        groups={"0": (0, 1)},
        world_size=2,
    )
    finding = diagnose(snapshot).findings[0]
    assert (finding.ranks, _line(finding)) == ([1], 2)
    assert lacks_reason(diagnose(replace(snapshot, branches=())))
    torch = Position(file="/x/site-packages/torch/nn/functional.py", line=9)
    ranks = (waiter, replace(other, state="raised", error=replace(error, frames=(where, torch))))
    assert not lacks_reason(diagnose(replace(snapshot, ranks=ranks, branches=())))


MODES = """for epoch in range(3):
    if loss < best:
        model.eval()
    for batch in loader:
        model(batch)
        dist.all_reduce(gradients)
def forward(self, x):
    if not self.training:
        return x
    dist.all_reduce(mean)
    return x
"""


def test_the_condition_that_set_a_mode_is_named_and_not_the_one_that_asks_for_it() -> None:
    names = {8: "forward", 9: "forward", 10: "forward", 11: "forward"}
    trains = [(1, 2), (2, 4), (4, 5), (8, 10), 10, (11, "return"), 6, (4, 1)]
    waits = [*trains, (1, 2), (2, 4), (4, 5), (8, 10), 10]
    ends = [*trains, (1, 2), (2, 3), (4, 5), (8, 9), (9, "return"), 6]
    sizes = (4, 6, 4)
    found = _found(
        MODES,
        Rank(0, waits, "blocked", names, (5,), sizes),
        Rank(1, ends, "blocked", names, (), (4, 6, 6)),
    )
    assert _line(found) == 2
