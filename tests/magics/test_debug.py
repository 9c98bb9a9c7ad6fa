"""``%ddt_debug`` after a run: again, on one rank, corrected; and ``%ddt_explain``; real ranks."""

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.error import UsageError

from ddt_notebook.host.session import active
from ddt_notebook.magics.failure import CellFailed
from ddt_notebook.views.comparison import ComparisonView, SingleRankView
from ddt_notebook.views.taxonomy import TaxonomyView

from .conftest import Notebook

HANG = "%%ddt\nx = torch.ones(2)\nif rank == 0:\n    dist.all_reduce(x)\n    print('sum', x)"


@pytest.fixture
def ranks(notebook: Notebook) -> Iterator[Notebook]:
    notebook.run("%ddt_start -n 2 --hang-after 0.3")
    yield notebook
    notebook.run("%ddt_stop")


def next_input(notebook: Notebook) -> str:
    """What the magic offered as the next cell."""
    waiting: Any = notebook.shell.rl_next_input
    return str(waiting)


def test_a_corrected_cell_is_offered_and_removes_the_symptom(ranks: Notebook) -> None:
    shown = ranks.shown(HANG)
    assert "`%ddt_debug --fix` puts the corrected cell" in shown
    fixed = repr(ranks.run("%ddt_debug --fix"))
    assert "`dist.all_reduce(x)` stands outside `if rank == 0:`" in " ".join(fixed.split())
    assert "    + dist.all_reduce(x)" in fixed
    offered = next_input(ranks)
    expected = "%%ddt_debug --again\nx = torch.ones(2)\ndist.all_reduce(x)\nif rank == 0:\n"
    assert offered == expected + "    print('sum', x)\n"
    view = ranks.run(offered)
    assert isinstance(view, ComparisonView)
    assert view.change == "gone"
    text = repr(view)
    assert text.startswith("gone · the symptom is gone: the run is well now")
    assert "gone hang D.2.1 or C.4: rank 1 never entered all_reduce #1" in text
    assert "placement" in text  # the views of %%ddt_debug are there, too
    assert "the symptom is gone" in view.to_html()
    assert view.to_json()["after"]["ok"]
    with pytest.raises(UsageError, match="nothing was found in the last run"):
        ranks.run("%ddt_debug --fix")


def test_where_the_change_cannot_be_derived_it_is_an_example_whatever_came_before(
    ranks: Notebook,
) -> None:
    ranks.shown("%%ddt\nfor _ in range(1 + rank):\n    dist.barrier()")
    with pytest.raises(UsageError, match="the change cannot be derived from this cell"):
        ranks.run("%ddt_debug --fix")  # the card's loop calls no barrier
    ranks.shown(
        "%%ddt\ndef total():\n    dist.all_reduce(torch.ones(1))\nif rank == 0:\n    total()"
    )
    offered = []
    for before in ("x = 1", "%ddt_debug"):
        ranks.run(before)
        shown = " ".join(repr(ranks.run("%ddt_debug --fix")).split())
        assert shown.startswith("the next cell holds an example (not your cell), repaired")
        offered.append(next_input(ranks))
    assert offered[0] == offered[1]
    assert offered[0].startswith("%%ddt_debug\n# an example, not your cell: ")


def test_a_cell_that_ends_by_clock_is_corrected_also_after_others_looked_at_variables(
    ranks: Notebook,
) -> None:
    ranks.run("%%ddt\nimport time")
    clocked = "end = time.time() + rank\nwhile time.time() < end:\n    dist.barrier()"
    ranks.shown(f"%%ddt\n{clocked}")
    number = active.get().last_run.snapshot.cell.number  # type: ignore[union-attr]
    ranks.run("%%ddt\nprint(end)")
    assert f"`%ddt_debug --fix` is about cell[{number}]" in " ".join(
        ranks.shown("%ddt_debug").split()
    )
    fixed = " ".join(repr(ranks.run("%ddt_debug --fix")).split())
    assert f"your cell[{number}], corrected; run it" in fixed
    offered = next_input(ranks)
    assert "while on_all_ranks(time.time() < end):" in offered
    assert ranks.run(offered).change == "gone"
    ranks.run("%%ddt\nprint(end)")
    with pytest.raises(UsageError, match="nothing was found in the last run"):
        ranks.run("%ddt_debug --fix")


def test_the_same_cell_runs_again(ranks: Notebook) -> None:
    ranks.shown(HANG)
    number = active.get().last_run.snapshot.cell.number  # type: ignore[union-attr]
    shown = ranks.shown("%ddt_debug --again -o run")
    assert "same · the symptom is still there" in shown
    assert f"cell[{number}] line 4   dist.all_reduce(x)" in shown
    with pytest.raises(CellFailed):
        ranks.run("%ddt_debug --again")
    assert not ranks.names["run"].ok


