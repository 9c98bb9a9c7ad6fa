"""Pages on symptoms and faults, made from the study's counts and the fault cards."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddt_notebook.faults import FaultCard, cards, host_cards
from ddt_notebook.symptoms import Symptom, lessons, stages, symptom, symptoms
from ddt_notebook.symptoms import fixes as fix_patterns
from ddt_notebook.views.explain import CardView, ExplanationView, HostCardView

#: The folder of the pages of symptoms.
FOLDER = "symptoms"
_HEAD = """# Symptoms and faults

{symptoms} symptoms of the study, in the order of its stages, and {cards} faults that show them.
Each fault has a cell that fails for real, and one that does the same work without the fault. In a
notebook, `%ddt_explain CODE` and `%ddt_explain FAULT` show the same; a finding names both.
"""
_HOSTS = """# Faults of several hosts

Faults that one machine cannot have; the study did not separate them from the others. `make
test-hosts` produces each of them on two hosts that are network namespaces, and finds it. Linux has
one wall clock for all namespaces, so that the other clock is that of the agent only. Another
version of PyTorch was not installed on one of them: there, the environment differs.
"""
_CODE = re.compile(r"(`[^`]*`)")


def pages() -> dict[str, str]:
    """The text of each page, by its path below the folder of the guide."""
    made = {f"{FOLDER}/{known.code}.md": "".join(_symptom(known)) for known in symptoms()}
    made[f"{FOLDER}/hosts.md"] = "".join(_hosts())
    return {"faults.md": "".join(_overview())} | made


def _overview() -> Iterator[str]:
    yield _HEAD.format(symptoms=len(symptoms()), cards=len(cards()))
    for stage in stages():
        yield f"\n## {stage.code}. {_capital(stage.title)}\n\n"
        for known in (one for one in symptoms() if one.stage == stage.code):
            yield f"- [{_title(known)}]({FOLDER}/{known.code}.md)\n"
            yield "".join(f"  - [{plain(card.title)}](#{card.id})\n" for card in _cards(known))
    yield "\n## Several hosts\n\n"
    yield f"- [Faults of several hosts]({FOLDER}/hosts.md), outside of the study\n"
    yield "".join(f"  - [{plain(card.title)}](#{card.id})\n" for card in host_cards().values())
    yield "\n```{toctree}\n:hidden:\n\n"
    yield "\n".join(f"{FOLDER}/{known.code}" for known in symptoms()) + f"\n{FOLDER}/hosts\n```\n"


def _hosts() -> Iterator[str]:
    yield _HOSTS
    for card in host_cards().values():
        yield f"\n({card.id})=\n## {_capital(plain(card.title))}\n\n`{card.id}`\n\n"
        yield f"**What you see.** {plain(card.sees)}\n\n**Why.** {plain(card.why)}\n\n"
        view = HostCardView(card)
        lines = "\n".join(view.produced())
        yield f"What produces it on the second host, as root:\n\n```sh\n{lines}\n```\n\n"
        if card.cell:
            yield f"A cell in which it shows:\n\n```python\n{card.cell}\n```\n\n"
        if card.check:
            yield f"`{view.doctor()}` finds it.\n\n"
        yield "**What to change.**\n\n"
        yield "".join(f"- {plain(one.text)} (*{one.pattern}*)\n" for one in card.fixes)
        yield f"\n**In a real job.** {plain(card.cluster)}\n\n"
        if card.apart:
            yield "**Tell it apart.**\n\n| it may also be | in that fault |\n|---|---|\n"
            for name, how in card.apart.items():
                yield f"| [{name}](#{name}) | {plain(how)} |\n"
        links = (f"[{plain(one.text)}]({one.url})" for one in card.references)
        yield f"\nRead on: {' · '.join(links)}\n"


def _symptom(known: Symptom) -> Iterator[str]:
    patterns, own = fix_patterns(known.code), _cards(known)
    also = [card for card in cards() if known.code in card.symptoms[1:]]
    frequency = ExplanationView(known, patterns).frequency()
    yield f"(symptom-{known.code.lower()})=\n# {_title(known)}\n\n"
    yield f"*Stage: {known.stage_title}* · {frequency}.\n\n"
    if path := lessons.lesson(known.code):
        yield f"The lesson: [{lessons.notebooks()[path]}](../notebooks/{path}).\n\n"
    yield "| what repaired it in the study | faults | share |\n|---|---|---|\n"
    yield "".join(f"| {one.pattern} | {one.faults} | {one.share:.0%} |\n" for one in patterns)
    if also:
        yield "\nFaults that show it less often: "
        yield ", ".join(f"[{plain(card.title)}](#{card.id})" for card in also) + ".\n"
    for card in own:
        yield from _card(card)


def _card(card: FaultCard) -> Iterator[str]:
    yield f"\n({card.id})=\n## {_capital(plain(card.title))}\n\n`{card.id}`\n\n"
    yield f"**What you see.** {plain(card.sees)}\n\n**Why.** {plain(card.why)}\n\n"
    ranks = "1 rank" if card.n == 1 else f"{card.n} ranks"
    if card.setup:
        yield f"What runs before:\n\n```python\n{card.setup}\n```\n\n"
    yield f"The broken cell, on {ranks}:\n\n```python\n{card.broken}\n```\n\n"
    yield f"The same work without the fault:\n\n```python\n{card.fixed}\n```\n\n"
    view = CardView(card)
    yield "**What to change.**\n\n"
    yield "".join(f"- {plain(fix.advice)} (*{fix.pattern}*)\n" for fix in view.fixes())
    yield f"\n**In a real job.** {plain(card.cluster)}\n\n"
    for backend, said in (("gloo", card.gloo), ("NCCL", card.nccl)):
        if said:
            lines = "\n".join(line for text in said for line in text.splitlines())
            yield f"Messages with {backend}:\n\n```text\n{lines}\n```\n\n"
    if card.apart:
        yield "**Tell it apart.**\n\n| it may also be | in that fault |\n|---|---|\n"
        for name, how in card.apart.items():
            yield f"| [{name}](#{name}) | {plain(how).replace('|', chr(92) + '|')} |\n"
        yield "\n"
    links = (f"[{plain(one.text)}]({one.url})" for one in card.references)
    yield f"Read on: {' · '.join(links)}\n"


def _cards(known: Symptom) -> list[FaultCard]:
    return [card for card in cards() if card.symptoms[0] == known.code]


def _title(known: Symptom) -> str:
    return f"{known.code} {_capital(symptom(known.code).title)}"


def _capital(text: str) -> str:
    return text if text.startswith("`") else text[0].upper() + text[1:]


def plain(text: str) -> str:
    """A text of a card as Markdown: signs outside of code mean themselves."""
    parts = _CODE.split(" ".join(text.split()))
    return "".join(p if p.startswith("`") else re.sub(r"([<*\[\]]|__)", r"\\\1", p) for p in parts)
