"""Pages of the catalogue of messages: one for each of its files, with an anchor for each entry."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from faults import plain

from ddt_notebook.messages import Message, messages

#: The folder of the pages.
FOLDER = "messages"
_HEAD = """# Error messages

What {number} messages of PyTorch, NCCL, CUDA, launchers, containers and trainers mean, how to
confirm the cause, and what to change; `descriptions` has problems without a message. In a notebook,
`%ddt_explain` shows the entry of an id or of a message that you paste, and a finding names the id;
`ddt-notebook diagnose FILE` searches a traceback or a log for all of them.
"""


def pages() -> dict[str, str]:
    """The text of each page, by its path below the folder of the guide."""
    by_raiser = {
        raiser: list(entries)
        for raiser, entries in itertools.groupby(messages(), key=lambda entry: entry.raiser)
    }
    made = {
        f"{FOLDER}/{raiser}.md": "".join(_page(raiser, entries))
        for raiser, entries in by_raiser.items()
    }
    return {"messages.md": "".join(_overview(by_raiser))} | made


def _overview(by_raiser: dict[str, list[Message]]) -> Iterator[str]:
    yield _HEAD.format(number=sum(map(len, by_raiser.values())))
    for raiser, entries in by_raiser.items():
        yield f"\n## [{raiser}]({FOLDER}/{raiser}.md)\n\n"
        yield "".join(f"- [{entry.id}](#{entry.id}): {plain(entry.means)}\n" for entry in entries)
    yield "\n```{toctree}\n:hidden:\n\n"
    yield "\n".join(f"{FOLDER}/{raiser}" for raiser in by_raiser) + "\n```\n"


def _page(raiser: str, entries: list[Message]) -> Iterator[str]:
    yield f"# Messages: {raiser}\n"
    for entry in entries:
        example = entry.example.replace("\n", "\n    ")
        yield f"\n({entry.id})=\n## {entry.id}\n\n    {example}\n\n"
        yield f"**Means**: {plain(entry.means)} ({', '.join(entry.symptoms)}).\n\n"
        yield f"**To confirm it**: {plain(entry.check)}\n\n"
        yield "".join(f"- {plain(advice)}\n" for _, advice in entry.fixes)
        yield f"\nRaised by {plain(entry.source)}.\n"
        if entry.cause_elsewhere:
            yield "\nThis message has no cause of its own: another line of the output names it.\n"
        if entry.thread is not None:
            yield f"\nA thread that confirms the cause: <{entry.thread}>\n"
