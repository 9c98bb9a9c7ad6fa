"""What a program can be asked: places, conditions, paths past calls, and where values go."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from ddt_notebook.model import Call, Position, RankReport
from ddt_notebook.program.async_work import first_change, first_read
from ddt_notebook.program.collective_functions import collective_functions
from ddt_notebook.program.conditions import Conditions
from ddt_notebook.program.escape_paths import EscapePaths
from ddt_notebook.program.gradients import calls_past_wrapper, holds_gradients
from ddt_notebook.program.iterations import comes_again, leads_to
from ddt_notebook.program.parse import Document
from ddt_notebook.program.program import Program
from ddt_notebook.program.result_use import divided_by_world, uses_of_result
from ddt_notebook.program.sharded_values import ShardedValues, slices_by_rank
from ddt_notebook.program.tree import tree_of

FILE = "train.py"


def program(source: str, *, world_size: int = 4, **others: str) -> Program:
    documents = [Document(FILE, dedent(source).strip("\n"))]
    documents += [Document(f"{name}.py", dedent(text)) for name, text in others.items()]
    return Program(documents, world_size)


def at(line: int, file: str = FILE) -> Position:
    return Position(file=file, line=line)


def condition(source: str, of: Program | None = None) -> ast.expr:
    test = ast.parse(source, mode="eval").body
    assert isinstance(test, ast.expr)
    return test


class TestPlaces:
    SOURCE = """
        try:
            start()
        except ValueError:
            if rank == 0:
                raise
            barrier()
        match mode:
            case "a":
                barrier()
        """

    @pytest.mark.parametrize(
        ("line", "owners"),
        [
            (2, ["Try", "Module"]),
            (5, ["If", "ExceptHandler", "Module"]),
            (6, ["ExceptHandler", "Module"]),
            (9, ["match_case", "Module"]),
            (7, ["Module"]),
        ],
    )
    def test_blocks_around_a_line_the_innermost_first(self, line: int, owners: list[str]) -> None:
        cell = program(self.SOURCE)
        blocks = cell.blocks(cell.statement_at(at(line)))
        assert [type(block.owner).__name__ for block in blocks] == owners

    def test_blocks_end_at_the_function(self) -> None:
        cell = program("def f():\n    for x in y:\n        g(x)")
        kinds = [type(b.owner) for b in cell.blocks(cell.statement_at(at(3)))]
        assert kinds == [ast.For, ast.FunctionDef]

    def test_what_follows_a_statement_ends_with_its_function(self) -> None:
        cell = program("def f():\n    if a:\n        b()\n        c()\n    d()\ne()")
        statement = cell.statement_at(at(3))
        assert statement is not None
        rest, function = cell.following(statement)
        assert [[one.lineno for one in block] for block in rest] == [[4], [5]]
        assert function is not None
        assert function.name == "f"

    def test_a_line_without_code_has_no_statement(self) -> None:
        assert program("x = 1\n\ny = 2").statement_at(at(2)) is None
        assert program("x = 1").statement_at(at(1, "other.py")) is None

    def test_documents_share_their_names(self) -> None:
        both = program("dist.barrier()", helper="def sync():\n    dist.barrier()")
        assert [both.place(call).file for call in both.calls("barrier")] == [FILE, "helper.py"]
        assert "sync" in collective_functions(both)

    def test_a_document_is_read_once(self) -> None:
        document = Document(FILE, "x = 1")
        one, other = Program([document], 2), Program([document], 4)
        assert one.trees[FILE] is other.trees[FILE] is tree_of(document)

    def test_text_that_is_not_python_is_left_out(self) -> None:
        assert list(program("x = 1", broken="def f(:").trees) == [FILE]


class TestConditions:
    PROGRAM = """
        rank = dist.get_rank()
        first = rank == 0
        started = time.monotonic()
        def is_last():
            return rank == world_size - 1
        def save(sync):
            pass
        save(sync=first)
        limit = 3
        class Saver:
            @property
            def writes(self):
                return dist.get_rank() == 0
            @functools.cached_property
            def enough(self):
                return self.saved > limit
        """

    @pytest.mark.parametrize(
        ("test", "on"),
        [
            ("rank == 0", [0]),
            ("first", [0]),
            ("not first", [1, 2, 3]),
            ("sync", [0]),
            ("is_last()", [3]),
            ("dist.get_rank() in (1, 2)", [1, 2]),
            ("accelerator.is_main_process", [0]),
            ("is_main_process()", [0]),
            ("rank % 2 == 1 and rank > 1", [3]),
            ("rank >= limit", [3]),
            ("0 < rank < 3", [1, 2]),
            ("self.writes", [0]),
        ],
    )
    def test_conditions_on_the_rank_are_known_on_every_rank(self, test: str, on: list[int]) -> None:
        cell = program(self.PROGRAM)
        assert cell.conditions.reads_rank(condition(test))
        assert [rank for rank in range(4) if cell.truth(condition(test), rank)] == on

    @pytest.mark.parametrize("test", ["loss > 3", "rank == other", "rank // 0", "f(rank)"])
    def test_other_conditions_are_unknown(self, test: str) -> None:
        assert program(self.PROGRAM).truth(condition(test), 0) is None

    @pytest.mark.parametrize("test", ["loss > 3", "frank == 0", "limit > 2", "self.enough"])
    def test_conditions_that_do_not_read_the_rank(self, test: str) -> None:
        assert not program(self.PROGRAM).conditions.reads_rank(condition(test))

    @pytest.mark.parametrize(
        "test",
        [
            "mpu.get_tensor_model_parallel_rank() == 0",
            "parallel_state.is_pipeline_last_stage(ignore_virtual=True)",
            "mesh.get_local_rank('tp') == 0",
            "self.tp_rank == 0",
            "is_writer",
        ],
    )
    def test_conditions_on_the_place_in_a_group_depend_on_the_rank(self, test: str) -> None:
        """Which ranks they hold on is not known from the source."""
        cell = program("is_writer = mpu.get_data_parallel_rank() == 0 and get_rank(group) == 0")
        assert cell.conditions.reads_rank(condition(test))
        assert cell.conditions.reads_place_in_group(condition(test)) is ("mesh" not in test)

    @pytest.mark.parametrize(
        "test",
        [
            "mpu.get_tensor_model_parallel_src_rank() == source",
            "mpu.get_data_parallel_world_size() > 1",
            "matrix_rank(weight) > 3",
            "lora_rank > 8",
        ],
    )
    def test_ranks_of_others_and_of_matrices_do_not(self, test: str) -> None:
        assert not program("limit = 3").conditions.reads_rank(condition(test))

    def test_names_that_are_bound_in_both_branches(self) -> None:
        """If ranks differ in such a name, the rank decides, unless something else is bound too."""
        cell = program(
            """
            if "RANK" in os.environ:
                number = int(os.environ["RANK"])
                is_master = number == 0
                writes = number == 0
            else:
                number = 0
                is_master = True
                writes = has_space()
            """
        )
        assert cell.conditions.reads_rank(condition("is_master"))
        assert not cell.conditions.reads_rank(condition("writes"))

    def test_values_that_are_a_constant_on_the_other_ranks(self) -> None:
        cell = program(
            """
            verbose = 1 if rank == 0 else 0
            writer = Writer(folder) if rank == 0 else None
            first = hvd.rank() == 0
            kept = Kept(rank) if enabled else None
            """
        )
        for name in ("verbose", "writer", "first"):
            assert cell.conditions.reads_rank(condition(name))
        assert not cell.conditions.reads_rank(condition("kept"))

    @pytest.mark.parametrize(
        ("test", "reads"),
        [
            ("time.time() > started", True),
            ("started > 3", True),
            ("datetime.datetime.now() > end", True),
            ("model.time() > 3", False),
            ("limit > 3", False),
        ],
    )
    def test_conditions_that_read_a_clock_are_recognised(self, test: str, reads: bool) -> None:
        assert program(self.PROGRAM).conditions.reads_clock(condition(test)) == reads

    @pytest.mark.parametrize(
        ("test", "reads"),
        [
            ("budget.exhausted()", True),
            ("budget.over", True),
            ("budget.late()", True),
            ("budget.limit > 3", False),
            ("budget.report()", False),
        ],
    )
    def test_a_clock_that_another_function_reads(self, test: str, reads: bool) -> None:
        source = """
            class Budget:
                @property
                def over(self):
                    return self.exhausted()

                def exhausted(self):
                    return self.elapsed() > self.limit

                def late(self):
                    if self.exhausted():
                        return True
                    return False

                def report(self):
                    print(self.elapsed())
                    return self.limit

                def elapsed(self):
                    return time.monotonic() - self.started
            """
        assert program(source).conditions.reads_clock(condition(test)) == reads

    @pytest.mark.parametrize(
        ("call", "agreed"),
        [
            ("dist.all_reduce(flag)", True),
            ("dist.broadcast_object_list(object_list=flag)", True),
            ("dist.all_gather_object(flag, mine)", True),
            ("dist.all_gather(parts, flag)", False),
            ("dist.reduce(flag, 0)", False),
        ],
    )
    def test_a_collective_makes_its_result_equal_and_not_its_input(
        self, call: str, agreed: bool
    ) -> None:
        tree = ast.parse(f"{call}\nflag > 0")
        test = tree.body[1]
        assert isinstance(test, ast.Expr)
        assert Conditions([list(ast.walk(tree))]).is_agreed(test.value) == agreed

    def test_conditions_that_only_one_rank_meets(self) -> None:
        cell = program("""
            if rank == 1:
                once()
            for step in range(9):
                if rank == 1:
                    wait()
                if rank > 1 or rank == step:
                    pass
            """)
        assert [place.line for place in cell.conditions_only_on(1, FILE)] == [4]
        assert not cell.conditions_only_on(0, FILE)


def called(line: int, *, file: str = FILE) -> Call:
    return Call(index=0, op="barrier", where=at(line, file))


class TestPathsPastACall:
    def cause(self, source: str, line: int, rank: int = 1, **others: str) -> str | None:
        paths = EscapePaths(program(source, **others), {})
        caller, absent = RankReport(rank=0), RankReport(rank=rank)
        reason = paths.why_absent(called(line), caller, absent, None)
        return reason.cause if reason is not None else None

    @pytest.mark.parametrize(
        ("source", "line", "cause"),
        [
            ("if rank == 0:\n    barrier()", 2, "collective-under-rank-condition"),
            ("if rank < 2:\n    barrier()", 2, None),
            ("if loss > 3:\n    barrier()", 2, "collective-under-local-condition"),
            (
                "def f():\n    if rank == 1:\n        return\n    barrier()",
                4,
                "early-exit-on-rank-condition",
            ),
            (
                "try:\n    g()\nexcept E:\n    if rank == 1:\n        return\n    barrier()",
                6,
                "early-exit-on-rank-condition",
            ),
            ("match rank:\n    case 0:\n        barrier()", 3, "collective-under-rank-condition"),
            ("barrier()", 1, None),
        ],
    )
    def test_the_cause_of_a_path_past_a_call(
        self, source: str, line: int, cause: str | None
    ) -> None:
        assert self.cause(source, line) == cause

    def test_a_path_past_a_call_in_a_function_of_another_file(self) -> None:
        helper = "def sync():\n    barrier()"
        paths = EscapePaths(program("if rank == 0:\n    sync()", helper=helper), {})
        caller, absent = RankReport(rank=0), RankReport(rank=1)
        reason = paths.why_absent(called(2, file="helper.py"), caller, absent, None)
        assert reason is not None
        assert reason.place.file == FILE
        assert reason.place.line == 1

    @pytest.mark.parametrize(
        ("source", "line", "again"),
        [
            ("for x in y:\n    all_reduce(x)", 2, True),
            ("all_reduce(x)\nall_reduce(y)", 1, True),
            ("all_reduce(x)\nall_reduce(y)", 2, False),
        ],
    )
    def test_whether_a_call_comes_again(self, source: str, line: int, again: bool) -> None:
        assert comes_again(program(source), at(line), "all_reduce") is again
        assert comes_again(program(source), at(line, "other.py"), "all_reduce") is None


class TestValues:
    def test_a_reduced_value_that_a_rank_prints(self) -> None:
        cell = program("""
            dist.reduce(loss, dst=0)
            mean = loss.item() / 4
            if rank != 0:
                print(mean)
            """)
        uses = uses_of_result(cell, at(1), "reduce", [0, 1], frozenset())
        assert list(uses) == [1]
        assert (uses[1].kind, uses[1].place.line, uses[1].scaled) == ("print", 4, True)

    @pytest.mark.parametrize(
        ("source", "line"),
        [
            ("all_reduce(x)\ny = x / world_size", 2),
            ("all_reduce(x)\nx.div_(dist.get_world_size())", 2),
            ("all_reduce(x)\nx /= args.world_size", 2),
            ("all_reduce(x)\nx = f()\ny = x / world_size", None),
            ("all_reduce(x)\ny = x / 3", None),
        ],
    )
    def test_the_line_that_divides_by_the_number_of_ranks(
        self, source: str, line: int | None
    ) -> None:
        found = divided_by_world(program(source), at(1), "all_reduce")
        assert (found.line if found else None) == line

    def test_work_that_is_not_waited_for(self) -> None:
        cell = program("work = isend(x, 1)\nx += 1\nprint(x)\nwork.wait()")
        change, read = (f(cell, at(1), "isend") for f in (first_change, first_read))
        assert change is not None
        assert change.line == 2
        assert read is not None
        assert read.line == 2
        waited = program("work = isend(x, 1)\nwork.wait()\nx += 1")
        assert first_change(waited, at(1), "isend") is None

    @pytest.mark.parametrize(
        ("kept", "line"),
        [
            ("parts.append(x)", 3),
            ("self.parts[name] = x", 3),
            ("parts += [x]", 2),
            ("pending.append((work_of, {'part': x}))", 3),
            ("parts.append(x * 2)", 2),
            ("log.append(x.item())", 2),
        ],
    )
    def test_a_list_that_keeps_a_tensor_does_not_read_it(self, kept: str, line: int) -> None:
        """Sharded optimizers collect the buffers, then wait, and then read them."""
        cell = program(f"works.append(irecv(x, 1))\n{kept}\nprint(x)")
        read = first_read(cell, at(1), "irecv")
        assert read is not None
        assert read.line == line

    @pytest.mark.parametrize(
        ("source", "slices"),
        [
            ("shard = data[rank * 4 : rank * 4 + 4]", True),
            ("lo, hi = bounds(rank, len(data))\nshard = data[lo:hi]", True),
            ("shard = batch.chunk(4)[rank]", True),
            ("name = names[rank]", False),
            ("shard = data[3:5]", False),
        ],
    )
    def test_programs_that_take_a_part_by_the_rank(self, source: str, slices: bool) -> None:
        assert slices_by_rank(program(source)) is slices

    def test_values_of_a_shard(self) -> None:
        cell = program("""
            shard = data[rank::4]
            for x in shard:
                correct += hits(x)
            total = len(data)
            """)
        assert {name for value in ShardedValues(cell) for name in value.names} == {
            "shard",
            "correct",
        }

    def test_calls_past_the_wrapper(self) -> None:
        cell = program(
            """
            with torch.no_grad():
                ddp.module(x)
            ddp.module(x)
            """,
            earlier="ddp.module(x)\ndef f():\n    ddp.module(x)",
        )
        found = [(place.file, place.line) for place in calls_past_wrapper(cell, FILE)]
        assert found == [(FILE, 3), ("earlier.py", 3)]

    @pytest.mark.parametrize(
        ("call", "past"),
        [
            ("net = unwrap(ddp)\n    net.train()\n    net(x)", 3),
            ("unwrap(ddp)(x)", 1),
            ("net = ddp.module\n    net(x)", 2),
            ("net = peel(ddp)\n    net(x)", 2),
            ("net = ddp\n    net(x)", None),
            ("net = same(ddp)\n    net(x)", None),
            ("net = unwrap(ddp)\n    net.state_dict()", None),
        ],
    )
    def test_a_module_that_a_function_takes_out_of_its_wrapper(
        self, call: str, past: int | None
    ) -> None:
        cell = program("""
            def unwrap(model):
                return model.module if hasattr(model, "module") else model
            def peel(model):
                while hasattr(model, "module"):
                    model = model.module
                return model
            def same(model):
                return model
            def step(ddp, x):
                pass
            """)
        source = cell.trees[FILE].document.source.replace("pass", call)
        found = [place.line - 9 for place in calls_past_wrapper(program(source), FILE)]
        assert found == ([] if past is None else [past])


def test_the_work_grows_with_the_length_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with its square, as it would if each question walked through the whole program."""

    def visits(functions: int) -> int:
        source = "shard = data[rank::4]\n" + "\n".join(
            f"def f{i}(x, y):\n    a{i} = x + y\n    return a{i}\nb{i} = f{i}(shard, {i})"
            for i in range(functions)
        )
        count = 0
        walk = ast.iter_child_nodes

        def counted(node: ast.AST) -> object:
            nonlocal count
            count += 1
            return walk(node)

        with monkeypatch.context() as patch:
            patch.setattr(ast, "iter_child_nodes", counted)
            list(ShardedValues(program(source)))
        return count

    small, large = visits(20), visits(80)
    assert small > 0
    assert large < 8 * small


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("for p in model.parameters():\n    dist.all_reduce(p.grad)\n", True),
        ("found = [p.grad for p in ps]\nfor g in found:\n    dist.all_reduce(g)\n", True),
        (
            "flat = []\nfor p in ps:\n    flat.append(p.grad)\ndist.all_reduce(torch.cat(flat))\n",
            True,
        ),
        ("self.kept = p.grad\ndist.all_reduce(self.gradual)\n", False),
        ("total = p.grad\nloss = f(x)\ndist.all_reduce(loss)\n", False),
    ],
)
def test_what_is_made_from_gradients(source: str, expected: bool) -> None:
    read = program(source)
    (call,) = read.calls("all_reduce")
    assert holds_gradients(read, call) is expected


def test_a_method_is_not_the_function_of_the_file_that_has_its_name() -> None:
    source = "def train():\n    loss.backward()\n\nmodel.train()\ntrain()\n"
    found = program(source)
    method, function = (found.statement_at(at(line)) for line in (4, 5))
    assert method is not None
    assert function is not None
    assert not leads_to(found, method, at(2))
    assert leads_to(found, function, at(2))
