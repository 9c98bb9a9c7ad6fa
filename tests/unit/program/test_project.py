"""Files that a program imports: which are found, what they show, and how many are read."""

from __future__ import annotations

from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.lint import lint as lint_text
from ddt_notebook.model import Finding
from ddt_notebook.program import project
from ddt_notebook.program.project import Project

SET_UP = """
import os, torch
import torch.distributed as dist

def set_up(args):
    args.rank = int(os.environ["RANK"])
    args.gpu = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(args.gpu)
    dist.init_process_group("nccl")

def is_first(args):
    return args.rank == 0

def meet():
    dist.barrier()
"""
TRAIN = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP
from tools import set_up, is_first, meet

args = parser.parse_args()
set_up(args)
args.saves = args.save and is_first(args)
model = DDP(Net().cuda())
for x in torch.utils.data.DataLoader(data, sampler=torch.utils.data.DistributedSampler(data)):
    model(x).mean().backward()
if args.saves:
    torch.save(model.module.state_dict(), "model.pt")
"""


def lint(folder: Path, **files: str) -> list[Finding]:
    """Lint ``train.py`` beside other files."""
    for name, text in files.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return list(ddt.lint(folder / "train.py"))


def test_a_helper_sets_the_device_and_asks_for_the_rank(tmp_path: Path) -> None:
    assert not lint(tmp_path, train=TRAIN, tools=SET_UP)


def test_a_fault_that_the_helper_does_not_prevent_is_reported(tmp_path: Path) -> None:
    tools = SET_UP.replace("    torch.cuda.set_device(args.gpu)\n", "")
    tools = tools.replace("args.rank == 0", "args.rank >= 0")
    found = lint(tmp_path, train=TRAIN, tools=tools)
    assert [(one.cause, one.confidence) for one in found] == [
        ("checkpoint-written-by-every-rank", "likely"),
        ("all-ranks-on-one-gpu", "possible"),  # each rank may see one GPU only
    ]


def test_a_collective_in_a_helper_is_shown_there(tmp_path: Path) -> None:
    program = f"{TRAIN}if is_first(args):\n    meet()\n"
    (found,) = lint(tmp_path, train=program, tools=SET_UP)
    assert found.cause == "collective-under-rank-condition"
    places = [fact.place for fact in found.facts]
    assert [(place.file, place.code) for place in places if place] == [
        ("tools.py", "dist.barrier()"),
        ("train.py", "if is_first(args):"),
    ]
    assert places[0]
    assert places[0].line == SET_UP.splitlines().index("    dist.barrier()") + 1


def test_a_file_is_named_as_seen_from_the_program(tmp_path: Path) -> None:
    program = f"{TRAIN}if is_first(args):\n    meet()\n"
    (tmp_path / "tools.py").write_text(SET_UP)
    (found,) = lint(tmp_path / "scripts", train=program)
    assert found.facts[0].place
    assert found.facts[0].place.file == "../tools.py"


def test_faults_of_other_files_are_not_reported(tmp_path: Path) -> None:
    tools = f"{SET_UP}\nif dist.get_rank() == 0:\n    dist.barrier()\n"
    assert not lint(tmp_path, train=TRAIN, tools=tools)


def test_packages_and_relative_imports(tmp_path: Path) -> None:
    train = TRAIN.replace("from tools import", "from .common import")
    package = {
        "common/__init__": "from .launch import *\nfrom . import ranks as r\nmeet = r.meet\n",
        "common/launch": SET_UP,
        "common/ranks": "import torch.distributed as dist\ndef meet():\n    dist.barrier()\n",
    }
    found = lint(tmp_path / "package", train=train, **package)
    assert not found
    module = TRAIN.replace("from tools import set_up, is_first, meet", "import lib.tools as t")
    for name in ("set_up", "is_first"):
        module = module.replace(f"{name}(args)", f"t.{name}(args)")
    hints = lint(tmp_path / "scripts", train=module)  # the module is not there
    assert {one.confidence for one in hints} == {"possible"}
    assert not lint(tmp_path, **{"lib/tools": SET_UP, "train": module})


def test_files_that_import_each_other_or_cannot_be_read(tmp_path: Path) -> None:
    circle = f"from train import model\nfrom other import x\n{SET_UP}"
    assert not lint(tmp_path, train=TRAIN, tools=circle, other="from tools import meet\nx = rank\n")
    for text in ("def (", "", "raise SystemExit\n", "\0"):
        found = lint(tmp_path, train=TRAIN, tools=f"# torch.distributed\n{text}")
        assert not [one for one in found if one.confidence != "possible"]


def test_an_endless_helper_is_given_up(tmp_path: Path) -> None:
    calls = "\n".join(f"def f{i}():\n    f{i + 1}()\n    f{i + 1}()" for i in range(20))
    tools = SET_UP.replace("    dist.init", "    f0()\n    dist.init")
    found = lint(tmp_path, train=TRAIN, tools=f"{tools}\n{calls}\ndef f20(): dist.barrier()\n")
    assert {one.confidence for one in found} <= {"possible"}


def test_few_files_are_read(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    around = Project(tmp_path / "train.py")
    for number in range(2 * project._FILES):
        file = tmp_path / f"m{number}.py"
        file.write_text("import torch.distributed\n")
        around.tree(file)
    assert len(around.trees) == project._FILES
    large = tmp_path / "large.py"
    large.write_text("rank = 1\n" * project._LONGEST)
    assert Project(tmp_path / "train.py").tree(large) is None
    assert around.find("torch.distributed", 0, around.file) is None
    assert around.find("os", 0, around.file) is None


def test_a_local_condition_far_from_the_call_is_a_hint(tmp_path: Path) -> None:
    """What reaches a condition in another function is seldom known in a program of files."""
    near = """
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from tools import nothing
def step(loss):
    if loss > limit:
        dist.barrier()
