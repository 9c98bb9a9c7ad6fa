"""The catalogue of messages: each entry matches its message, and none of its look-alikes."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import ddt_notebook as ddt
from ddt_notebook.diagnosis.advice import causes
from ddt_notebook.diagnosis.text import diagnose_text
from ddt_notebook.messages import Message, message, messages
from ddt_notebook.messages.clue import Clue, clues, expand
from ddt_notebook.messages.fragments import lines_with, searched
from ddt_notebook.symptoms import loader as taxonomy
from ddt_notebook.views import words
from ddt_notebook.views.message import MessageView

ENTRIES = messages()
REPORTS = Path(__file__).parents[2] / "benchmarks" / "reports"
#: Messages of reports for which no thread that was read confirms the cause; what was looked for.
UNCONFIRMED = {
    "fsdp2-parameter-device": "threads with `already be moved to device` of FSDP2, Accelerate and "
    "verl; the cause is read from `FSDPParam._init_sharded_param`",
}
#: A file of torch in the source of an entry.
FILE = re.compile(r"(?<![\w/])torch/[\w/]+\.py\b")
#: Where one string literal ends and the next, which Python joins to it, begins.
JOINED = re.compile(r"[\"']\s*[frb]*[\"']|\\\n")


def test_each_entry_has_one_id():
    number = Counter(entry.id for entry in ENTRIES)
    assert [name for name, times in number.items() if times > 1] == []
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", entry.id) for entry in ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_matches_its_example_and_no_look_alike(entry: Message):
    assert entry.find(entry.example.lower())
    assert entry.unlike
    for text in entry.unlike:
        assert not entry.find(text.lower()), text


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_an_entry_uses_the_words_of_the_study_and_of_the_cards(entry: Message):
    assert set(entry.symptoms) <= {symptom.code for symptom in taxonomy.symptoms()}
    assert {pattern for pattern, _ in entry.fixes} <= taxonomy.fix_patterns()
    assert entry.fixes
    assert entry.card is None or entry.card in causes()
    assert entry.over <= {other.id for other in ENTRIES} - {entry.id}
    assert entry.means
    assert entry.check
    assert entry.words or entry.kind == "complaint"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_example_is_diagnosed_as_the_entry_says(entry: Message):
    """Of all entries that match, the most specific one speaks."""
    report = diagnose_text(entry.example)
    found = [finding for finding in report.findings if finding.symptom in entry.symptoms]
    assert found, [finding.symptom for finding in report.findings]
    advised = {fix.advice for fix in found[0].fixes}
    assert advised & {advice for _, advice in entry.fixes}


def test_each_message_that_people_report_was_checked_against_a_thread():
    """A message is frequent if one of the public reports contains it."""
    found = set()
    for file in REPORTS.glob("*.toml"):
        for report in tomllib.loads(file.read_text(encoding="utf-8"))["report"]:
            text = report["text"].lower()
            matched = [entry for entry in ENTRIES if entry.find(text)]
            general = frozenset[str]().union(*(entry.over for entry in matched))
            found |= {entry.id for entry in matched} - general
    assert len(found) >= 150
    own = {name for name in found if not message(name).cause_elsewhere}
    assert {name for name in own if message(name).thread is None} == set(UNCONFIRMED)


def test_a_message_without_a_cause_of_its_own_says_so_and_names_no_thread():
    pointing = [entry for entry in ENTRIES if entry.cause_elsewhere]
    assert pointing
    for entry in pointing:
        assert entry.thread is None
        assert entry.general or entry.kind in ("effect", "warning")
        page = MessageView(entry)
        assert all("no cause of its own" in said for said in (page.to_text(), page.to_html()))
        assert page.to_json()["cause_elsewhere"] is True


def test_the_words_are_those_of_the_installed_torch():
    """PyTorch's own text is the source of an entry, and not one user's report."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent.parent
    read, missing = 0, []
    for entry in ENTRIES:
        files = [root / name for name in FILE.findall(entry.source)]
        if entry.older or not files:
            continue
        text = " ".join(
            JOINED.sub("", file.read_text(encoding="utf-8")) for file in files if file.is_file()
        )
        read += 1
        missing += [(entry.id, words) for words in entry.words if JOINED.sub("", words) not in text]
    assert read > 100
    assert not missing


def test_fragments_exclude_no_match():
    """The search for fixed fragments only saves time."""
    texts = [text.lower() for entry in ENTRIES for text in (entry.example, *entry.unlike)]
    everything = "\n".join(texts)
    assert sum(bool(entry.fragments) for entry in ENTRIES) > len(ENTRIES) / 2
    for entry in ENTRIES:
        matches = [match[0] for match in entry.pattern.finditer(everything)]
        assert matches
        for text in matches:
            assert entry.find(text) or not entry.pattern.search(text), entry.id
        assert entry.find(everything)


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("watchdog caught", ("watchdog caught",)),
        (r"\bhang|stuck in (the|a)", ("hang", "stuck in ")),
        (r"(worse|lower)[^\n]{0,80}(gpus?|\bddp\b)", ("worse", "lower")),
        ("out ?of ?memory", ("memory",)),
        (r"(no )?progress\d+", ("progress",)),
        (r"(?<!not )enough(?= space)", ("enough",)),
        ("a|oom", ()),
        (r"[a-z]+\d*", ()),
    ],
)
def test_a_match_contains_one_of_its_fragments(pattern: str, needed: tuple[str, ...]):
    assert searched(pattern)[0] == needed


