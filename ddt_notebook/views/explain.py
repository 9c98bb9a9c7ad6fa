"""The pages that `ddt.explain` returns: a symptom, a card, a message, or what a search found."""

from __future__ import annotations

import dataclasses
import re
import textwrap
from collections.abc import Sequence
from typing import Any

from .. import faults
from ..diagnosis.advice import fixes
from ..faults import FaultCard, HostCard
from ..faults.search import Hit, known_words, search, search_messages
from ..messages import Message, message
from ..messages import messages as catalogue
from ..model import Fix
from ..spelling import similar_names
from ..symptoms import FixPattern, Symptom, lessons, symptom
from ..symptoms import loader as study
from . import code_diff, dataframe, html, safe, terminal, words
from .displayable import Displayable
from .html import Markup
from .message import MessageView
from .taxonomy import TaxonomyView

#: Stands before what distinguishes a similar fault.
_OTHER = "in that fault, "
#: Fix patterns listed; the rest is counted.
PATTERNS = 6


class ExplanationView(Displayable):
    """A symptom, its stage, what repaired it in the study, and the faults that show it.

    Parameters
    ----------
    symptom
        From the taxonomy.
    patterns
        Its fix patterns, most frequent first.
    cards
        The faults that show it.
    """

    __slots__ = ("_cards", "_patterns", "_symptom")

    def __init__(
        self,
        symptom: Symptom,
        patterns: tuple[FixPattern, ...],
        cards: Sequence[FaultCard] = (),
    ) -> None:
        self._symptom = symptom
        self._patterns = patterns
        self._cards = cards

    def to_text(self) -> str:
        """The explanation, 80 columns wide."""
        lines = [self._title(), *terminal.wrap("", self.frequency())]
        if rows := self._rows():
            width = max(len(name) for name, *_ in rows)
            lines.append("  what repaired it")
            lines += [f"    {share:>4}  {name:<{width}}  {faults}" for name, faults, share in rows]
        if self._cards:
            lines.append("  faults that look like this (%ddt_explain NAME says more)")
            for card in self._cards:
                lines.append(f"    {card.id}")
                lines += terminal.wrap(" ", card.title)
        if lesson := self._lesson():
            lines.append(f"  lesson {lesson}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The explanation as HTML."""
        parts = [html.line(html.tag("b", self._title())), html.line(self.frequency())]
        if rows := self._rows():
            parts.append(html.table(rows, ("what repaired it", "faults", "share")))
        if self._cards:
            parts.append(html.line(html.tag("b", "faults that look like this")))
            parts += [
                html.details(
                    f"{card.title} ({card.id})",
                    html.line(html.prose(card.sees)),
                    html.line("why: ", html.prose(card.why)),
                    html.line("read on: ", html.code(f"%ddt_explain {card.id}")),
                )
                for card in self._cards
            ]
        if lesson := self._lesson():
            parts.append(html.line(html.lesson(lesson)))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The symptom, its fix patterns, its cards and its lesson as plain data."""
        return {
            **dataclasses.asdict(self._symptom),
            "fixes": [dataclasses.asdict(pattern) for pattern in self._patterns],
            "cards": [{"id": card.id, "title": card.title} for card in self._cards],
            "lesson": self._lesson(),
        }

    def to_frame(self) -> Any:
        """One row for each fix pattern, as a pandas DataFrame.

        - ``pattern``: kind of change, in the study's words
        - ``faults``: number of faults that it repaired in the study
        - ``share``: ``faults`` as a part of the symptom's distributed faults, from 0 to 1
        """
        rows = [dataclasses.asdict(pattern) for pattern in self._patterns]
        return dataframe.frame(rows, ("pattern", "faults", "share"))

    def _lesson(self) -> str | None:
        return lessons.lesson(self._symptom.code)

    def _title(self) -> str:
        return f"{self._symptom.title} {self._symptom.code} · {self._symptom.stage_title}"

    def frequency(self) -> str:
        """How many faults of this kind the study had."""
        symptom = self._symptom
        found = f"{words.count(symptom.faults, 'fault')} of this kind in the study"
        only = "all" if symptom.distributed_faults == symptom.faults else symptom.distributed_faults
        several = sum(pattern.faults for pattern in self._patterns) > symptom.distributed_faults
        note = "; some were repaired in several ways" if several else ""
        return f"{found}, {only} of them only in distributed training{note}"

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [(p.pattern, str(p.faults), f"{p.share:.0%}") for p in self._patterns[:PATTERNS]]
        if rest := self._patterns[PATTERNS:]:
            faults = sum(p.faults for p in rest)
            share = f"{sum(p.share for p in rest):.0%}"
            rows.append((words.count(len(rest), "other pattern"), str(faults), share))
        return rows


class CardView(Displayable):
    """What a fault looks like, why it happens, how it differs from others, and what to change.

    Parameters
    ----------
    card
        The fault.
    related
        Other cards with the same symptom.
    """

    __slots__ = ("card", "related")

    def __init__(self, card: FaultCard, related: Sequence[FaultCard] = ()) -> None:
        self.card = card
        self.related = related

    def to_text(self) -> str:
        """The page, 80 columns wide."""
        card = self.card
        lines = textwrap.wrap(self._heading(), terminal.WIDTH)
        lines += terminal.wrap("", f"{card.id}: {card.title}")
        for label, paragraph in (("sees", card.sees), ("why", card.why), ("jobs", card.cluster)):
            lines += terminal.wrap(label, safe.one_line(paragraph, 4000))
        for name, how in card.apart.items():
            lines += terminal.wrap("not", safe.one_line(f"{name}: {_OTHER}{how}", 1000))
        lines.append(f"  the broken cell, and what repairs it ({words.count(card.n, 'rank')})")
        lines += code_diff.as_text(card.broken, card.fixed)
        if card.setup:
            lines.append("  what runs before")
            lines += [f"      {line}".rstrip() for line in card.setup.splitlines()]
        for backend, messages in self._messages():
            for said in messages:
                lines += terminal.wrap(backend, safe.one_line(said))
        for fix in self.fixes():
            lines += terminal.wrap("fix", f"{fix.advice} — {self._pattern(fix)}")
        for reference in card.references:
            lines += terminal.wrap("read", reference.text)
            lines.append(f"       {reference.url}")
        if self.related:
            lines += terminal.wrap("near", ", ".join(other.id for other in self.related))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page for a notebook."""
        card = self.card
        parts = _explained(card, self._heading())
        changed = f"the broken cell, and what repairs it ({words.count(card.n, 'rank')})"
        parts.append(_section(changed, code_diff.as_html(card.broken, card.fixed)))
        if card.setup:
            parts.append(html.details("what runs before", html.pre(card.setup)))
        parts.append(html.details("the whole broken cell", html.pre(card.broken)))
        parts.append(html.details("the whole repaired cell", html.pre(card.fixed)))
        said = [html.line(f"{b}: ", html.code(m)) for b, ms in self._messages() for m in ms]
        parts.append(_section("messages", *(said or [html.line("none: nothing is raised")])))
        advice = [(self._pattern(fix), html.prose(fix.advice)) for fix in self.fixes()]
        parts.append(_section("what to change", html.table(advice)))
        if self.related:
            others = [(html.code(other.id), other.title) for other in self.related]
            parts.append(html.details("other faults with this symptom", html.table(others)))
        pages = [html.line(f"{r.text}: ", html.code(r.url)) for r in card.references]
        parts.append(_section("read on", *pages))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The card as plain data."""
        card = self.card
        return {
            "id": card.id,
            "title": card.title,
            "symptoms": list(card.symptoms),
            "stage": card.stage,
            "sees": card.sees,
            "why": card.why,
            "cluster": card.cluster,
            "apart": dict(card.apart),
            "n": card.n,
            "options": dict(card.options),
            "setup": card.setup,
            "broken": card.broken,
            "fixed": card.fixed,
            "proof": card.proof,
            "messages": {"gloo": list(card.gloo), "nccl": list(card.nccl)},
            "fixes": [dataclasses.asdict(fix) for fix in self.fixes()],
            "references": [dataclasses.asdict(reference) for reference in card.references],
        }

    def fixes(self) -> list[Fix]:
        """What to change, best first, with the study's shares."""
        card = self.card
        culprit = card.expected.ranks[0] if card.expected.ranks else 0
        return fixes(card.symptom, card.id, rank=culprit)

    def _heading(self) -> str:
        named = ", ".join(f"{symptom(code).title} {code}" for code in self.card.symptoms)
        return f"{named} · {self.card.stage}"

    def _messages(self) -> list[tuple[str, tuple[str, ...]]]:
        both = (("gloo", self.card.gloo), ("nccl", self.card.nccl))
        return [(backend, messages) for backend, messages in both if messages]

    def _pattern(self, fix: Fix) -> str:
        return words.fix_pattern(self.card.symptom, fix)


class HostCardView(Displayable):
    """A fault of several hosts: what it looks like, why it happens, what produces and what ends it.

    Parameters
    ----------
    card
        The fault.
    """

    __slots__ = ("card",)

    def __init__(self, card: HostCard) -> None:
        self.card = card

    def to_text(self) -> str:
        """The page, 80 columns wide."""
        card = self.card
        lines = [*textwrap.wrap(self._heading(), terminal.WIDTH)]
        lines += terminal.wrap("", f"{card.id}: {card.title}")
        for label, paragraph in (("sees", card.sees), ("why", card.why), ("jobs", card.cluster)):
            lines += terminal.wrap(label, safe.one_line(paragraph, 4000))
        for name, how in card.apart.items():
            lines += terminal.wrap("not", safe.one_line(f"{name}: {_OTHER}{how}", 1000))
        lines.append("  what produces it on node2, as root")
        lines += [f"      {line}" for line in self.produced()]
        if card.cell:
            lines.append("  a cell in which it shows")
            lines += [f"      {line}".rstrip() for line in card.cell.splitlines()]
        if card.check:
            lines += terminal.wrap("seen", f"{self.doctor()} finds it")
        for advice in card.fixes:
            lines += terminal.wrap("fix", f"{advice.text} — {advice.pattern}")
        for reference in card.references:
            lines += terminal.wrap("read", reference.text)
            lines.append(f"       {reference.url}")
        return "\n".join(lines)

    def to_html(self) -> str:
        """The page for a notebook."""
        card = self.card
        parts = _explained(card, self._heading())
        produced = html.pre("\n".join(self.produced()))
        parts.append(_section("what produces it on node2, as root", produced))
        if card.cell:
            parts.append(_section("a cell in which it shows", html.pre(card.cell)))
        if card.check:
            parts.append(html.line(html.code(self.doctor()), " finds it"))
        advice = [(one.pattern, html.prose(one.text)) for one in card.fixes]
        parts.append(_section("what to change", html.table(advice)))
        pages = [html.line(f"{r.text}: ", html.code(r.url)) for r in card.references]
        parts.append(_section("read on", *pages))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The card as plain data."""
        return dataclasses.asdict(self.card)

    def _heading(self) -> str:
        named = ", ".join(f"{symptom(code).title} {code}" for code in self.card.symptoms)
        return f"{named} · several hosts, outside of the study"

    def produced(self) -> list[str]:
        """The commands that produce it, for a reader."""
        card = self.card
        known = {"node1": "NODE1", "node2": "NODE2", "names": "/etc/hosts"}
        lines = [command.format(**known) for command in card.commands]
        if card.agent:
            lines.append(f"{card.agent} ddt-notebook agent …")
        return lines

    def doctor(self) -> str:
        """The magic whose report names it."""
        return "%ddt_doctor --bandwidth" if self.card.bandwidth else "%ddt_doctor"


def _explained(card: FaultCard | HostCard, heading: str) -> list[Markup]:
    """What both kinds of cards begin with."""
    parts = [
        html.line(html.tag("b", card.title)),
        html.line(html.code(card.id), f" · {heading}"),
        _section("what you see", html.line(html.prose(card.sees))),
        _section("why", html.line(html.prose(card.why))),
        _section("in a real job", html.line(html.prose(card.cluster))),
    ]
    if card.apart:
        rows = [(html.code(name), html.prose(_OTHER + how)) for name, how in card.apart.items()]
        parts.append(_section("differs from", html.table(rows)))
    return parts


def _section(title: str, *content: Markup) -> Markup:
    return html.tag("div", html.line(html.tag("b", title)), *content, style="margin:6px 0")


class HitsView(Displayable):
    """A ranked list of symptoms, cards and messages.

    Parameters
    ----------
    query
        The words.
    hits
        What fits, best first.
    unknown
        Whether the words are an error message that the catalogue does not have.
    """

    __slots__ = ("hits", "query", "unknown")

    def __init__(self, query: str, hits: Sequence[Hit], *, unknown: bool = False) -> None:
        self.query = query
        self.hits = hits
        self.unknown = unknown

    def to_text(self) -> str:
        """The list, 80 columns wide."""
        lines = [self._title()]
        for hit in self.hits[:_SHOWN]:
            lines.append(f"  %ddt_explain {hit.name}")
            lines += terminal.wrap(" ", self._about(hit))
        if rest := self.hits[_SHOWN:]:
            lines.append(f"  {words.count(len(rest), 'page')} more, by %ddt_explain NAME")
            lines += terminal.wrap(" ", ", ".join(hit.name for hit in rest))
        return "\n".join(lines)

    def to_html(self) -> str:
        """The list as a table; the pages after the first ones unfold."""
        rows = [(html.code(f"%ddt_explain {hit.name}"), self._about(hit)) for hit in self.hits]
        parts = [html.line(html.tag("b", self._title())), html.table(rows[:_SHOWN])]
        if rest := rows[_SHOWN:]:
            parts.append(html.details(f"{words.count(len(rest), 'page')} more", html.table(rest)))
        return html.view(*parts)

    def to_json(self) -> dict[str, Any]:
        """The words and the hits as plain data."""
        return {"query": self.query, "hits": [dataclasses.asdict(hit) for hit in self.hits]}

    def to_frame(self) -> Any:
        """One row for each hit, best first, as a pandas DataFrame.

        - ``kind``: ``"symptom"`` of the study, ``"card"``, or ``"message"`` of the catalogue
        - ``name``: code of the symptom, or id of the fault card or message
        - ``title``: its title
        - ``score``: how well it fits, without a unit; comparable within one search only
        """
        rows = [dataclasses.asdict(hit) for hit in self.hits]
        return dataframe.frame(rows, ("kind", "name", "title", "score"))

    def _title(self) -> str:
        asked = f"“{safe.one_line(self.query, 60)}”"
        found = words.count(len(self.hits), "page")
        if self.unknown:
            return f"the message {asked} is not known; {found} with words of it"
        return f"{found} about {asked}"

    @staticmethod
    def _about(hit: Hit) -> str:
        return f"{hit.title} (a symptom of the study)" if hit.kind == "symptom" else hit.title


Page = ExplanationView | CardView | HostCardView | MessageView | HitsView | TaxonomyView

_CODE = re.compile(r"[A-D](\.\d+)*", re.IGNORECASE)
_LIKE_A_CODE = re.compile(r"[A-Z](\.\d+)+", re.IGNORECASE)
#: A lesson of part E.
_TODAY = re.compile(r"E\.\d+", re.IGNORECASE)
#: The page of the best hit is shown at once if its score is this many times that of the next.
_CLEARLY = 1.8
#: How an exception is printed: ``torch.OutOfMemoryError: CUDA out of memory``.
_RAISED = re.compile(r"[\w.]*(Error|Exception|Warning): ")
#: Pages that are listed with their titles, and how many of these are of the other kind: messages
#: behind cards, or cards behind messages. Chosen, not measured.
_SHOWN, _OTHER_KIND = 6, 2
#: Pages by their words that stand behind those of a known message. Chosen, not measured.
_BESIDE_RAISED = 3
#: The number of words up to which it may be shown at once. Chosen, not measured.
_FEW = 4


def page(query: str = "") -> Page:
    """The page that answers a question.

    Parameters
    ----------
    query
        A code such as ``"D.2.1"``, the id of a card or of a message, an error message, or words;
        empty: the whole taxonomy.

    Raises
    ------
    UnknownSymptom
        If there is no such code, or nothing fits the words.
    """
    wanted = " ".join(query.split())
    if not wanted:
        return TaxonomyView()
    if _CODE.fullmatch(wanted):
        return symptom_page(wanted)
    if _TODAY.fullmatch(wanted):
        raise study.UnknownSymptom(_of_today(wanted.upper()))
    if _LIKE_A_CODE.fullmatch(wanted):
        raise study.UnknownSymptom(f"there is no code {wanted!r}; {_codes()}")
    if wanted.lower() in faults.page_ids():
        return card_page(wanted.lower())
    if (entry := _message(wanted.lower())) is not None:
        return MessageView(entry)
    hits = cards = search(wanted)
    if " " not in wanted and (misspelt := _misspelt(wanted)) is not None:
        return misspelt
    messages = search_messages(wanted)
    if messages and (not hits or messages[0].score > _CLEARLY * hits[0].score):
        hits = messages
    if not hits:
        raise study.UnknownSymptom(
            f"nothing is known about {wanted!r}{_meant(wanted)}; {_codes()}; another text has to "
            "be the name of a fault card, or words of a title or of an error message"
        )
    clear = len(hits) == 1 or hits[0].score > _CLEARLY * hits[1].score
    # A sentence of a user seldom means one page only.
    if clear and len(wanted.split()) <= _FEW:
        best = hits[0]
        if best.kind == "message":
            return MessageView(message(best.name))
        return symptom_page(best.name) if best.kind == "symptom" else card_page(best.name)
    more = [hit for hit in (*cards, *messages) if hit not in hits]
    raised = _raised(wanted.lower())
    if not raised:
        unknown = _RAISED.match(wanted) is not None
        first = _SHOWN - min(_OTHER_KIND, len(more))
        ordered = [*hits[:first], *more[:_OTHER_KIND], *hits[first:], *more[_OTHER_KIND:]]
        return HitsView(wanted, ordered, unknown=unknown)
    others = [hit for hit in (*hits, *more) if hit.name not in {one.name for one in raised}]
    return HitsView(wanted, [*raised, *others[:_BESIDE_RAISED]])


def _raised(lower: str) -> list[Hit]:
    """The pages of the entries whose message the words are, each after its card."""
    found = [entry for entry in catalogue() if entry.find(lower)]
    broader = frozenset().union(*(entry.over for entry in found))
    hits: dict[str, Hit] = {}
    for entry in sorted(found, key=lambda entry: entry.general):
        if entry.id in broader:
            continue
        if entry.card in faults.card_ids():
            hits.setdefault(entry.card, Hit("card", entry.card, faults.card(entry.card).title, 0.0))
        hits[entry.id] = Hit("message", entry.id, entry.means, 0.0)
    return list(hits.values())


def _misspelt(name: str) -> Page | None:
    """The page of the card, or of the message, whose id is similar."""
    if near := similar_names(name, faults.page_ids()):
        return card_page(near[0])
    ids = [entry.id for entry in catalogue()] if "-" in name else []
    return MessageView(message(near[0])) if (near := similar_names(name, ids)) else None


def _meant(wanted: str) -> str:
    """The words with each misspelt one set right; empty if none is like a known word."""
    near = {word: similar_names(word, known_words()) for word in wanted.lower().split()}
    right = " ".join(names[0] if names else word for word, names in near.items())
    return f" (did you mean {right!r}?)" if right != wanted.lower() else ""


def _codes() -> str:
    return f"codes run from A.1 to {study.symptoms()[-1].code}"


def _of_today(code: str) -> str:
    """Where to read on about a lesson of part E, which is on no symptom of the study."""
    path = lessons.lesson_file(code)
    named = re.findall(r"%ddt_explain ([a-z][a-z-]+)", path.read_text(encoding="utf-8"))
    cards = [f"%ddt_explain {name}" for name in dict.fromkeys(named) if name in faults.page_ids()]
    where = f"{lessons.TODAY}/{path.name}"
    return f"{code} is a lesson on a fault outside of the study: {where}; see {', '.join(cards)}"


def _message(wanted: str) -> Message | None:
    """Return the entry of the catalogue with this id, or whose message the words are.

    A message of which a card has the whole page is left to the search, unless its id is asked for.
    """
    named = next((entry for entry in catalogue() if entry.id == wanted), None)
    found = [entry for entry in catalogue() if entry.find(wanted)]
    broader = frozenset().union(*(entry.over for entry in found))
    found = [one for one in found if one.id not in broader and one.card not in faults.page_ids()]
    return named or min(found, key=lambda entry: entry.general, default=None)


def symptom_page(code: str) -> ExplanationView:
    """The page of a symptom with its fault cards; raises `UnknownSymptom`."""
    symptom = study.symptom(code)
    return ExplanationView(symptom, study.fixes(symptom.code), cards_of(symptom.code))


def card_page(name: str) -> CardView | HostCardView:
    """The page of a fault card."""
    if name in faults.host_cards():
        return HostCardView(faults.host_cards()[name])
    card = faults.card(name)
    return CardView(card, [other for other in cards_of(card.symptom) if other.id != card.id])


def cards_of(code: str) -> list[faults.FaultCard]:
    """The faults that show a symptom; those for which it is the usual one come first."""
    found = [card for card in faults.cards() if code in card.symptoms]
    return sorted(found, key=lambda card: card.symptoms.index(code))
