"""Findings that rest on a log as a whole, and not on one message."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ddt_notebook.diagnosis.advice import conclude
from ddt_notebook.diagnosis.wording import worded
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.finding import Confidence
from ddt_notebook.model.log_facts import LogFacts, LogLine, Said

#: Ranks with different releases of these cannot work together; of others they mostly can.
_HAVE_TO_AGREE = frozenset({"NCCL", "torch"})
_MAY_DIFFER = frozenset({"CUDA driver"})
#: Network interfaces of InfiniBand (IPoIB) as Linux names them, and as in ``[0]ib0:10.0.0.1``.
_IB_INTERFACE = re.compile(r"(?:^|\s)ib[a-z0-9]*\d(?=[:\s]|$)")
_NO_DEVICE = "No device found"
#: Failures of communication, which different releases may have caused.
_OF_COMMUNICATION = frozenset({"A.2", "B.1", "B.2", "C.3", "C.4", "D.1.1", "D.1.7", "D.2.1"})
_HANGS = frozenset({"B.2", "C.4", "D.2.1"})
#: The kinds of findings that rest on the words of a text. Others were observed, as in dumps.
_BY_WORDS = frozenset({"text-says", "words-fit", "limit-too-short", "versions-differ"})
_QUOTED = 3


def merged(found: Sequence[Finding], facts: LogFacts) -> tuple[list[Finding], list[Finding]]:
    """Return the findings of a text with those that rest on the whole log, and further hints.

    Parameters
    ----------
    found
        The findings of the text by its messages, the most likely first.
    """
    findings, hints = [_with_rank(one, facts) for one in found], []
    first = found[0].symptom if found else ""
    for one in (*_versions(facts), *_too_short(facts)):
        if one.confidence == "possible":
            hints.append(one)
            continue
        before = _HANGS if one.kind == "limit-too-short" else _OF_COMMUNICATION
        if one.kind == "limit-too-short":  # the messages show only that ranks waited
            findings = [f for f in findings if f.symptom not in _HANGS or f.kind not in _BY_WORDS]
        observed = [f for f in findings if f.kind not in _BY_WORDS]
        ahead = not observed and (first in before or not found)
        findings.insert(0 if ahead else len(observed) or len(findings), one)
    for one in _sockets(facts):
        at = next((n for n, f in enumerate(findings) if f.symptom == one.symptom), len(findings))
        findings = [f for f in findings if f.symptom != one.symptom]
        findings.insert(at, one)
    return findings, hints


def _with_rank(finding: Finding, facts: LogFacts) -> Finding:
    """Return a finding about memory with the ranks that a scheduler ended for want of it."""
    ends = [end for end in facts.ends if end.reason == "memory" and end.ranks]
    if finding.symptom != "D.1.2" or finding.ranks or not ends:
        return finding
    ranks = sorted({rank for end in ends for rank in end.ranks})
    known = {fact.values.get("number") for fact in finding.facts if fact.kind == "line-of-text"}
    quoted = [_quote(end.line) for end in ends[:_QUOTED] if end.line.number not in known]
    values = dict(finding.values)
    if len(ranks) == 1 and "printed_by" in values:
        values["printed_by"] = ranks[0]
    return worded(replace(finding, ranks=ranks, values=values, facts=[*quoted, *finding.facts]))


def _quote(line: LogLine) -> Fact:
    values: dict[str, object] = {"number": line.number, "text": line.text}
    if line.file:
        values["file"] = line.file
    return Fact(kind="line-of-text", ranks=() if line.rank is None else (line.rank,), values=values)


def standing(facts: LogFacts) -> list[Fact]:
    """Return what the log says about ranks that others waited for without success."""
    gave_up = {rank for one in facts.timeouts for rank in one.ranks}
    found = [
        Fact(kind="quiet-since", ranks=(one.rank,), values={"since_s": one.since_s})
        for one in facts.quiet
    ]
    found += [
        Fact(
            kind="process-ended",
            ranks=end.ranks,
            values={"exit_code": end.code, "signal": end.signal},
        )
        for end in facts.ends
        if end.ranks and end.reason != "launcher" and gave_up.isdisjoint(end.ranks)
    ]
    return found


def _too_short(facts: LogFacts) -> Iterator[Finding]:
    """Report a time limit that ended a wait while the awaited rank was at work."""
    if not facts.work or not facts.timeouts:
        return
    ended = {rank for end in facts.ends if end.reason != "launcher" for rank in end.ranks}
    waiting = {rank for one in facts.timeouts for rank in one.ranks}
    work = next((one for one in facts.work if one.rank not in ended - waiting), None)
    if work is None:
        return
    limit = facts.timeouts[0]
    yield worded(
        conclude(
            "D.2.1",
            "limit-too-short",
            cause="rank-too-slow",
            ranks=() if work.rank is None else (work.rank,),
            waiting=waiting,
            values={
                "op": limit.op,
                "sequence": limit.sequence,
                "limit_s": limit.limit_s,
                "worked_s": work.worked_s,
                "after": work.after,
            },
            facts=[_quote(work.line), _quote(limit.line)],
            confidence="likely",
            message="c10d-work-as-long-as-timeout",
        )
    )


def _versions(facts: LogFacts) -> Iterator[Finding]:
    """Report libraries of which ranks have different releases."""
    names = dict.fromkeys(said.name for said in facts.versions if said.name not in _MAY_DIFFER)
    certain: list[list[Said]] = []
    unsure: list[list[Said]] = []
    for name in names:
        said = _by_release([one for one in facts.versions if one.name == name])
        of_ranks = [one for one in said if one.ranks]
        of_hosts = [one for one in said if one.hosts]
        if len(of_ranks) > 1 and _apart(one.ranks for one in of_ranks):
            # A job that was started again may have got another image.
            agree = name in _HAVE_TO_AGREE and not facts.restarts
            (certain if agree else unsure).append(of_ranks)
        elif len(of_hosts) > 1 and _apart(one.hosts for one in of_hosts):
            unsure.append(of_hosts)
    if certain:
        yield _differ(certain, "likely")
    if unsure:
        yield _differ(unsure, "possible")


def _by_release(said: Sequence[Said]) -> list[Said]:
    """Return NCCL's versions without that of its CUDA, which only some messages name."""
    if said[0].name != "NCCL":
        return [*said]
    found: dict[str, Said] = {}
    for one in said:
        release = one.value.partition("+")[0]
        known = found.get(release, replace(one, value=release))
        found[release] = replace(
            known,
            ranks=tuple(sorted({*known.ranks, *one.ranks})),
            hosts=tuple(sorted({*known.hosts, *one.hosts})),
        )
    return [*found.values()]


