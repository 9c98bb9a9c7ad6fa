"""Lint of code without running it: faults are found, and correct programs stay quiet."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddt_notebook.diagnosis.advice import causes
from ddt_notebook.diagnosis.lint import lint
from ddt_notebook.diagnosis.wording import SHOWN, TITLES
from ddt_notebook.faults import card, card_ids
from ddt_notebook.model import Finding, Place
from ddt_notebook.program import interpreter

HERE = Path(__file__).parent
RULES = Path(lint.__code__.co_filename).parent
FIXTURES = HERE.parent.parent / "fixtures"


def cases(*names: str) -> Iterator[dict[str, Any]]:
    for name in names:
        yield from tomllib.loads((HERE / f"{name}.toml").read_text())["case"]


def faults(source: str) -> list[Finding]:
    """Findings without the hints."""
    return [finding for finding in lint(source) if finding.confidence != "possible"]


def line_of(finding: Finding) -> int:
    place = finding.facts[0].place
    assert place is not None
    assert place.role == "source"
    return place.line


@pytest.mark.parametrize("case", list(cases("lint_faults")), ids=lambda case: case["name"])
def test_a_fault_is_found_at_its_line(case: dict[str, Any]) -> None:
    found = lint(case["source"].lstrip("\n"))
    assert found, "nothing was found"
    assert [(f.cause, line_of(f)) for f in found][:1] == [(case.get("cause"), case["line"])]


@pytest.mark.parametrize("case", list(cases("lint_healthy")), ids=lambda case: case["name"])
def test_tutorials_are_silent(case: dict[str, Any]) -> None:
    assert not lint(case["source"])


def test_the_early_exit_before_the_call_is_shown() -> None:
    name = "only-rank-0-restores-before-it-stops"
    source = next(case["source"] for case in cases("lint_faults") if case["name"] == name)
    (found,) = lint(source.lstrip("\n"))
    assert [fact.place and fact.place.line for fact in found.facts] == [17, 3]


def test_a_fault_that_another_file_may_prevent_is_a_hint() -> None:
    program = """
from torch.nn.parallel import DistributedDataParallel
from src.utils import set_up
set_up(args)
model = DistributedDataParallel(Net().cuda(), device_ids=[args.gpu])
for x in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
    model(x).mean().backward()
"""
    (found,) = lint(program)
    assert (found.cause, found.confidence) == ("all-ranks-on-one-gpu", "possible")
    (found,) = lint(program.replace("set_up(args)", 'dist.init_process_group("nccl")'))
    assert (found.cause, found.confidence) == ("all-ranks-on-one-gpu", "likely")


STREAM = """
import random
from torch.utils.data import DataLoader, IterableDataset
from parts import my_part

class Stream(IterableDataset):
    def __init__(self, items):
        self.items = items
    def __iter__(self):
        yield from ITEMS

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DDP(torch.nn.Linear(1, 1))
for x in DataLoader(Stream(list(range(8))), num_workers=WORKERS):
    model(x).mean().backward()
"""


@pytest.mark.parametrize(
    ("workers", "cause"), [(0, "iterable-not-sharded"), (2, "workers-repeat-stream")]
)
@pytest.mark.parametrize(
    ("items", "confidence"),
    [
        ("self.items", "likely"),
        ("my_part(self.items)", "possible"),
        ("self.items.part()", "possible"),
        ("(random.random() for _ in self.items)", "possible"),
    ],
)
def test_a_stream_that_an_unknown_function_may_divide_is_a_hint(
    workers: int, cause: str, items: str, confidence: str
) -> None:
    (found,) = lint(STREAM.replace("ITEMS", items).replace("WORKERS", str(workers)))
    assert (found.cause, found.confidence) == (cause, confidence)


def test_the_word_worker_in_a_string_divides_no_stream() -> None:
    source = STREAM.replace("ITEMS", "(('worker', x) for x in self.items)").replace("WORKERS", "2")
    (found,) = lint(source)
    assert (found.cause, found.confidence) == ("workers-repeat-stream", "likely")


#: An object that members of a group make, but no code in this file.
SEARCH = """
import torch.distributed as dist

def search(objective, study, values):
    if dist.get_rank() == 0:
        def trial(values):
            dist.broadcast_object_list([values], src=0)
            objective(values)
        study.optimize(trial)
    else:
        dist.broadcast_object_list(values, src=0)
"""
OF_MEMBERS = """
class A:
    def __init__(self):
        self.group = dist.new_group([1, 2])
    def run(self):
        dist.barrier(group=self.group)
print()
"""

#: A batch may fail on one rank, which then notes that in a tensor.
SWALLOWED = """
for x in DataLoader(data, sampler=DistributedSampler(data)):
    flag = 0
    try:
        y = prepare(x)
        dist.broadcast(y, 0)
    except RuntimeError:
        flag = 1
    failed = torch.tensor([flag])
