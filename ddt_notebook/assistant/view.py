"""The state of the assistant as text, HTML and JSON.

The panel shows the same in three columns, so the columns can be drawn one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from .. import faults
from ..model import Fix, Report, Snapshot
from ..symptoms import lessons
from ..symptoms import loader as symptoms
from ..views import code_diff, html, report, report_text, safe, terminal, words
from ..views.displayable import Displayable
from ..views.explain import ExplanationView
from ..views.html import Markup
from .questions import find
from .state import FixedCell, State
from .wording import sentence

#: Fix patterns of a symptom that are listed; the view counts the others.
_PATTERNS = 6
#: The largest number of symptoms that are listed as probable, and their least probability.
_PROBABLE, _LEAST = 3, 0.08
#: The largest probability that is shown: answers can be wrong.
_MOST = 0.99
#: The longest description of a fault card, in characters.
_LONGEST = 4000
_LEAD = "if something is wrong nevertheless, or went wrong elsewhere, these questions find it"
_HOW = (
    "answer with `%ddt_debug 1`, or with `%ddt_debug unknown` if you do not know; "
    "`undo`, `restart` and `leave` work in the same way"
)
_SIZED = "margin:2px 0 8px 0"


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of the view in both forms; one of them may be empty."""

    text: list[str]
    html: Markup

    @classmethod
    def line(cls, content: str, label: str = "", *, bold: bool = False) -> _Block:
        """A paragraph; code stands between backticks."""
        shown = html.prose(content)
        start = [html.tag("b", f"{label} ")] if label else []
        markup = html.line(*start, html.tag("b", shown) if bold else shown)
        return cls(terminal.wrap(label, content.replace("`", "")), markup)

    @classmethod
    def answer(cls, question: str, answer: str) -> _Block:
        """A question with its answer."""
        markup = html.line(question, " ", html.tag("b", answer))
        return cls(terminal.wrap("", f"{question} {answer}"), markup)

    @classmethod
    def numbered(cls, choices: Iterable[str]) -> _Block:
        """The choices with their numbers."""
        lines, items = [], []
        for number, choice in enumerate(map(safe.one_line, choices), 1):
            first, *rest = terminal.wrap("", choice, width=terminal.WIDTH - 4)
            lines += [f"  {number:>2}  {first.strip()}", *(f"    {line}" for line in rest)]
            items.append(html.tag("li", choice))
        return cls(lines, html.tag("ol", *items, style="margin:2px 0 6px 0"))

    @classmethod
    def part(cls, part: Displayable) -> _Block:
        """Another view."""
        return cls([part.to_text()], Markup(part.to_html()))


_GAP = _Block([""], Markup())


