"""What the interpreter records of a program, rank by rank."""

from __future__ import annotations

import textwrap

import pytest

from ddt_notebook.program.deadlock import Stuck, deadlock
from ddt_notebook.program.parse import Document
from ddt_notebook.program.trace import GroupCall, Kind, Loop, calls
from ddt_notebook.program.trace_comparison import Divergence, Reason, divergences
from ddt_notebook.program.traced_program import TracedProgram
from ddt_notebook.program.tree import tree_of
from ddt_notebook.program.values import CLOCK, LOCAL, RANK, HeldElsewhere, InFlight


def traced(source: str, world_size: int = 2) -> TracedProgram:
    tree = tree_of(Document("cell", textwrap.dedent(source)))
    assert tree is not None
    return TracedProgram(tree, world_size)


def ops(program: TracedProgram, rank: int = 0) -> list[str]:
    """Names of the calls of a rank."""
    return [call.op for call in calls(program.traces[rank].items)]


def only(program: TracedProgram) -> Divergence:
    (found,) = {(one.reason, one.line): one for one in divergences(program.traces)}.values()
    return found


def test_each_rank_goes_its_own_way() -> None:
    program = traced("""
        if rank == 0:
            dist.barrier()
        else:
            dist.broadcast(x, src=0)
    """)
    assert [ops(program, rank) for rank in range(2)] == [["barrier"], ["broadcast"]]
    (call,) = calls(program.traces[1].items)
    assert call.root == 0
    assert [(one.line, one.branch, one.marks) for one in call.differing] == [
        (2, 1, frozenset({RANK}))
    ]


@pytest.mark.parametrize(
    ("source", "times"),
    [
        ("for i in range(3): dist.barrier()", 3),
        ("[dist.barrier() for i in range(3)]", 3),
        ("def f(n):\n    for _ in range(n): dist.barrier()\nf(3)", 3),
        ("while i < n: dist.barrier()", 1),
        ("for batch in loader: dist.barrier()", 1),
        ("print(dist.all_reduce(x))", 1),
        ("first().second(dist.barrier()).third().item()", 1),
    ],
)
def test_calls_are_recorded_once_for_each_time_they_are_made(source: str, times: int) -> None:
    assert len(ops(traced(source))) == times


def test_a_loop_of_unknown_length_is_followed_once() -> None:
    program = traced("for batch in loader:\n    dist.barrier()")
    (loop,) = program.traces[0].items
    assert isinstance(loop, Loop)
    assert loop.iterations is None
    assert isinstance(loop.body[0], GroupCall)


def test_functions_are_followed_with_their_arguments() -> None:
    program = traced("""
        def main_only(rank, flag):
            return rank == 0 and flag

        class Trainer:
            def __init__(self, rank):
                self.chief = main_only(rank, True)

            def save(self):
                if self.chief:
                    dist.barrier()

        Trainer(rank).save()
    """)
    assert [ops(program, rank) for rank in range(2)] == [["barrier"], []]


def test_functions_that_nothing_calls_have_a_trace_of_their_own() -> None:
    program = traced("def step(rank):\n    if rank: dist.barrier()")
    whole, function = program.passages
    assert not list(calls(whole.traces[1].items))
    assert [call.op for call in calls(function.traces[1].items)] == ["barrier"]
    assert not function.called


@pytest.mark.parametrize(
    ("expression", "mark"),
    [
        ("dist.get_rank()", RANK),
        ('int(os.environ["RANK"])', RANK),
        ("time.time() - start", CLOCK),
        ("torch.tensor(float(rank)).mean()", LOCAL),
    ],
)
def test_values_carry_what_they_depend_on(expression: str, mark: object) -> None:
    program = traced(f"print({expression})")
    (shown,) = program.traces[1].of(Kind.SHOWN)
    assert mark in shown.values[0].marks


def test_a_collective_makes_its_result_equal_and_not_its_input() -> None:
    program = traced("""
        mine = torch.tensor(float(rank))
        dist.all_gather(parts, mine)
        print(mine)
        dist.all_reduce(mine)
        print(mine)
    """)
    before, after = program.traces[1].of(Kind.SHOWN)
    assert before.values[0].differs
    assert not after.values[0].differs


