"""The origin of an exception's words, and exceptions that must not count as known faults."""

from __future__ import annotations

import pytest

from ddt_notebook import messages as catalogue
from ddt_notebook.diagnosis import diagnose
from ddt_notebook.diagnosis.errors import classify
from ddt_notebook.diagnosis.rules.exception import of_error
from ddt_notebook.model import Position, RankError

from .builders import facts, only, raised, rank, snapshot

TORCH = "lib/python3.11/site-packages/torch/nn/modules/module.py"
OTHER = "lib/python3.11/site-packages/datafiles/reader.py"


def frame(file: str, code: str = "", function: str = "<module>") -> Position:
    return Position(file=file, line=3, code=code, function=function)


def error(type_: str, message: str, *frames: Position, **fields) -> RankError:
    cells = [one for one in frames if one.cell is not None]
    return RankError(
        type=type_, message=message, frames=frames, where=cells[-1] if cells else None, **fields
    )


CALL = frame("cell[3]", "train(model)")
RAISE = frame("cell[3]", "raise RuntimeError(text)", "train")


@pytest.mark.parametrize(
    ("type_", "message"),
    [
        ("RuntimeError", "CUDA out of memory is what I expected here"),
        ("RuntimeError", "config error: size mismatch between depth and width"),
        ("RuntimeError", "this trainer does not support resuming"),
        ("ValueError", "error(s) in loading state_dict: module.x is gone"),
        ("RuntimeError", "expects same model across all ranks"),
        ("RuntimeError", "DataLoader worker count must be positive"),
    ],
)
def test_words_of_the_user_are_not_taken_for_words_of_torch(type_: str, message: str):
    meaning = classify(error(type_, message, CALL, RAISE))
    assert (meaning.symptom, meaning.cause) == ("D.1.11", None)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("A bucket is not complete. " + "The rest explains it at length. " * 8, "bucket is not"),
        ("word " * 24 + "on cuda:1 (when checking argument in method wrapper_CUDA)", "cuda:1 …"),
        ("path" + "x" * 300, "x …"),
    ],
)
def test_a_long_message_is_cut_between_sentences_or_words(message: str, shown: str):
    values = of_error(error("RuntimeError", message, CALL))
    text = values["message"]
    assert shown in text
    assert len(text) < 160
    assert text.count("(") == text.count(")")
    assert text.endswith((".", " …"))


def test_an_assertion_of_the_user_is_an_exception_of_the_program():
    check = frame("cell[3]", 'assert ok, "no CUDA GPUs are available"')
    assert classify(error("AssertionError", "No CUDA GPUs are available", check)).cause is None


def test_types_of_python_keep_their_meaning():
    raised = frame("cell[3]", "raise FileNotFoundError(path)")
    assert classify(error("FileNotFoundError", "x.json", raised)).cause == "path-missing"
    assert classify(error("MemoryError", "", RAISE)).cause == "out-of-memory"


def test_the_exception_from_which_the_user_raised_counts():
    traceback = (
        "RuntimeError  Traceback (most recent call last)\nCell cell[3], line 2\n"
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x7 and 8x2)\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "TrainingError  Traceback (most recent call last)\nTrainingError: step 3 failed"
    )
    meaning = classify(error("TrainingError", "step 3 failed", RAISE, traceback=traceback))
    assert (meaning.cause, meaning.confidence) == ("tensor-shapes", "likely")


def test_the_same_words_in_another_package_are_only_likely():
    message = "mat1 and mat2 shapes cannot be multiplied (4x7 and 8x2)"
    assert classify(error("RuntimeError", message, CALL, frame(OTHER))).confidence == "likely"
    assert classify(error("RuntimeError", message, CALL, frame(TORCH))).confidence == "certain"


