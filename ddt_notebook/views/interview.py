"""The guided tree as a person sees it: what is known, the question, and how to answer."""

from __future__ import annotations

from ..diagnose.tree import Interview, find
from ..taxonomy import loader as study
from . import html, text, words
from .bundle import Displayable
from .pages import symptom_page

#: Symptoms that are named as likely so far, and how likely they must be.
_NAMED, _LIKELY = 3, 0.08
_HOW = (
    "answer with `%ddt_debug 1`; `%ddt_debug unknown` if you cannot tell; "
    "`undo`, `restart` and `leave` go the same way"
)


class InterviewView(Displayable):
    """An interview: the path so far, and the next question or what it came to.

    Parameters
    ----------
    interview
        Its answers so far.
    """

    __slots__ = ("interview",)

    def __init__(self, interview: Interview) -> None:
        self.interview = interview

    def to_text(self) -> str:
        """Numbered answers, or the page of the symptom."""
        lines = [self._title()]
        for question, answer in self._path():
            lines += text.wrap("", f"{question} {answer}")
        asked = self.interview.question
        if asked is None:
            return "\n".join([*lines, self._page().to_text()])
        lines += ["", *text.wrap("", asked.ask)]
        for number, choice in enumerate(asked.choices, 1):
            first, *rest = text.wrap("", choice)
            lines += [f"  {number:>2}  {first.strip()}", *(f"    {line}" for line in rest)]
        lines += ["", *text.wrap("", _HOW.replace("`", ""))]
        if likely := self._likely():
            lines += text.wrap("", f"likely so far: {likely}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same as a list, and the path as a table."""
        parts = [html.line(html.tag("b", self._title()))]
        if path := self._path():
            parts.append(html.table(path, ("asked", "answered")))
        asked = self.interview.question
        if asked is None:
            return html.view(*parts, html.Markup(self._page().to_html()))
        parts.append(html.line(html.tag("b", asked.ask)))
        choices = html.Markup("".join(html.tag("li", choice) for choice in asked.choices))
        parts.append(html.tag("ol", choices, style="margin:2px 0 6px 0"))
        parts.append(html.line(html.prose(_HOW)))
        if likely := self._likely():
            parts.append(html.line(f"likely so far: {likely}"))
        return html.view(*parts)

    def _title(self) -> str:
        conclusion = self.interview.conclusion
        if conclusion is None:
            return f"question {self.interview.asked + 1}"
        belief = self.interview.beliefs[conclusion]
        found = f"{study.symptom(conclusion).title} {conclusion}"
        asked = words.count(self.interview.asked, "question")
        others = [code for code in self._ranked() if code != conclusion]
        more = f"; else {', '.join(others)}" if others else ""
        return f"after {asked}: {found}, as likely as {belief:.0%}{more}"

    def _path(self) -> list[tuple[str, str]]:
        path = []
        for answer in self.interview.answers:
            question = find(answer.question)
            told = "unknown" if answer.choice is None else question.choices[answer.choice]
            path.append((question.ask, f"{told} ({answer.told_by})" if answer.told_by else told))
        return path

    def _page(self) -> Displayable:
        conclusion = self.interview.conclusion
        assert conclusion is not None
        return symptom_page(conclusion)

    def _ranked(self) -> list[str]:
        beliefs = self.interview.beliefs
        return [code for code in list(beliefs)[:_NAMED] if beliefs[code] >= _LIKELY]

    def _likely(self) -> str:
        """The likeliest symptoms; empty before anything is known."""
        if not any(answer.choice is not None for answer in self.interview.answers):
            return ""
        beliefs = self.interview.beliefs
        named = [
            f"{study.symptom(code).title} {code} ({beliefs[code]:.0%})" for code in self._ranked()
        ]
        return ", ".join(named)