@pytest.mark.parametrize(
    ("pattern", "within"),
    [
        (r"slow[^\n]{0,80}(gpus?|.{3}ddp)\b", True),
        (r"slow[\s\S]{0,80}gpu", False),
        (r"slow\s+gpu", False),
        (r"(slow|fast[^.]*)gpu", False),
        (r"slow\W?gpu|a\nb", False),
        (r"[^a-z\n]+[\w.]*\d", True),
    ],
)
def test_a_pattern_is_within_a_line_if_no_part_of_it_is_the_line_s_end(pattern: str, within: bool):
    assert searched(pattern)[1] == within


def test_a_clue_is_a_table_whose_groups_of_words_are_replaced():
    """A name that is no group would be searched for in the text; tracebacks say `<module>`."""
    left = {
        name for clue in clues() for name in re.findall(r"(?<!\?)<[a-z ]+>", expand(clue.patterns))
    }
    assert left == {"<module>"}
    assert Clue("", "<hang><20>step", {}).find("it freezes at one step")
    assert not Clue("", "<hang>", {}).find("frozen parameters")


def test_only_lines_with_a_fragment_are_searched():
    text = "a gpu and a gpu\nnothing\nddp\n\nthe last gpu"
    found = [text[start:end] for start, end in lines_with(("ddp", "gpu", "rank"), text)]
    assert found == ["a gpu and a gpu", "ddp", "the last gpu"]


def test_a_thread_is_an_address_that_its_page_shows():
    confirmed = [entry for entry in ENTRIES if entry.thread]
    assert confirmed
    for entry in confirmed:
        assert re.fullmatch(
            r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", str(entry.thread)
        )
    page = ddt.explain(confirmed[0].id)
    assert isinstance(page, MessageView)
    assert confirmed[0].thread in repr(page).replace("\n", "").replace(" ", "")
    assert str(confirmed[0].thread) in page.to_html()
    assert page.to_json()["thread"] == confirmed[0].thread


def test_a_message_of_the_catalogue_is_found_by_its_id():
    assert message("cuda-oom").symptoms == ("D.1.2",)


@pytest.mark.parametrize(
    ("specific", "general"),
    [
        (
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x",
            "nccl-system-error",
        ),
        ("RuntimeError: Missing key in checkpoint state_dict: a.", "dcp-exception"),
    ],
)
def test_a_specific_message_says_more_than_its_wrapper(specific: str, general: str):
    wrapper = message(general)
    found = diagnose_text(f"{wrapper.example}\n{specific}").findings[0]
    alone = diagnose_text(specific).findings[0]
    assert found.values["says"] == alone.values["says"]
    assert found.fixes[0] == alone.fixes[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The server socket cannot be initialized on [::]:9999 (errno: 97 - …).", "store-ipv6"),
        ("the client socket cannot be initialized to connect to [host]:9 (errno: 97", "store-ipv6"),
        ("ibv_create_qp(cqe=4096) failed: Cannot allocate memory", "nccl-ib-memory"),
    ],
)
def test_a_message_is_known_in_the_other_forms_in_which_it_is_printed(text: str, name: str):
    assert message(name).find(text.lower())


def test_the_timeout_of_another_rank_is_not_the_cause():
    """A timeout on one rank follows from what another rank raised."""
    timeout = message("nccl-watchdog-timeout").example
    log = (
        f"[rank0]: {timeout}\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    found = diagnose_text(log).findings[0]
    assert (found.symptom, found.ranks) == ("D.1.2", [1])


def test_frozen_parameters_are_not_taken_for_a_hang():
    report = diagnose_text("we train LoRA on frozen layers, all tensors are flattened")
    assert not [f for f in report.findings if f.symptom in ("D.2.1", "B.2", "C.4")]


def test_a_page_says_what_a_message_means():
    entry = message("fsdp-mixed-requires-grad")
    by_message, by_id = ddt.explain(entry.example), ddt.explain(entry.id)
    assert isinstance(by_message, MessageView)
    assert by_message.to_json() == by_id.to_json()
    assert by_message.to_json()["fixes"][0]["advice"] == entry.fixes[0][1]
    assert entry.id in repr(by_message)
    assert "use_orig_params" in by_message.to_html()


def test_words_of_a_message_find_its_page():
    """Nobody types a whole message."""
    page = ddt.explain("unable to jit load")
    assert isinstance(page, MessageView)
    assert page.entry.id == "deepspeed-jit"
    assert "%ddt_explain nccl-shm" in repr(ddt.explain("shared memory segment"))


def test_a_finding_names_the_page_of_its_message():
    entry = message("nccl-shm")
    found = diagnose_text(entry.example).findings[0]
    assert entry.id in words.explained_by(found)


def test_a_warning_in_the_log_of_a_healthy_run_is_not_a_finding():
    warnings = [entry.example for entry in ENTRIES if entry.kind == "warning"]
    log = [f"[rank{n % 2}]: epoch 1 step {n} loss 0.{n}" for n in range(40)]
    for warning in warnings:
        report = diagnose_text("\n".join([*log[:20], f"[rank0]: {warning}", *log[20:]]))
        assert report.findings == [], warning
