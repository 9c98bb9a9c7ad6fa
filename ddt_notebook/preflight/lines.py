"""Makes one line of the report."""

from __future__ import annotations

from ..model.preflight import Check, Verdict


def line(
    topic: str, name: str, verdict: Verdict, seen: str, meaning: str = "", fix: str = ""
) -> Check:
    """A `Check` from its fields, in their order."""
    return Check(topic=topic, name=name, verdict=verdict, seen=seen, meaning=meaning, fix=fix)