@pytest.mark.parametrize(
    ("type_", "message", "symptom"),
    [
        ("AttributeError", "'Config' object has no attribute 'lr'", "D.1.8"),
        ("AttributeError", "'NoneType' object has no attribute 'grad'", "D.1.8"),
        ("TypeError", "'<' not supported between instances of 'str' and 'int'", "D.1.11"),
        ("EOFError", "EOF when reading a line", "D.1.11"),
        ("KeyError", "'module.weight'", "D.1.11"),
        ("FileExistsError", "[Errno 17] File exists: 'a.lock'", "D.1.9"),
        ("NotImplementedError", "", "D.1.10"),
    ],
)
def test_similar_messages_have_no_known_cause(type_: str, message: str, symptom: str):
    meaning = classify(error(type_, message, CALL, frame("cell[3]", "value = ask()")))
    assert (meaning.symptom, meaning.cause) == (symptom, None)


def test_a_missing_program_is_not_a_missing_file_of_a_rank():
    run = frame("lib/python3.11/subprocess.py", "raise child_exception_type(errno_num)")
    missing = error("FileNotFoundError", "[Errno 2] No such file or directory: 'nvcc'", CALL, run)
    assert classify(missing).cause is None


LOADING = "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: {}. \n\tUnex"


@pytest.mark.parametrize(
    ("missing", "unexpected", "cause"),
    [
        ('"fc.weight", "fc.bias"', '"module.fc.weight", "module.fc.bias"', "state-dict-prefix"),
        ('"module.fc.weight"', '"fc.weight"', "state-dict-prefix"),
        ('"encoder.weight"', '"module.decoder.weight"', "state-dict"),
        ('"encoder.module.weight"', '"encoder.weight"', "state-dict"),
    ],
)
def test_only_the_prefix_of_a_wrapper_counts_as_a_wrong_prefix(
    missing: str, unexpected: str, cause: str
):
    text = f"{LOADING.format(missing)}pected key(s) in state_dict: {unexpected}. "
    assert classify(error("RuntimeError", text, CALL, frame(TORCH))).cause == cause


def test_errors_in_an_item_of_a_dataset_are_recognised():
    inside = frame("/x/torch/utils/data/_utils/fetch.py", "data = [self.dataset[i] for i in ids]")
    failed = error("KeyError", "'label'", CALL, inside, frame("cell[3]", "return row['label']"))
    assert classify(failed).cause == "dataset-item-fails"
    raising = frame("cell[3]", "raise ValueError(name)")
    assert classify(error("ValueError", "x", CALL, inside, raising)).cause == "dataset-item-fails"
    assert classify(error("ValueError", "x", CALL, raising)).cause is None


MAKE = frame("cell[3]", "os.makedirs('runs')")


def test_a_folder_that_existed_before_was_not_made_by_a_rank():
    exists = error("FileExistsError", "[Errno 17] File exists: 'runs'", MAKE)
    raced = diagnose(snapshot(rank(0), raised(1, error=exists), outcome="failed"))
    assert only(raced).cause == "folder-made-by-every-rank"
    everywhere = snapshot(*[raised(r, error=exists) for r in range(2)], outcome="failed")
    assert only(diagnose(everywhere)).cause is None


MEMORY = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 16 bytes"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        (("for x in data:", "    total += criterion(model(x), y)"), "loss-keeps-graph"),
        (("for x in data:", "    total = total + loss_of(model(x))"), "loss-keeps-graph"),
        (("while True:", "    losses.append(model(x).mean())"), "loss-keeps-graph"),
        (("for x in data:", "    total += model(x).mean().item()"), "out-of-memory"),
        (("for x in data:", "    total += float(loss(model(x)))"), "out-of-memory"),
        (("for x in data:", "    hits += (model(x).argmax(1) == y).sum()"), "out-of-memory"),
        (("for x in data:", "    total += len(x)", "    model(x)"), "out-of-memory"),
        (("for x in data:", "    total += loss", "    loss.backward()"), "out-of-memory"),
        (("for x in data:", "    total = 0", "    total += model(x)"), "out-of-memory"),
        (("model(x)", "for y in data: total += loss"), "out-of-memory"),
        (("with torch.no_grad():", "  for x in data:", "    t += model(x)"), "out-of-memory"),
        (("for x in data:", "    out = model(x)", "    outs.append(out)"), "loss-keeps-graph"),
        (
            (
                "for x in data:",
                "  out = model(x)",
                "  t = f(out)",
                "  o.append(out)",
                "  t.backward()",
            ),
            "out-of-memory",
        ),
    ],
)
def test_losses_that_keep_their_graphs_fill_memory(lines: tuple[str, ...], cause: str):
    at_line = max(n for n, line in enumerate(lines, 1) if "model(x)" in line or n == 2)
    at_line = 1 if lines[0] == "model(x)" else at_line
    where = Position(file="cell[3]", line=at_line, code=lines[at_line - 1].strip())
    inside = Position(file="/venv/site-packages/torch/nn/modules/module.py", line=9)
    short = RankError(type="RuntimeError", message=MEMORY, frames=(where, inside), where=where)
    scene = snapshot(raised(0, error=short), source="\n".join(lines), outcome="failed")
    assert only(diagnose(scene)).cause == cause