for x in DataLoader(data, sampler=DistributedSampler(data)):
    step(x.mean())
"""
    far = near.replace("        dist.barrier()", "        meet()")
    far = far.replace("def step", "def meet():\n    dist.barrier()\ndef step")
    (found,) = lint(tmp_path, train=near, tools="")
    assert (found.cause, found.confidence) == ("collective-under-local-condition", "likely")
    (found,) = lint(tmp_path, train=far, tools="")
    assert (found.cause, found.confidence) == ("collective-under-local-condition", "possible")
    (found,) = lint_text(far)
    assert found.confidence == "likely"


#: Lines of a function that another file may import.
IF_READY = "        if self.ready:\n            dist.barrier()\n"
RELEASE = "def release(rank):\n    if rank == 0:\n        dist.barrier()\n"
OF_LIBRARY = "import torch.distributed as dist\ndef meet(self, args, rank, world_size, group):\n"


@pytest.mark.parametrize(
    ("body", "confidence"),
    [
        ("    if rank == 0:\n        dist.barrier()\n", "likely"),
        ("    if args.rank in [-1, 0]:\n        dist.barrier()\n", "likely"),
        ("    if rank == world_size - 1:\n        dist.barrier()\n", "likely"),
        ("    if not self.is_main_process:\n        return\n    dist.barrier()\n", "likely"),
        # Every rank is alike.
        ("    if rank >= 0:\n        dist.barrier()\n", ""),
        ("    if get_rank() > -1:\n        dist.barrier()\n", ""),
        ("    if rank is not None:\n        dist.barrier()\n", ""),
        ("    if self.control.should_save:\n        dist.barrier()\n", ""),
        ("    if hasattr(args, 'rank'):\n        dist.barrier()\n", ""),
        (f"    if rank == 0:\n{IF_READY}    else:\n{IF_READY}", ""),
        # Another function may make the call, or a part of the ranks may be in the group.
        (
            "    if rank != 0:\n        dist.barrier()\n" + RELEASE,
            "possible",
        ),
        ("    if rank == 0:\n        dist.barrier(group)\n", ""),
        # What the condition holds is decided elsewhere, and there may be as few ranks.
        ("    if rank < self.size:\n        dist.barrier()\n", "possible"),
        ("    if self.should_save:\n        dist.barrier()\n", "possible"),
    ],
)
def test_only_what_the_file_proves_is_more_than_a_hint(
    tmp_path: Path, body: str, confidence: str
) -> None:
    found = lint(tmp_path, train=OF_LIBRARY + body)
    assert {one.confidence for one in found} == ({confidence} if confidence else set())


@pytest.mark.parametrize(
    ("program", "here", "in_a_file"),
    [
        # A launcher may show each rank one GPU; another file may form the group.
        ('dist.init_process_group("nccl")\nmodel = nn.Linear(1, 1).cuda()\n', "likely", "possible"),
        ('if dist.get_rank() >= 0:\n    torch.save(x, "x.pt")\n', "likely", "possible"),
        ('dist.init_process_group("gloo")\ntorch.save(x, "x.pt")\n', "likely", "likely"),
        ("import torch._six\n", "likely", "likely"),
        ("try:\n    import torch._six\nexcept ImportError:\n    pass\n", "possible", "possible"),
    ],
)
def test_a_file_may_be_used_in_more_ways_than_a_cell(
    tmp_path: Path, program: str, here: str, in_a_file: str
) -> None:
    source = f"import torch\nimport torch.nn as nn\nimport torch.distributed as dist\n{program}"
    assert [one.confidence for one in lint_text(source)] == [here]
    assert [one.confidence for one in lint(tmp_path, train=source)] == [in_a_file]