def test_another_finding_after_a_change(ranks: Notebook) -> None:
    ranks.shown(HANG)
    shown = ranks.shown("%%ddt_debug --again\nx = torch.ones(2)\nx.no_such()")
    assert "other · the symptom is gone, but now something else was found" in shown
    ranks.run("%%ddt\ny = 1")
    assert ranks.run("%ddt_debug --again").change == "well"
    ranks.shown("%%ddt\nx.no_such()")
    number = active.get().last_run.snapshot.cell.number  # type: ignore[union-attr]
    ranks.run("%%ddt\ny = 1")
    shown = repr(ranks.run("%%ddt_debug --again\nprint(y, 'is another cell')"))
    assert "gone" in shown.split(" · ")[0], "it is compared with the last run that had a finding"
    assert f"compared with cell[{number}]" in shown


def test_the_single_rank_check(ranks: Notebook) -> None:
    ranks.run("%%ddt\nmodel = torch.nn.Linear(4, 2)")
    ranks.shown("%%ddt\nmodel(torch.ones(2, 3))")
    session = active.get()
    view = ranks.run("%ddt_debug --single")
    assert isinstance(view, SingleRankView)
    assert view.verdict == "also"
    assert "not a distributed fault" in repr(view)
    assert "] line 2: model(torch.ones(2, 3))" in repr(view)
    assert "not a distributed fault" in view.to_html()
    assert active.get() is session
    ranks.shown(HANG)
    view = ranks.run("%ddt_debug --single")
    assert view.verdict == "several"
    assert view.to_json()["ranks"] == 2
    assert "[ranks 0, 1] 2\n" in ranks.shown("%%ddt\nmodel.out_features")


def test_one_rank_has_what_was_pushed_and_what_earlier_cells_made(ranks: Notebook) -> None:
    ranks.run("factor, unused = 2, 3")
    ranks.run("%ddt_push factor unused")
    ranks.run("%%ddt\nfactor = factor * 5")
    ranks.run("%ddt_push unused")
    ranks.shown("%%ddt\nassert (factor, unused) == (10, 3)\nif rank == 0:\n    dist.barrier()")
    view = ranks.run("%ddt_debug --single")
    assert view.verdict == "several", repr(view)


def test_one_rank_that_lacks_a_variable_says_which(ranks: Notebook) -> None:
    ranks.run("%%ddt\nif rank == 1:\n    only_there = 1")
    ranks.shown("%%ddt\nif world_size == 1 or rank == 1:\n    only_there\n1 / 0")
    view = ranks.run("%ddt_debug --single")
    assert view.verdict == "otherwise"
    assert view.to_json()["lacks"] == "only_there"
    assert "nothing was decided: the cell needs only_there" in " ".join(repr(view).split())


def test_a_mistake_gives_one_line(ranks: Notebook) -> None:
    with pytest.raises(UsageError, match="nothing has run yet, so --again"):
        ranks.run("%ddt_debug --again")
    ranks.shown("%%ddt\n1 / 0")
    with pytest.raises(UsageError, match="one at a time: --again or --fix"):
        ranks.run("%ddt_debug --again --fix")
    with pytest.raises(UsageError, match=r"cannot be derived from this cell; the line that"):
        ranks.run("%ddt_debug --fix")
    with pytest.raises(UsageError, match="are about the last run"):
        ranks.run("%%ddt_debug --single\nx = 1")
    with pytest.raises(UsageError, match="options belong to %%ddt_debug"):
        ranks.run("%ddt_debug --again -n 3")


def test_explain(notebook: Notebook) -> None:
    assert isinstance(notebook.run("%ddt_explain"), TaxonomyView)
    page = repr(notebook.run("%ddt_explain collective-under-rank-condition"))
    assert "    -     dist.all_reduce(loss)" in page
    found = repr(notebook.run("%ddt_explain hang"))
    assert "%ddt_explain D.2.1" in found
    assert "    collective-under-rank-condition\n" in repr(notebook.run("%ddt_explain D.2.1"))
    with pytest.raises(UsageError, match="nothing is known about 'zzz qqq'"):
        notebook.run("%ddt_explain zzz qqq")


def test_ok_stands_alone_only_where_no_view_flags_anything(ranks: Notebook) -> None:
    apart = "torch.manual_seed(rank)\nmodel = torch.nn.Linear(4, 2)"
    assert "ok, but 1 view flags something · 2 ranks" in repr(ranks.run(f"%%ddt_debug\n{apart}"))
    alike = "torch.manual_seed(0)\nmodel = torch.nn.Linear(4, 2)"
    assert repr(ranks.run(f"%%ddt_debug\n{alike}")).startswith("ok · 2 ranks")


def test_consequences_of_a_hang_are_folded(ranks: Notebook) -> None:
    apart = "torch.manual_seed(rank)\nmodel = torch.nn.Linear(4, 2)\n"
    shown = ranks.shown(f"%%ddt_debug\n{apart}if rank == 0:\n    dist.barrier()")
    assert "views of what ran until then" in shown
    assert "parity (1 flag)" in shown
    assert "parameters of model differ" not in shown