@pytest.mark.parametrize(
    ("made", "collected", "cause"),
    [
        ("encoder = torch.nn.Linear(4, 1).to(device)", "encoder(x)", "loss-keeps-graph"),
        ("encoder = DDP(build())", "encoder.module(x)", "loss-keeps-graph"),
        ("class Encoder(nn.Module): pass\nself.e = Encoder()", "self.e(x)", "loss-keeps-graph"),
        ("def build(): return nn.ReLU()\nencoder = build()", "encoder(x)", "loss-keeps-graph"),
        ("subnet = ipaddress.ip_network(address)", "subnet.hosts(x)", "out-of-memory"),
        ("model_sizes = {}", "model_sizes[x]", "out-of-memory"),
        ("glossary = Loss()", "glossary.lookup(x)", "out-of-memory"),
    ],
)
def test_only_modules_count_as_models(made: str, collected: str, cause: str):
    source = f"{made}\nfor x in data:\n    total += {collected}\n    y = torch.randn(1 << 40)"
    where = Position(file="cell[3]", line=len(source.splitlines()), code="y = torch.randn(1 << 40)")
    short = RankError(type="RuntimeError", message=MEMORY, frames=(where,), where=where)
    scene = snapshot(raised(0, error=short), source=source, outcome="failed")
    assert only(diagnose(scene)).cause == cause


def test_a_missing_file_is_recognised_without_a_stack():
    assert classify(error("FileNotFoundError", "[Errno 2] x")).cause == "path-missing"


def shape_error(number: int) -> RankError:
    text = f"[{number}]: params[0] in this process with sizes [4, 8] appears "
    return error("RuntimeError", f"{text}not to match sizes of the same param in process 0.", CALL)


@pytest.mark.parametrize(("raising", "odd"), [((1, 2), True), ((1,), False), ((2,), False)])
def test_rank_0_may_be_the_one_that_differs(raising: tuple[int, ...], odd: bool):
    ranks = [raised(r, error=shape_error(r)) if r in raising else rank(r) for r in range(3)]
    finding = only(diagnose(snapshot(*ranks, outcome="failed")))
    assert (finding.cause, finding.ranks) == ("models-differ", list(raising))
    assert ("rank-0-is-odd" in facts(finding)) == odd


WITHOUT_GRADIENT = (
    "Expected to have finished reduction in the prior iteration before starting a new one. "
    "This error indicates that your module has parameters that were not used in producing "
    "loss.\n"
    "Parameters which did not receive grad for rank 1: net.b.bias, net.b.weight\n"
    "Parameter indices which did not receive grad for rank 1: 2 3"
)


def test_unused_parameters_are_named():
    failed = raised(1, error=error("RuntimeError", WITHOUT_GRADIENT, CALL, frame(TORCH)))
    finding = only(diagnose(snapshot(rank(0), failed, outcome="failed")))
    named = facts(finding)["without-gradient"].values["parameters"]
    assert named == ("net.b.bias", "net.b.weight")


@pytest.mark.parametrize("layer", ["", ".2"], ids=["a layer", "one of a Sequential"])
@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def forward(self, x):\n    if x.max() > 2:\n        x = self.b(x)\n    return x", 2),
        ("def forward(self, x):\n    if x.max() > 2:\n        x = self.b(x)\n    self.b(x)", None),
        ("def forward(self, x):\n    return self.b(x)", None),
    ],
)
def test_the_condition_on_which_a_module_is_unused_is_named(
    source: str, line: int | None, layer: str
):
    text = WITHOUT_GRADIENT.replace("net.b.", f"net.b{layer}.")
    failed = raised(1, error=error("RuntimeError", text, CALL, frame(TORCH)))
    found = facts(only(diagnose(snapshot(rank(0), failed, source=source, outcome="failed"))))
    place = found["uses-module"].place if "uses-module" in found else None
    assert (place.line if place is not None else None) == line