def test_reads_of_results_that_have_not_arrived() -> None:
    program = traced("""
        work = dist.all_reduce(loss, async_op=True)
        print(loss.item())
        work.wait()
        print(loss.item())
        dist.reduce(loss, dst=0)
        print(loss.item())
    """)
    early = program.traces[1].of(Kind.READ_IN_FLIGHT)
    assert {(event.line, event.about) for event in early} == {
        (3, InFlight("all_reduce", 2, "loss"))
    }
    elsewhere = [trace.of(Kind.READ_ELSEWHERE) for trace in program.traces]
    assert not elsewhere[0]
    assert {(event.line, event.about) for event in elsewhere[1]} == {
        (7, HeldElsewhere(0, 6, "loss"))
    }


def test_objects_of_libraries_record_their_calls() -> None:
    program = traced("""
        model = DDP(torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.no_sync():
            model(x).sum().backward()
        optimizer.step()
    """)
    (wrapper,) = program.first.made("DistributedDataParallel")
    (optimizer,) = program.first.made("SGD")
    assert wrapper.methods >= {"__call__", "no_sync"}
    assert optimizer.methods == {"step"}
    assert [event.op for event in program.first.of(Kind.BACKWARD)] == ["no_sync"]


@pytest.mark.parametrize(
    ("source", "reason", "line", "decided_at"),
    [
        ("if rank == 0:\n    dist.barrier()", Reason.RANK_CONDITION, 2, 1),
        (
            "loss = torch.tensor(float(rank))\nif loss.item() > 3:\n    dist.barrier()",
            Reason.LOCAL_CONDITION, 3, 2,
        ),
        (
            "def f():\n    if rank: return\n    dist.barrier()\nf()",
            Reason.RANK_EXIT, 3, 2,
        ),
        ("while time.time() < end:\n    dist.barrier()", Reason.CLOCK_LOOP, 2, 1),
        ("for i in range(rank + 2):\n    dist.barrier()", Reason.UNEVEN_LOOP, 2, 1),
        ("dist.broadcast(x, src=rank)", Reason.ROOT_DIFFERS, 1, 0),
        (
            "if rank:\n    dist.barrier()\nelse:\n    dist.all_reduce(x)",
            Reason.DIFFERENT_CALLS, 4, 1,
        ),
    ],
)  # fmt: skip
def test_why_ranks_make_different_calls(
    source: str, reason: Reason, line: int, decided_at: int
) -> None:
    found = only(traced(source))
    assert (found.reason, found.line, found.decided_at) == (reason, line, decided_at)


@pytest.mark.parametrize(
    "source",
    [
        "if rank == 0:\n    print(1)\ndist.barrier()",
        "for i in range(3):\n    dist.barrier()",
        "if rank == 0:\n    dist.barrier()\nelse:\n    dist.barrier()",
        "dist.all_reduce(x)\nif x.item() > 3:\n    dist.barrier()",
    ],
)
def test_ranks_that_make_the_same_calls(source: str) -> None:
    assert not list(divergences(traced(source).traces))


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("dist.recv(x, src=1 - rank)\ndist.send(x, dst=1 - rank)", Stuck.ALL_RECEIVE),
        ("if rank == 0:\n    dist.recv(x, src=1)", Stuck.NEVER_SENT),
        (
            "if rank == 0:\n    dist.send(x, dst=1, tag=1)\nelse:\n    dist.recv(x, src=0, tag=2)",
            Stuck.TAG_DIFFERS,
        ),
        ("dist.send(x, dst=1 - rank)\ndist.recv(x, src=1 - rank)", None),
    ],
)
def test_messages_are_played_through(source: str, why: Stuck | None) -> None:
    found = deadlock(traced(source).traces)
    assert (found.why if found else None) is why


def test_a_program_without_end_is_given_up() -> None:
    deep = "\n".join(f"def f{i}():\n    f{i + 1}()\n    f{i + 1}()" for i in range(30))
    assert not traced(f"{deep}\ndef f30(): dist.barrier()\nf0()").traces


def test_questions_about_the_source() -> None:
    program = traced("""
        '''A docstring that mentions all_reduce and cuda.'''
        # dist.barrier()
        import torch.distributed as dist
        from accelerate import Accelerator
        device = "cuda:0"
        dist.init_process_group("gloo")
    """)
    assert program.calls("init_process_group")
    assert not program.calls("all_reduce", "barrier")
    assert program.tree.imports("accelerate", "deepspeed")
    assert not program.tree.imports("torch.dist")
    assert program.tree.strings == {"cuda:0", "gloo"}
    assert program.is_distributed
    assert not traced("print(0)").is_distributed