class AssistantView(Displayable):
    """The state of the assistant.

    Parameters
    ----------
    state
        The steps so far.
    snapshot
        The run that it is about, None if there is none.
    offer
        What a check would do to answer the question, empty if there is no check.
    before
        What is shown above it, such as the report of the last run.
    opened
        What the user opened: a view of the run, the fixed cell, or an explanation.
    """

    __slots__ = ("before", "fixed_cell", "offer", "opened", "snapshot", "state")

    def __init__(
        self,
        state: State,
        *,
        snapshot: Snapshot | None = None,
        offer: str = "",
        before: Displayable | None = None,
        opened: Displayable | None = None,
    ) -> None:
        self.state = state
        self.snapshot = snapshot
        self.offer = offer
        self.before = before
        self.opened = opened
        #: A cell without the fault, None if there is none to show.
        self.fixed_cell = state.fixed_cell(snapshot)

    def to_text(self) -> str:
        """The path, the finding or question, and how to go on; 80 columns wide."""
        return "\n".join(line for block in self._blocks() for line in block.text)

    def to_html(self) -> str:
        """The same as HTML."""
        return html.view(*(block.html for block in self._blocks()))

    def to_json(self) -> dict[str, Any]:
        """The path, the question or finding, the choices and the fixes as plain data."""
        state = self.state
        return {
            "path": dict(state.path),
            "answers": [list(answer) for answer in self.answers],
            "question": state.question.text if state.question is not None else None,
            "finding": state.finding.title if state.finding is not None else None,
            "choices": list(state.choices),
            "check": self.offer,
            "views": list(state.views),
            "fixes": [
                {"pattern": fix.pattern, "advice": fix.advice, "share": fix.share}
                for fix in state.fixes
            ],
            "lesson": self.lesson,
        }

    # -- the columns of the panel --------------------------------------------------------------

    def path_html(self) -> Markup:
        """The path and the answers so far."""
        steps = [html.line(f"{what}: ", html.tag("b", name)) for what, name in self._path()]
        if not steps:
            steps = [html.line("the symptom is not known yet")]
        return html.view(*steps, *(block.html for block in self._answers()))

    def middle_html(self) -> Markup:
        """The question, or the finding with its evidence."""
        above = [_Block.part(self.before)] if self.before is not None else []
        if self.state.question is not None:
            blocks = [_Block.line(self.state.question.text, bold=True)]
        else:
            blocks = [*self._heading(), *self._conclusion()]
        return html.view(*(block.html for block in (*above, *blocks)))

    def changes_html(self) -> Markup:
        """What to change, with the share of each fix pattern in the study."""
        if self.state.fixes:
            return html.view(*self._fixes_html())
        lines = ["there is nothing to change before the symptom is known"]
        if probable := self.probable():
            lines.append(f"probable so far: {probable}")
        return html.view(*map(html.line, lines))

    def opened_html(self) -> Markup:
        """What the user opened; empty if nothing is open."""
        return Markup(self.opened.to_html() if self.opened is not None else "")

    # -- the data ------------------------------------------------------------------------------

    @property
    def lesson(self) -> str | None:
        """Where the lesson on the symptom is, ``"d-training/D.2.1-hang.ipynb"``."""
        code = self.state.symptom
        return lessons.lesson(code) if code is not None else None

    @property
    def answers(self) -> list[tuple[str, str]]:
        """Each question so far with its answer; empty at a finding."""
        if self.state.finding is not None:
            return []
        given = self.state.questionnaire.answers
        by_user_or_run = {answer.question for answer in given if answer.source != "check"}
        found = []
        for answer in given:
            without_result = answer.source == "check" and answer.choice is None
            if without_result and answer.question in by_user_or_run:
                continue  # the user answered it after the check
            question = find(answer.question)
            if answer.choice is not None:
                said = question.choices[answer.choice].text
            else:
                said = "the check gave no answer" if without_result else "I don't know"
            seen = f" ({sentence(answer.seen)})" if answer.seen is not None else ""
            found.append((question.text, f"{said}{seen}"))
        return found

    def title(self) -> str:
        """The number of the question, or what the answers point to."""
        asked = self.state.questionnaire
        if asked.conclusion is None:
            return f"question {asked.asked + 1}"
        symptom = symptoms.symptom(asked.conclusion)
        found = f"{symptom.title} {symptom.code}"
        others = [code for code in self._probable() if code != symptom.code]
        more = f"; also possible: {', '.join(others)}" if others else ""
        probability = asked.probabilities[symptom.code]
        counted = ((asked.asked, "question"), (asked.checked, "check"))
        after = " and ".join(words.count(number, noun) for number, noun in counted if number)
        if after:
            chance = f", with a probability of {min(probability, _MOST):.0%}"
            return f"after {after}: {found}{chance}{more}"
        chance = f", with a probability of {probability:.0%}" if probability < _MOST else ""
        return f"no question was needed: the last run shows {found}{chance}{more}"

    def probable(self) -> str:
        """The most probable symptoms with their probabilities; empty before the first answer."""
        asked = self.state.questionnaire
        if all(answer.choice is None for answer in asked.answers):
            return ""
        return ", ".join(
            f"{symptoms.symptom(code).title} {code} ({asked.probabilities[code]:.0%})"
            for code in self._probable()
        )

    def _probable(self) -> list[str]:
        probabilities = self.state.questionnaire.probabilities
        return [code for code in list(probabilities)[:_PROBABLE] if probabilities[code] >= _LEAST]

    # -- the whole view, from top to bottom ----------------------------------------------------

    def _blocks(self) -> Iterator[_Block]:
        question = self.state.question
        if self.before is not None:
            yield _Block.part(self.before)
            yield _GAP
            if question is not None:
                yield _Block.line(_LEAD)
        if question is not None:
            yield from self._question_blocks()
        else:
            yield from self._heading()
            yield _Block.line(" → ".join(name for _, name in self._path()), "path")
            yield from self._answers()
            yield from self._conclusion()
            if self.state.finding is None:
                yield from self._fix_lines()
            yield _Block([], Markup("".join(self._fixes_html(titled=True))))
            if self.state.choices:
                yield _Block.line(self._choice_heading(), bold=True)
                yield _Block.numbered(self.state.choices)
            yield from self._commands()
        if self.opened is not None:
            yield _GAP
            yield _Block.part(self.opened)

    def _question_blocks(self) -> Iterator[_Block]:
        question = self.state.question
        assert question is not None
        yield from self._heading()
        if hints := self.state.questionnaire.hints:
            named = (f"{symptoms.symptom(code).title} {code}" for code in hints)
            yield _Block.line(f"the last run hints at {', '.join(named)}")
        yield from self._answers()
        yield _GAP
        yield _Block.line(question.text, bold=True)
        yield _Block.numbered(self.state.choices)
        yield _GAP
        yield _Block.line(_HOW)
        if self.offer:
            yield _Block.line(f"`%ddt_debug check` answers it for you: {self.offer}")
        if probable := self.probable():
            yield _Block.line(f"probable so far: {probable}")

    def _heading(self) -> Iterator[_Block]:
        """The question's number, the symptom that the answers point to, or the fault."""
        if self.state.finding is None:
            card = self.state.card
            title = faults.card(card).title if card else self.title()
            yield _Block([title], html.line(html.tag("b", title)))

    def _path(self) -> list[tuple[str, str]]:
        return [
            (what, f"{faults.card(name).title} ({name})" if what == "fault" else name)
            for what, name in self.state.path
        ]

    def _answers(self) -> Iterator[_Block]:
        return (_Block.answer(question, answer) for question, answer in self.answers)

    def _conclusion(self) -> Iterator[_Block]:
        """The finding with its evidence, what the fault looks like, or the symptom's frequency."""
        finding, symptom = self.state.finding, self.state.symptom
        if finding is not None:
            kind = report.KINDS[finding.confidence]
            parts = [*report.concluded(finding, self.snapshot), *report.seen(finding)]
            yield _Block([report_text.finding(finding, self.snapshot)], html.card(kind, *parts))
            if self.snapshot is not None:
                found = Report(ok=False, findings=list(self.state.findings))
                errors = report.original_errors(found, self.snapshot)
                yield _Block([], Markup("".join(errors)))
        elif self.state.card:
            card = faults.card(self.state.card)
            yield _Block.line(safe.one_line(card.sees, _LONGEST), "sees")
            yield _Block.line(safe.one_line(card.why, _LONGEST), "why")
            for name, how in card.apart.items():
                yield _Block.line(f"`{name}`: {how}", "not")
        elif symptom is not None:
            yield _Block.line(ExplanationView(symptoms.symptom(symptom), ()).frequency())

    # -- what to change ------------------------------------------------------------------------

    def _fix_lines(self) -> Iterator[_Block]:
        for fix in self.state.fixes[:_PATTERNS]:
            source = self._source(fix)
            named = f"{fix.pattern} ({source})" if source else fix.pattern
            lines = terminal.wrap("fix", f"{named}: {fix.advice}" if fix.advice else named)
            yield _Block(lines, Markup())

    def _fixes_html(self, *, titled: bool = False) -> Iterator[Markup]:
        fixes = self.state.fixes
        if fixes and titled:
            yield html.line(html.tag("b", "what to change"))
        for fix in fixes[:_PATTERNS]:
            source = self._source(fix)
            said = [html.line(html.tag("b", fix.pattern), f" · {source}" if source else "")]
            if fix.advice:
                said.append(html.line(html.prose(safe.one_line(fix.advice, 1000))))
            yield html.tag("div", *said, style=_SIZED)
        if rest := fixes[_PATTERNS:]:
            yield html.line(f"and {words.count(len(rest), 'more pattern')}")

    def _source(self, fix: Fix) -> str:
        """The share of a fix pattern in the study: ``11%, 5 of 44 hangs in the study``."""
        code = self.state.symptom
        source = words.fix_source(code, fix) if code is not None else ""
        return f"{fix.share:.0%}, {source}" if source else ""

    # -- how to go on --------------------------------------------------------------------------

    def _choice_heading(self) -> str:
        symptom = self.state.at == "symptom"
        return "which of these faults is it?" if symptom else "what else there is"

    def _commands(self) -> Iterator[_Block]:
        """The magics with which to go on."""
        state = self.state
        if state.views:
            shown = " · ".join(f"`%ddt_show {name}`" for name in state.views)
            after = "" if self.snapshot is not None else ", after a run on ranks"
            yield _Block.line(shown + after, "show")
        if self.fixed_cell is not None:
            yield _Block.line(f"`%ddt_debug --fix` gives {whose(self.fixed_cell)}", "cell")
        named = [name for name in (state.symptom, state.cause) if name]
        pages = [f"`%ddt_explain {name}`" for name in named]
        more = _Block.line(
            " · ".join([*pages, *([f"lesson {self.lesson}"] if self.lesson else [])]), "more"
        )
        # the text of a finding already names the page to read
        yield _Block([], more.html) if state.finding is not None else more
        first = "`%ddt_debug 1` chooses the first of them; " if state.choices else ""
        yield _Block.line(f"{first}`%ddt_debug undo` takes a step back", "go")