@pytest.mark.parametrize(
    ("returns", "kind", "line"),
    [
        ("    if bad(x):\n        return None\n    return x", "leads-to-no-result", 2),
        ("    log(x)\n    return", "returns-nothing", 3),
        ("    if bad(x):\n        return\n    if worse(x):\n        return", "", 0),
        ("    return x", "", 0),
    ],
)
def test_the_line_that_returns_no_loss_is_named(returns: str, kind: str, line: int):
    text = "Skipping the `training_step` by returning None in distributed training is not supported"
    failed = raised(1, error=error("RuntimeError", text, CALL))
    source = f"def training_step(self, x):\n{returns}"
    found = facts(only(diagnose(snapshot(rank(0), failed, source=source, outcome="failed"))))
    named = [(one, found[one].place) for one in found if "result" in one or "nothing" in one]
    assert [(one, place and place.line) for one, place in named] == ([(kind, line)] if kind else [])


def test_an_exception_of_a_loaders_worker_is_reported():
    text = (
        "Caught ValueError in DataLoader worker process 0.\nOriginal Traceback (most recent call "
        'last):\n  File "fetch.py", line 54, in fetch\n  File "cell[3]", line 2, in __getitem__\n'
        "ValueError: image 5 is truncated\n"
    )
    failed = raised(1, error=error("ValueError", text, CALL))
    source = "class Images:\n    raise ValueError(name)"
    finding = only(diagnose(snapshot(rank(0), failed, outcome="failed", source=source)))
    fact = facts(finding)["raised-in-worker"]
    assert fact.values["error"] == "ValueError: image 5 is truncated"
    assert fact.place is not None
    assert (fact.place.cell, fact.place.line, fact.place.role) == (3, 2, "raised")


@pytest.mark.parametrize("frames", [(), (RAISE,)])
def test_an_exception_without_a_traceback_for_lack_of_memory(frames: tuple[Position, ...]):
    finding = only(diagnose(snapshot(rank(0), raised(1, error=error("MemoryError", "", *frames)))))
    assert (finding.cause, finding.ranks) == ("out-of-memory", [1])
    assert ("line-lost-for-memory" in facts(finding)) == (1 not in finding.places) == (not frames)


@pytest.mark.parametrize(
    ("type_", "message", "entry"),
    [
        (
            "ValueError",
            "`FlatParameter` requires uniform `requires_grad`",
            "fsdp-mixed-requires-grad",
        ),
        (
            "DistBackendError",
            "NCCL error in: NCCLUtils.cpp:77, unhandled system error, NCCL version 2.27.5",
            "nccl-system-error",
        ),
        (
            "RuntimeError",
            "aten.mm.default: got mixed torch.Tensor and DTensor, need to convert all",
            "dtensor-mixed-with-tensor",
        ),
        ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered", "cuda-ecc"),
    ],
)
def test_an_exception_in_the_catalogue_has_the_advice_of_its_entry(type_, message, entry):
    inside = frame(TORCH, "return F.linear(x, weight)")
    reported = raised(0, error=error(type_, message, CALL, inside))
    assert classify(error(type_, message, CALL, inside)).message == entry
    found = only(diagnose(snapshot(reported, rank(1))))
    assert [fix.advice for fix in found.fixes] == [
        text for _, text in catalogue.message(entry).fixes
    ]
    assert "to-confirm" in facts(found)


def test_a_message_that_follows_from_another_failure_has_no_entry():
    text = "NCCL communicator was aborted on rank 1."
    assert classify(error("DistBackendError", text, CALL)).message is None


def test_the_user_s_own_words_are_not_in_the_catalogue():
    text = "got mixed torch.Tensor and DTensor"
    assert classify(error("RuntimeError", text, CALL, RAISE)).message is None
