"""The guided tree as a person sees it: what is known, the question, and how to answer."""

from __future__ import annotations

from ..diagnosis.tree import Interview, find
from ..symptoms import loader as study
from . import html, text, words
from .bundle import Displayable
from .pages import symptom_page

#: Symptoms that are named as likely so far, and how likely they must be.
_NAMED, _LIKELY = 3, 0.08
#: Answers can be mistaken: nothing that they tell is said to be likelier.
_MOST = 0.99
_LEAD = "if something is wrong all the same, or elsewhere, questions lead to what it is"
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
    offer
        What a check would do to answer the question, empty if there is none.
    before
        What is shown before it, such as the report of the last run.
    """

    __slots__ = ("before", "interview", "offer")

    def __init__(
        self, interview: Interview, offer: str = "", before: Displayable | None = None
    ) -> None:
        self.interview = interview
        self.offer = offer
        self.before = before

    def to_text(self) -> str:
        """Numbered answers, or the page of the symptom."""
        lines = []
        if self.before is not None:
            lines += [self.before.to_text(), "", *text.wrap("", _LEAD)]
        lines.append(self.title())
        if hinted := self._hinted():
            lines += text.wrap("", hinted)
        for question, answer in self.path():
            lines += text.wrap("", f"{question} {answer}")
        asked = self.interview.question
        if asked is None:
            return "\n".join([*lines, self._page().to_text()])
        lines += ["", *text.wrap("", asked.ask)]
        for number, choice in enumerate(asked.choices, 1):
            first, *rest = text.wrap("", choice)
            lines += [f"  {number:>2}  {first.strip()}", *(f"    {line}" for line in rest)]
        lines += ["", *text.wrap("", _HOW.replace("`", ""))]
        if self.offer:
            lines += text.wrap("", self._offered().replace("`", ""))
        if likely := self.likely():
            lines += text.wrap("", f"likely so far: {likely}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The same as a list, and the path as a table."""
        parts = [html.line(html.tag("b", self.title()))]
        if hinted := self._hinted():
            parts.append(html.line(hinted))
        if path := self.path():
            parts.append(html.table(path, ("asked", "answered")))
        asked = self.interview.question
        if asked is None:
            return self._whole(html.view(*parts, html.Markup(self._page().to_html())))
        parts.append(html.line(html.tag("b", asked.ask)))
        choices = html.Markup("".join(html.tag("li", choice) for choice in asked.choices))
        parts.append(html.tag("ol", choices, style="margin:2px 0 6px 0"))
        parts.append(html.line(html.prose(_HOW)))
        if self.offer:
            parts.append(html.line(html.prose(self._offered())))
        if likely := self.likely():
            parts.append(html.line(f"likely so far: {likely}"))
        return self._whole(html.view(*parts))

    def _whole(self, interview: str) -> str:
        """With what is shown before it."""
        if self.before is None:
            return interview
        return html.Markup(self.before.to_html() + html.view(html.line(_LEAD)) + interview)

    def _offered(self) -> str:
        return f"`%ddt_debug check` does it for you: {self.offer}"

    def _hinted(self) -> str:
        """The symptoms that the last run hints at; empty if it hints at none."""
        named = [f"{study.symptom(code).title} {code}" for code in self.interview.hints]
        return f"hinted at by the last run: {', '.join(named)}" if named else ""

    def title(self) -> str:
        """Which question it is, or what the answers came to."""
        conclusion = self.interview.conclusion
        if conclusion is None:
            return f"question {self.interview.asked + 1}"
        found = f"{study.symptom(conclusion).title} {conclusion}"
        others = [code for code in self._ranked() if code != conclusion]
        more = f"; else {', '.join(others)}" if others else ""
        belief, told = self.interview.beliefs[conclusion], self._told()
        if not told:
            chance = f", as likely as {belief:.0%}" if belief < _MOST else ""
            return f"no question was needed: the last run shows {found}{chance}{more}"
        return f"after {told}: {found}, as likely as {min(belief, _MOST):.0%}{more}"

    def _told(self) -> str:
        """What there was beside the last run: ``3 questions and 1 check``; empty if nothing."""
        checks = sum(answer.checked for answer in self.interview.answers)
        counted = ((self.interview.asked, "question"), (checks, "check"))
        return " and ".join(words.count(number, what) for number, what in counted if number)

    def path(self) -> list[tuple[str, str]]:
        """Each question so far, and what it was answered with."""
        path = []
        answered = {a.question for a in self.interview.answers if not a.checked}
        for answer in self.interview.answers:
            if answer.choice is None and answer.checked and answer.question in answered:
                continue  # the user said it after all
            question = find(answer.question)
            unknown = "checked, and not told" if answer.checked else "unknown"
            told = unknown if answer.choice is None else question.choices[answer.choice]
            path.append((question.ask, f"{told} ({answer.told_by})" if answer.told_by else told))
        return path

    def _page(self) -> Displayable:
        conclusion = self.interview.conclusion
        assert conclusion is not None
        return symptom_page(conclusion)

    def _ranked(self) -> list[str]:
        beliefs = self.interview.beliefs
        return [code for code in list(beliefs)[:_NAMED] if beliefs[code] >= _LIKELY]

    def likely(self) -> str:
        """The likeliest symptoms; empty before anything is known."""
        if not any(answer.choice is not None for answer in self.interview.answers):
            return ""
        beliefs = self.interview.beliefs
        named = [
            f"{study.symptom(code).title} {code} ({beliefs[code]:.0%})" for code in self._ranked()
        ]
        return ", ".join(named)