class FixedCellView(Displayable):
    """A cell without the fault: the change, and the whole cell.

    Parameters
    ----------
    cell
        The cell.
    placed
        Whether it was put into the notebook.
    """

    __slots__ = ("cell", "placed")

    def __init__(self, cell: FixedCell, *, placed: bool = False) -> None:
        self.cell = cell
        self.placed = placed

    def to_text(self) -> str:
        """The change, and how the cell gets into the notebook."""
        lines = terminal.wrap("", self._title())
        return "\n".join([*lines, *code_diff.as_text(self.cell.before, self.cell.after)])

    def to_html(self) -> str:
        """The change, and the whole cell."""
        return html.view(
            html.line(html.prose(self._title())),
            code_diff.as_html(self.cell.before, self.cell.after),
            html.details("the whole cell", html.pre(self.cell.source)),
        )

    def _title(self) -> str:
        change = safe.one_line(self.cell.change)
        if left := self.cell.remaining:
            change += (
                f". Of {words.count(self.cell.found, 'finding')} this changes "
                f"{self.cell.found - len(left)}; still there: "
                f"{safe.one_line('; '.join(left), 1000)}"
            )
        if self.placed:
            return f"the next cell holds {whose(self.cell)}; run it to see. What changed: {change}"
        return f"{whose(self.cell)}: {change}; `%ddt_debug --fix` puts it into a new cell"


def whose(cell: FixedCell) -> str:
    """Whether it is the user's cell or an example."""
    if not cell.own:
        return "an example (not your cell), repaired"
    return f"your {cell.earlier or 'cell'}, corrected"