def _apart(owners: Iterable[Sequence[object]]) -> bool:
    """Whether no rank or host has two of the values; one that has was started twice."""
    everybody = [one for of in owners for one in of]
    return len(everybody) == len(set(everybody))


def _differ(differing: Sequence[Sequence[Said]], confidence: Confidence) -> Finding:
    rarest = min(differing[0], key=lambda one: (len(one.ranks), len(one.hosts)))
    return worded(
        conclude(
            "B.1",
            "versions-differ",
            ranks=rarest.ranks,
            values={
                "of": tuple(
                    (said[0].name, tuple((one.value, one.ranks, one.hosts) for one in said))
                    for said in differing
                ),
            },
            facts=[_quote(one.line) for said in differing for one in said[:_QUOTED]],
            confidence=confidence,
            message="nccl-version-mismatch",
        )
    )


def _sockets(facts: LogFacts) -> Iterator[Finding]:
    """Report that hosts with InfiniBand exchange data over TCP sockets."""
    of: dict[str, list[Said]] = {}
    for said in facts.network:
        of.setdefault(said.name, []).append(said)
    sockets = [one for one in of.get("network", []) if one.value.startswith("Socket")]
    transports = [one for one in of.get("transport", []) if one.value.startswith("NET/Socket")]
    several = len({host for one in facts.network for host in one.hosts}) > 1 or bool(transports)
    if not sockets or not several:
        return
    adapters = [one for one in of.get("InfiniBand", []) if one.value != _NO_DEVICE]
    interfaces = [
        one
        for name in ("socket interfaces", "bootstrap interface")
        for one in of.get(name, [])
        if _IB_INTERFACE.search(one.value)
    ]
    chosen = [one for one in facts.variables if one.name == "NCCL_IB_HCA"]
    signs = [*adapters, *interfaces, *chosen]
    if not signs:
        return
    disabled = [
        one for one in facts.variables if one.name == "NCCL_IB_DISABLE" and one.value != "0"
    ]
    absent = [one for one in of.get("InfiniBand", []) if one.value == _NO_DEVICE]
    quoted = [*sockets[:1], *signs[:1], *disabled[:1], *absent[:1]]
    yield worded(
        conclude(
            "D.2.3",
            "sockets-despite-infiniband",
            values={"disabled": bool(disabled), "absent": bool(absent)},
            facts=[_quote(one.line) for one in quoted],
            confidence="likely",
            message="slow-over-sockets",
        )
    )
