"""%ddt_debug with words: questions, symptoms, and texts of errors from elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from IPython.core.error import UsageError

from ddt_notebook import faults

from .conftest import Notebook

TRACEBACK = """RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"""


def test_questions_lead_to_a_symptom(notebook: Notebook) -> None:
    assert "How far did the job get?" in repr(notebook.run("%ddt_debug ask"))
    assert "What do you see?" in repr(notebook.run("%ddt_debug 5"))
    end = repr(notebook.run("%ddt_debug 3"))
    while "hang D.2.1, with a probability of" not in end:
        assert "question" in end.splitlines()[0]
        end = repr(notebook.run("%ddt_debug 1"))
    assert "fix communication configuration" in end


def test_undo_unknown_restart_and_leave(notebook: Notebook) -> None:
    first = repr(notebook.run("%ddt_debug ask"))
    assert repr(notebook.run("%ddt_debug unknown")) != first
    assert repr(notebook.run("%ddt_debug undo")) == first
    notebook.run("%ddt_debug 2")
    assert repr(notebook.run("%ddt_debug restart")) == first
    assert "you left the assistant" in repr(notebook.run("%ddt_debug leave"))
    with pytest.raises(UsageError, match="there is no question; %ddt_debug ask starts"):
        notebook.run("%ddt_debug 1")


def test_answers_that_do_not_exist_are_refused(notebook: Notebook) -> None:
    notebook.run("%ddt_debug ask")
    with pytest.raises(UsageError, match="there is no answer 17; there are 6"):
        notebook.run("%ddt_debug 17")
    with pytest.raises(UsageError, match="words are for %ddt_debug"):
        notebook.run("%%ddt_debug ask\n1")


def test_what_a_run_showed_need_not_be_answered(notebook: Notebook) -> None:
    notebook.run("%ddt_start -n 2")
    with pytest.raises(Exception, match="ZeroDivisionError"):
        notebook.run("%%ddt\n1 / 0")
    shown = repr(notebook.run("%ddt_debug ask"))
    assert "(rank 0 raised\n  ZeroDivisionError)" in shown
    assert "What is the first error about?" in shown
    notebook.run("%ddt_stop")


def test_a_session_in_which_nothing_has_run(notebook: Notebook) -> None:
    shown = repr(notebook.run("%ddt_debug"))
    assert shown.startswith("nothing has run on ranks yet: put %%ddt_debug on top of a cell")
    assert "How far did the job get?" in shown
    assert "   1  a package could not be installed or built" in shown
    assert "What do you see?" in repr(notebook.run("%ddt_debug 5"))


def test_a_healthy_run_says_so_and_then_asks(notebook: Notebook) -> None:
    notebook.run("%ddt_start -n 2")
    notebook.run("%%ddt\ndist.all_reduce(torch.ones(1))")
    view = notebook.run("%ddt_debug")
    shown = repr(view)
    assert shown.startswith("ok · 2 ranks, 1 collective on 1 group agrees")
    assert "Does the job run to its end? yes (the last run ended" in shown
    assert "What do you see?" in shown
    html = view.to_html()
    assert html.index("1 collective on 1 group") < html.index("What do you see?")
    assert "%ddt_debug check" in html
    notebook.run("%ddt_stop")


def test_hints_come_first_and_count(notebook: Notebook) -> None:
    card = faults.card("new-group-on-some-ranks")
    notebook.run(f"%ddt_start -n {card.n}")
    notebook.run(f"%%ddt\n{card.broken}")
    shown = repr(notebook.run("%ddt_debug"))
    assert shown.index("hint · may be intended") < shown.index("question 1")
    assert f"the last run hints at setup failure {card.symptom}" in shown
    notebook.run("%ddt_stop")


def test_a_check_says_what_it_does_and_answers(notebook: Notebook) -> None:
    notebook.run("%ddt_start -n 2 --hang-after 0.3")
    notebook.run("%%ddt\nimport os\nfirst = not os.path.exists('seen')")
    with pytest.raises(UsageError, match="there is no question"):
        notebook.run("%ddt_debug check")
    asked = repr(notebook.run("%ddt_debug ask"))
    assert (
        "%ddt_debug check answers it for you: run the last cell up to 3 more times, each"
        in " ".join(asked.split())
    )
    shown = notebook.shown("%ddt_debug check")
    assert "check: run the last cell up to 3 more times, each time on 2 fresh ranks" in shown
    assert "What do you see? the check gave no answer (in 3 runs the cell ended" in (
        " ".join(shown.split())
    )
    with pytest.raises(UsageError, match="no check can answer this question here"):
        notebook.run("%ddt_debug check")
    assert repr(notebook.run("%ddt_debug undo")) == asked
    notebook.run("%ddt_stop")


def test_a_check_leads_on(notebook: Notebook) -> None:
    notebook.run("%ddt_start -n 2")
    notebook.shown("%%ddt\ntorch.ones(2, 3) @ torch.ones(2, 3)")
    assert "What is the first error about?" in repr(notebook.run("%ddt_debug ask"))
    shown = notebook.shown("%ddt_debug check")
    assert "check: read the error of the last run: RuntimeError" in shown
    assert "shapes, sizes or types of tensors (D.1.5: rank" in " ".join(shown.split())
    notebook.run("%ddt_stop")


def test_the_last_run_outlives_its_session(notebook: Notebook) -> None:
    notebook.run("%ddt_start -n 2")
    notebook.shown("%%ddt\n1 / 0 if rank else None")
    notebook.run("%ddt_stop")
    shown = repr(notebook.run("%ddt_debug"))
    assert "rank 1 raised ZeroDivisionError" in shown
    assert "note this ran before the ranks were stopped" in shown
    assert "(rank 1 raised" in repr(notebook.run("%ddt_debug ask"))
    assert notebook.run("%ddt_debug --single").verdict == "several"
    with pytest.raises(UsageError, match="no session: start one"):
        notebook.run("%ddt_debug --again")


@pytest.mark.parametrize("words", ["ask 2", "2 3", "undo check"])
def test_one_answer_at_a_time(notebook: Notebook, words: str) -> None:
    one, other = words.split()
    with pytest.raises(
        UsageError, match=f"one at a time: %ddt_debug {one}, then %ddt_debug {other}"
    ):
        notebook.run(f"%ddt_debug {words}")


def test_a_symptom_and_a_text(notebook: Notebook) -> None:
    assert repr(notebook.run("%ddt_debug D.2.1")).startswith("hang D.2.1")
    report = notebook.run(f"%ddt_debug {TRACEBACK}")
    assert report.findings[0].symptom == "D.1.2"


def test_faults_foreseen_in_the_code_are_shown(notebook: Notebook, tmp_path: Path) -> None:
    found = notebook.run("%%ddt_lint\nif rank == 0:\n    dist.barrier()")
    assert [finding.cause for finding in found] == ["collective-under-rank-condition"]
    assert "cell line 3: `dist.barrier()`" in repr(found)
    assert "no fault was found" in repr(notebook.run("%%ddt_lint\ndist.barrier()"))
    script = tmp_path / "train.py"
    script.write_text("if rank == 0:\n    dist.barrier()\n")
    assert "train.py line 2" in repr(notebook.run(f"%ddt_lint {script}"))
    with pytest.raises(UsageError, match=r"no_such\.py: No such file or directory"):
        notebook.run("%ddt_lint no_such.py")
    with pytest.raises(UsageError, match="on top of a cell, or name a file"):
        notebook.run("%ddt_lint")


def test_a_cell_that_is_debugged_is_read_first(notebook: Notebook) -> None:
    shown = notebook.shown("%%ddt_debug -n 2\nif rank == 0:\n    dist.barrier()")
    _, _, after = shown.partition("before it runs:")
    assert "only some ranks reach barrier" in after
    assert "rank 1 never entered barrier" in after
    notebook.run("%ddt_stop")


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: EADDRINUSE (errno: -98, name: 'address already in use')",
        "it's CUDA out of memory",
        '"KeyError: LOCAL_RANK"',
    ],
)
def test_any_text_can_be_pasted(notebook: Notebook, text: str) -> None:
    assert notebook.run(f"%ddt_debug {text}").findings


def test_a_log_can_be_named(notebook: Notebook, tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n")
    assert notebook.run(f"%ddt_debug {log}").findings[0].ranks == [1]


def test_a_cell_that_is_not_python_is_reported(notebook: Notebook) -> None:
    assert "the source is not Python" in repr(notebook.run("%%ddt_lint\nprint("))