"""


@pytest.mark.parametrize(
    ("program", "doubt"),
    [
        (
            "def save(it):\n    if it.flag:\n        dist.barrier()\nif rank == 0: save(config)\n",
            ("if it.flag:", "if True:"),
        ),
        (
            OF_MEMBERS,
            ("print()", "A().run()"),
        ),
        (
            SEARCH,
            ("            dist.broadcast_object_list([values], src=0)\n", ""),
        ),
        (
            SWALLOWED + "    dist.all_reduce(failed)\n",
            ("    dist.all_reduce(failed)\n", ""),
        ),
        (
            'import torch_other\ndist.init_process_group("occl")\n',
            ("import torch_other", "import torch"),
        ),
    ],
)
def test_a_fault_that_the_program_may_exclude_elsewhere_is_a_hint(
    program: str, doubt: tuple[str, str]
) -> None:
    assert [finding.confidence for finding in lint(program)] == ["possible"]
    assert [finding.confidence for finding in lint(program.replace(*doubt))] != ["possible"]


def test_a_result_given_to_an_unknown_function_is_a_hint() -> None:
    program = 'from tools import note\ndist.reduce(loss, 0)\nnote(f"{loss}")\n'
    (found,) = lint(program)
    assert (found.cause, found.confidence) == ("reduce-read-on-wrong-rank", "possible")
    (found,) = lint(program.replace("note(", "print("))
    assert (found.cause, found.confidence) == ("reduce-read-on-wrong-rank", "likely")
    assert found.values["tensor"] == "loss"


@pytest.mark.parametrize("name", ["healthy", "held_out_healthy"])
def test_healthy_cells_are_silent(name: str) -> None:
    cells = tomllib.loads((FIXTURES / f"{name}.toml").read_text())["case"]
    accused = {
        case["name"]: found
        for case in cells
        for part in ("earlier", "source", "then")
        if (found := faults(case.get(part, "")))
    }
    assert not accused


@pytest.mark.parametrize(
    "path", sorted((FIXTURES / "training_scripts").glob("*.py")), ids=lambda path: path.stem
)
def test_training_scripts_are_silent(path: Path) -> None:
    assert not lint(path.read_text(), name=path.name)


@pytest.mark.parametrize("name", card_ids())
def test_repaired_cards_are_silent(name: str) -> None:
    one = card(name)
    for cell in (one.fixed, one.setup, one.proof):
        assert not faults(cell)


def test_most_cards_are_found() -> None:
    visible = [name for name in card_ids() if card(name).in_source]
    found = [name for name in visible if name in {f.cause for f in lint(card(name).broken)}]
    missed = sorted(set(visible) - set(found))
    assert len(found) >= 0.8 * len(visible), missed


def test_cells_of_faults_are_not_accused_of_another() -> None:
    """A cell whose cause is known from its run is given that cause, or none."""
    alike = {
        # The same line, seen from two sides.
        ("message-against-barrier", "message-without-partner"),
        ("backward-twice-on-one-rank", "collective-under-rank-condition"),
    }
    wrong = []
    for name in ("faults", "held_out_faults", "injected_twenty"):
        for case in tomllib.loads((FIXTURES / f"{name}.toml").read_text())["case"]:
            found = {str(finding.cause) for finding in faults(case["source"])}
            cause = case.get("cause")
            if cause and found and cause not in found:
                wrong += [(case["name"], other) for other in found]
    names = {name for name, _ in alike}
    assert {pair for pair in wrong if pair[0] not in names} == set()


def test_a_finding_is_complete() -> None:
    (found,) = lint("if rank == 0:\n    dist.barrier()\n", name="cell[3]")
    assert found.symptom == "D.2.1"
    assert found.kind == "some-ranks-call"
    assert found.values == {"op": "barrier"}
    assert found.cause == "collective-under-rank-condition"
    assert found.confidence == "certain"
    assert [(fact.kind, fact.place) for fact in found.facts] == [
        ("source-line", Place(file="cell[3]", line=2, code="dist.barrier()", role="source")),
        ("keeps-some-ranks", Place(file="cell[3]", line=1, code="if rank == 0:", role="source")),
    ]
    assert "barrier" in found.fixes[0].advice


def test_every_finding_has_its_words() -> None:
    sources = [card(name).broken for name in card_ids()]
    sources += [case["source"] for case in cases("lint_faults")]
    for finding in (finding for source in sources for finding in lint(source)):
        assert finding.title
        assert finding.title[-1] != "."
        assert len(finding.evidence) == len(finding.facts)
        assert all(fact.place for fact in finding.facts)


def test_every_kind_and_cause_in_the_rules_has_an_entry() -> None:
    text = "".join(path.read_text() for path in RULES.glob("*.py"))
    named = set(re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)+)"', text))
    assert len(named) > 100
    assert named <= {*TITLES, *SHOWN, *causes()}


def test_symptoms_are_those_of_the_card() -> None:
    sources = [card(name).broken for name in card_ids()]
    sources += [case["source"] for case in cases("lint_faults")]
    found = [finding for source in sources for finding in lint(source)]
    wrong = {
        (finding.cause, finding.symptom)
        for finding in found
        if finding.cause in card_ids() and finding.symptom not in card(finding.cause).symptoms
    }
    assert not wrong


def test_lines_are_counted_from_the_first() -> None:
    (found,) = lint("\nif rank == 0:\n    dist.barrier()\n", name="train.py", first_line=10)
    assert line_of(found) == 12


def test_magics_and_top_level_await_are_no_errors() -> None:
    assert not lint("%%time\n%matplotlib inline\n!ls\nx = !ls\nawait y\nmodel?\n%time f()\n")


@pytest.mark.parametrize("source", ["", "\n", "# only a comment", "\0", "x = " + "(" * 300])
def test_unusual_sources_are_read(source: str) -> None:
    assert len(lint(source)) <= 1


def test_a_program_without_end_is_given_up() -> None:
    deep = "\n".join(f"def f{i}():\n    f{i + 1}()\n    f{i + 1}()" for i in range(30))
    assert not lint(f"{deep}\ndef f30(): dist.barrier()\nf0()\n")


def test_a_program_that_is_too_long_is_given_up_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here within a function that a context manager calls."""
    monkeypatch.setattr(interpreter, "_MOST", 600)
    steps = "".join(f"    if x{n}: y()\n" for n in range(1_200))
    source = (
        "@contextlib.contextmanager\ndef scope():\n    work()\n    yield\n"
        f"def work():\n{steps}with scope():\n    pass\n"
    )
    assert lint(source) == []
