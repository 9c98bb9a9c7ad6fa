"""What ``lint`` finds in the cards' cells and in correct cells, and how fast it is."""

from __future__ import annotations

import tomllib

from ddt_notebook.diagnosis.lint import lint
from ddt_notebook.faults import card, card_ids

from .common import ROOT, Figure, check, median_of, seconds

LINES = 1_000


def long_file() -> str:
    """Healthy training scripts, joined to one file."""
    scripts = sorted((ROOT / "tests" / "fixtures" / "training_scripts").glob("*.py"))
    text = "\n".join(path.read_text() for path in scripts)
    lines = (text * (1 + LINES // text.count("\n"))).splitlines()
    # Cut at the end of a statement.
    end = next(
        i for i in range(LINES, len(lines)) if lines[i].startswith(("def ", "class ", '"""'))
    )
    check(end >= LINES, "the file is too short")
    return "\n".join(lines[:end])


def healthy_cells() -> list[str]:
    cells = [cell for name in card_ids() for cell in (card(name).fixed, card(name).proof)]
    for path in ("fixtures/healthy", "fixtures/held_out_healthy", "unit/diagnosis/lint_healthy"):
        cases = tomllib.loads((ROOT / "tests" / f"{path}.toml").read_text())["case"]
        cells += [case["source"] for case in cases]
    return cells


def measure() -> list[Figure]:
    """Share of missed cards, correct cells with findings, and time for a long file."""
    visible = [name for name in card_ids() if card(name).in_source]
    missed = [
        name for name in visible if name not in {found.cause for found in lint(card(name).broken)}
    ]
    cells = healthy_cells()
    accused = sum(any(f.confidence != "possible" for f in lint(cell)) for cell in cells)
    source = long_file()
    took, note = median_of(lambda: 1e3 * seconds(lambda: lint(source)), 7)
    lines = source.count("\n") + 1
    return [
        Figure(
            "lint: faults visible in a card's code that are missed",
            100 * len(missed) / len(visible),
            20,
            "%",
            note=f"{len(missed)} of {len(visible)} cards, {len(card_ids())} in all",
        ),
        Figure("lint: correct cells accused", accused, 0, "", note=f"{len(cells)} cells"),
        Figure(f"lint of {lines} lines", took, 300, "ms", note=note),
    ]


if __name__ == "__main__":
    for figure in measure():
        print(figure.row())
