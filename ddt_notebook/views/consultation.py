"""A consultation as a person sees it: the path so far, what it came to, and what to change.

Its parts are drawn apart, so that they can stand beside each other where there is room.
"""

from __future__ import annotations

from typing import Any

from .. import faults
from ..diagnosis.consultation import Consultation, Repair
from ..model import Fix, Report, Snapshot
from ..symptoms import loader as study
from ..symptoms.lessons import lesson_in_folder
from . import diffs, html, report, text, words
from .bundle import Displayable
from .explanation import ExplanationView
from .html import Markup
from .interview import InterviewView

#: Fix patterns of a symptom that are listed; the rest is counted.
_PATTERNS = 6


class ConsultationView(Displayable):
    """Where a consultation stands.

    Parameters
    ----------
    consultation
        The steps so far.
    snapshot
        The run that it is about, None if there is none.
    offer
        What a check would do to answer the question, empty if there is none.
    before
        What is shown before it, such as the report of the last run.
    detail
        What was opened: a view of the run, the repair, or an explanation.
    """

    __slots__ = ("_repair", "before", "consultation", "detail", "offer", "snapshot")

    def __init__(
        self,
        consultation: Consultation,
        *,
        snapshot: Snapshot | None = None,
        offer: str = "",
        before: Displayable | None = None,
        detail: Displayable | None = None,
    ) -> None:
        self.consultation = consultation
        self.snapshot = snapshot
        self.offer = offer
        self.before = before
        self.detail = detail
        self._repair = consultation.repair(snapshot)

    def to_text(self) -> str:
        """The path, what it came to, and how to go on, 80 columns wide."""
        if self.consultation.question is not None:
            blocks = [self._interview().to_text()]
        else:
            blocks = [self.before.to_text(), ""] if self.before is not None else []
            blocks += [self._title()] if self.consultation.finding is None else []
            blocks += [*text.wrap("path", self._path()), *self._answers_text()]
            blocks += [*self._middle_text(), *self._choices_text()]
            told = {"more"} if self.consultation.finding is not None else set()
            for label, way in self._ways():
                if label not in told:  # a finding says itself where to read on
                    blocks += text.wrap(label, way.replace("`", ""))
        if self.detail is not None:
            blocks += ["", self.detail.to_text()]
        return "\n".join(blocks)

    def to_html(self) -> str:
        """The same below each other."""
        if self.consultation.question is not None:
            parts = [Markup(self._interview().to_html())]
        else:
            parts = [Markup(self.before.to_html())] if self.before is not None else []
            if self.consultation.finding is None:
                parts.append(html.line(html.tag("b", self._title())))
            parts.append(html.line(html.tag("b", "path "), self._path()))
            parts += [*self._answers_html(), *self._middle(), *self._changes()]
            parts += self._choices_html()
            for label, way in self._ways():
                parts.append(html.line(html.tag("b", f"{label} "), html.prose(way)))
        if self.detail is not None:
            parts.append(Markup(self.detail.to_html()))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The path and what it came to as plain data."""
        consultation = self.consultation
        question = consultation.question
        return {
            "path": dict(consultation.steps),
            "answers": [list(answer) for answer in self.answers],
            "question": question.ask if question is not None else None,
            "finding": consultation.finding.title if consultation.finding is not None else None,
            "choices": list(consultation.choices),
            "check": self.offer,
            "views": list(consultation.views),
            "fixes": [
                {"pattern": fix.pattern, "advice": fix.advice, "share": fix.share}
                for fix in consultation.fixes
            ],
            "lesson": self.lesson,
        }

    # -- the parts, for columns ----------------------------------------------------------------

    def path_html(self) -> Markup:
        """The steps and the answers so far."""
        steps = [html.line(f"{what}: ", html.tag("b", name)) for what, name in self._steps()]
        if not steps:
            steps = [html.line("the symptom is not told yet")]
        return html.view(*steps, *self._answers_html())

    def middle_html(self) -> Markup:
        """The question, or the finding with its evidence."""
        question = self.consultation.question
        parts = [] if question is not None else self._middle()
        if self.consultation.finding is None:
            asked = question.ask if question is not None else self._title()
            parts.insert(0, html.line(html.tag("b", asked)))
        if self.before is not None:
            parts.insert(0, Markup(self.before.to_html()))
        return html.view(*parts)

    def changes_html(self) -> Markup:
        """What to change, with its share in the study."""
        parts = self._changes(titled=False)
        if not parts:
            likely = self._interview().likely()
            parts = [html.line("there is nothing to change before the symptom is told")]
            parts += [html.line(f"likely so far: {likely}")] if likely else []
        return html.view(*parts)

    def detail_html(self) -> Markup:
        """What was opened; empty if nothing is open."""
        return Markup(self.detail.to_html() if self.detail is not None else "")

    @property
    def repair(self) -> Repair | None:
        """A cell without the fault, if there is one to show."""
        return self._repair

    @property
    def lesson(self) -> str | None:
        """Where the lesson on the symptom is, ``"notebooks/d-training/D.2.1-hang.ipynb"``."""
        code = self.consultation.symptom
        return lesson_in_folder(code) if code is not None else None

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Each question so far, and what it was answered with."""
        return [] if self.consultation.finding is not None else self._interview().path()

    # -- the path ------------------------------------------------------------------------------

    def _steps(self) -> list[tuple[str, str]]:
        return [
            (what, f"{faults.card(name).title} ({name})" if what == "fault" else name)
            for what, name in self.consultation.steps
        ]

    def _path(self) -> str:
        return " → ".join(name for _, name in self._steps())

    def _answers_text(self) -> list[str]:
        return [line for asked, told in self.answers for line in text.wrap("", f"{asked} {told}")]

    def _answers_html(self) -> list[Markup]:
        return [html.line(asked, " ", html.tag("b", told)) for asked, told in self.answers]

    def _interview(self) -> InterviewView:
        return InterviewView(self.consultation.interview, self.offer, self.before)

    # -- what it came to -----------------------------------------------------------------------

    def _middle(self) -> list[Markup]:
        consultation = self.consultation
        finding = consultation.finding
        if finding is not None:
            kind = report.KINDS[finding.confidence]
            told = [*report.concluded(finding, self.snapshot), *report.seen(finding)]
            return [html.card(kind, *told), *self._errors()]
        if consultation.card:
            card = faults.card(consultation.card)
            apart = [
                html.line("not ", html.code(name), ": ", html.prose(how))
                for name, how in card.apart.items()
            ]
            return [
                html.line("what you see: ", html.prose(card.sees)),
                html.line("why: ", html.prose(card.why)),
                *apart,
            ]
        return [html.line(self._told_by_study())]

    def _errors(self) -> list[Markup]:
        """The original errors of the run, folded."""
        if self.snapshot is None:
            return []
        found = Report(ok=False, findings=list(self.consultation.topics))
        return report.original_errors(found, self.snapshot)

    def _middle_text(self) -> list[str]:
        consultation = self.consultation
        finding = consultation.finding
        if finding is not None:
            return [text.finding(finding, self.snapshot)]
        if consultation.card:
            card = faults.card(consultation.card)
            told = text.wrap("sees", words.one_line(card.sees, 4000))
            told += text.wrap("why", words.one_line(card.why, 4000))
            for name, how in card.apart.items():
                told += text.wrap("not", f"{name}: {how}")
        else:
            told = text.wrap("", self._told_by_study())
        for fix in consultation.fixes[:_PATTERNS]:
            pattern, share = self._fix(fix)
            named = f"{pattern} ({share})" if share else pattern
            told += text.wrap("fix", f"{named}: {fix.advice}" if fix.advice else named)
        return told

    def _title(self) -> str:
        """``after 3 questions: hang D.2.1, as likely as 92%``, or the fault that it is."""
        card = self.consultation.card
        return faults.card(card).title if card else self._interview().title()

    def _told_by_study(self) -> str:
        code = self.consultation.symptom
        assert code is not None
        return ExplanationView(study.symptom(code), ()).frequency()

    # -- what to change ------------------------------------------------------------------------

    def _changes(self, *, titled: bool = True) -> list[Markup]:
        parts = []
        fixes = self.consultation.fixes
        if fixes and titled:
            parts.append(html.line(html.tag("b", "what to change")))
        for fix in fixes[:_PATTERNS]:
            pattern, share = self._fix(fix)
            said = [html.line(html.tag("b", pattern), f" · {share}" if share else "")]
            said += [html.line(html.prose(words.one_line(fix.advice, 1000)))] if fix.advice else []
            parts.append(html.tag("div", *said, style="margin:2px 0 8px 0"))
        if rest := fixes[_PATTERNS:]:
            parts.append(html.line(f"and {words.count(len(rest), 'more pattern')}"))
        return parts

    def _fix(self, fix: Fix) -> tuple[str, str]:
        """Its pattern, and its share in the study: ``11 %, 5 of 44 hangs in the study``."""
        code = self.consultation.symptom
        source = words.fix_source(code, fix) if code is not None else ""
        return fix.pattern, f"{fix.share:.0%}, {source}" if source else ""

    # -- how to go on --------------------------------------------------------------------------

    def _choices_text(self) -> list[str]:
        lines = text.wrap("", self._asks()) if self.consultation.choices else []
        for number, choice in enumerate(self.consultation.choices, 1):
            first, *rest = text.wrap("", words.one_line(choice))
            lines += [f"  {number:>2}  {first.strip()}", *(f"    {line}" for line in rest)]
        return lines

    def _choices_html(self) -> list[Markup]:
        if not self.consultation.choices:
            return []
        items = [html.tag("li", words.one_line(choice)) for choice in self.consultation.choices]
        listed = html.tag("ol", *items, style="margin:2px 0 6px 0")
        return [html.line(html.tag("b", self._asks())), listed]

    def _asks(self) -> str:
        """What the numbered choices are, where they answer no question."""
        symptom = self.consultation.stand == "symptom"
        return "which of these faults is it?" if symptom else "what else there is"

    def _ways(self) -> list[tuple[str, str]]:
        """How to go on with magics."""
        consultation = self.consultation
        ways = []
        if consultation.views:
            shown = " · ".join(f"`%ddt_show {name}`" for name in consultation.views)
            after = "" if self.snapshot is not None else ", after a run on ranks"
            ways.append(("show", shown + after))
        if self._repair is not None:
            ways.append(("cell", f"`%ddt_debug --fix` gives {repaired(self._repair)}"))
        named = [name for name in (consultation.symptom, consultation.cause) if name]
        pages = [f"`%ddt_explain {name}`" for name in named]
        ways.append(("more", " · ".join([*pages, *([self.lesson] if self.lesson else [])])))
        number = "`%ddt_debug 1` takes the first of them; " if consultation.choices else ""
        ways.append(("go", f"{number}`%ddt_debug undo`, `restart` and `leave`"))
        return ways


class RepairView(Displayable):
    """A cell without the fault, whole and as a change.

    Parameters
    ----------
    repair
        The two cells.
    placed
        Whether the cell was put into the notebook.
    """

    __slots__ = ("placed", "repair")

    def __init__(self, repair: Repair, *, placed: bool = False) -> None:
        self.repair = repair
        self.placed = placed

    def to_text(self) -> str:
        """The change, and how the cell gets into the notebook."""
        lines = text.wrap("", self._title())
        return "\n".join([*lines, *diffs.as_text(self.repair.before, self.repair.after)])

    def to_html(self) -> str:
        """The change, and the whole cell."""
        return html.view(
            html.line(html.prose(self._title())),
            diffs.as_html(self.repair.before, self.repair.after),
            html.details("the whole cell", html.pre(self.repair.whole)),
        )

    def _title(self) -> str:
        said = words.one_line(self.repair.says)
        if self.placed:
            return f"the next cell holds {repaired(self.repair)}, run it to see: {said}"
        return f"{repaired(self.repair)}: {said}; `%ddt_debug --fix` puts it into a new one"


def repaired(repair: Repair) -> str:
    """What kind of cell it is."""
    return "your cell, corrected" if repair.derived else "an example (not your cell), repaired"
