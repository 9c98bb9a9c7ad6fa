"""The study's taxonomy: stages and symptoms with their counts, as a tree, a table and a figure."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

from ..faults import cards
from ..symptoms import Stage, Symptom, fixes, stages, symptoms
from . import dataframe, figures, html, terminal, words
from .figures import Figure, Figured

#: Okabe and Ito's, one for each stage.
_COLOURS = {"A": "#E69F00", "B": "#56B4E9", "C": "#009E73", "D": "#CC79A7"}
_ROOT = "faults"
_HEAD = ("symptom", "", "faults", "only distributed", "most frequent repair", "cards")


class TaxonomyView(Figured):
    """All stages and symptoms, how often the study saw them, and how many cards they have."""

    __slots__ = ("_cards",)

    def __init__(self) -> None:
        self._cards = Counter(code for card in cards() for code in card.symptoms)

    def to_text(self) -> str:
        """The tree, 80 columns wide."""
        lines = [self._title()]
        for stage in stages():
            lines.append(f"  {stage.code} {self._share(stage.faults):>6}  {stage.title}")
            for symptom in _of_stage(stage):
                known = self._cards[symptom.code]
                cards = f"   {words.count(known, 'card')}" if known else ""
                name = f"{symptom.code:<7} {symptom.title:<34}"
                lines.append(f"      {name} {symptom.faults:>4}{cards}")
        return "\n".join([*lines, *terminal.wrap("more", "%ddt_explain D.2.1, a card, or words")])

    def to_html(self) -> str:
        """A table for each stage, folded."""
        parts = [html.line(html.tag("b", self._title()))]
        for stage in stages():
            rows = [self._row(symptom) for symptom in _of_stage(stage)]
            title = f"{stage.code} {stage.title}: {stage.faults} ({self._share(stage.faults)})"
            parts.append(html.details(title, html.table(rows, _HEAD)))
        parts.append(html.line("read on: ", html.code("%ddt_explain D.2.1")))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """Stages, their symptoms and these symptoms' fix patterns as plain data."""
        return {
            "faults": _total(),
            "stages": [
                {
                    **dataclasses.asdict(stage),
                    "symptoms": [
                        {
                            **dataclasses.asdict(symptom),
                            "fixes": [dataclasses.asdict(fix) for fix in fixes(symptom.code)],
                            "cards": self._cards[symptom.code],
                        }
                        for symptom in _of_stage(stage)
                    ],
                }
                for stage in stages()
            ],
        }

    def to_frame(self) -> Any:
        """One row for each symptom, as a pandas DataFrame.

        - ``code``, ``title``: such as ``"D.2.1"`` and ``"hang"``
        - ``stage``, ``stage_title``: letter and name of its stage
        - ``faults``: number of faults in the study that showed it
        - ``distributed_faults``: number of those that occur only in distributed training
        - ``cards``: number of fault cards that show it
        """
        names = [field.name for field in dataclasses.fields(Symptom)]
        rows = [dataclasses.asdict(s) | {"cards": self._cards[s.code]} for s in symptoms()]
        return dataframe.frame(rows, (*names, "cards"))

    def to_plotly(self) -> Figure:
        """A treemap; a larger area stands for more faults."""
        known = symptoms()
        ids = [_ROOT, *(s.code for s in stages()), *(s.code for s in known)]
        labels = [
            "the study",
            *(f"{s.code} {s.title}" for s in stages()),
            *(f"{s.code} {s.title}" for s in known),
        ]
        values = [_total(), *(s.faults for s in stages()), *(s.faults for s in known)]
        parents = ["", *(_ROOT for _ in stages()), *(s.stage for s in known)]
        colours = [
            "#BBBBBB",
            *(_COLOURS[s.code] for s in stages()),
            *(_COLOURS[s.stage] for s in known),
        ]
        treemap = {
            "type": "treemap",
            "ids": ids,
            "labels": labels,
            "parents": parents,
            "values": values,
            "branchvalues": "total",
            "marker": {"colors": colours, "line": {"width": 1, "color": "#404040"}},
            "tiling": {"pad": 2},
            "textfont": {"color": "#000000"},
            "texttemplate": "%{label}<br>%{value}",
            "hovertemplate": "%{label}<br>%{value} faults<br>%{percentParent:.1%} of %{parent}"
            "<extra></extra>",
            "pathbar": {"visible": False},
        }
        layout = {
            "height": 460,
            "margin": {"l": 8, "r": 8, "t": 8, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
        }
        return {"data": [treemap], "layout": layout, "config": figures.CONFIG}

    def _title(self) -> str:
        named = sum(symptom.title != "others" for symptom in symptoms())
        return (
            f"taxonomy of {_total()} faults in distributed training · {len(stages())} stages, "
            f"{named} named symptoms"
        )

    def _row(self, symptom: Symptom) -> tuple[str, ...]:
        first = next((fix for fix in fixes(symptom.code) if fix.pattern != "other"), None)
        return (
            symptom.code,
            symptom.title,
            str(symptom.faults),
            str(symptom.distributed_faults),
            f"{first.pattern} ({first.share:.0%})" if first else "",
            str(self._cards[symptom.code] or ""),
        )

    @staticmethod
    def _share(faults: int) -> str:
        return f"{faults / _total():.1%}"


def _of_stage(stage: Stage) -> list[Symptom]:
    return [symptom for symptom in symptoms() if symptom.stage == stage.code]


def _total() -> int:
    return sum(symptom.faults for symptom in symptoms())
