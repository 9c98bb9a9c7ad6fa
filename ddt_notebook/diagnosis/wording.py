"""The English of a diagnosis: a title for each kind of finding, a sentence for each kind of fact.

Rules produce data (`Finding.kind`, ``values``, ``places``, ``facts``); `worded` turns it into text
once, when the diagnosis is complete. No other module of the diagnosis contains sentences, and no
code reads them: code that needs a line, a rank or a number takes it from the data.

An entry is a template, or a function if a template is not enough. In a template

``{ranks}``
    is ``rank 1`` or ``ranks 0, 2 and 3``.
``{is|are}``
    is the form that fits the number of these ranks; ``{|s}`` adds an ending.
``{place}``, ``{line}``, ``{code}``, ``{at}``
    of a fact are ``cell[3] line 6: dist.barrier()``, ``cell[3] line 6``, ``dist.barrier()`` and
    `` at cell[3] line 6: dist.barrier()``, which is empty if the line is not known.
``{wait}``
    of a finding is ``; ranks 0 and 2 have been waiting for it for 2.1 s``, empty if nobody waits.
``{call}``, ``{label}``
    are ``all_reduce #17 (10 × float32) of DDP on group 1`` and ``all_reduce #17 (10 × float32)``,
    from the values of `rules.facts.of_call`; ``{a_group}`` is ``group 1``, or ``a group``.
``{exception}``, ``{ending}``
    are ``ValueError: bad batch``, from `rules.exception.of_error`, and ``signal 9, SIGKILL`` or
    ``exit code 3``, from `rules.crash.ending`.
``{name}``
    is the value of that name. A value whose name ends in ``_s`` is printed as a time, in
    ``_bytes`` as a size; a tuple is printed as ``a, b and c``, ``{steps:step}`` as ``3 steps``, and
    ``{entered:ranks}`` like ``{ranks}``.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ddt_notebook.formatting import agree, count, listing, rank_list, ranks_text, seconds, size
from ddt_notebook.model import Call, Fact, Finding, Place
from ddt_notebook.model.collective import call_label, shape_label, tensor_label
from ddt_notebook.model.finding import Scope, Values
from ddt_notebook.model.operations import PASSES
from ddt_notebook.model.torch_features import MissingFeature

from . import of_frameworks, parting_wording, training_facts, training_wording
from .training_wording import label_of, of_tensor

Title = str | Callable[[Finding], str]
Sentence = str | Callable[[Fact], str]


def worded(finding: Finding) -> Finding:
    """Return the finding with ``title``, ``where`` and ``evidence`` rendered from its data."""
    if not finding.kind:
        return finding
    own = TITLES.get(finding.kind)
    title = own if own is not None else of_frameworks.table("TITLES")[finding.kind]
    return replace(
        finding,
        title=rendered(title, finding),
        where={rank: place.label for rank, place in finding.places.items()},
        evidence=[sentence(fact) for fact in finding.facts],
    )


def sentence(fact: Fact) -> str:
    """Return a fact as one line; reasons that come from the source begin with ``likely why``."""
    entries = next((one for one in (FACTS, REASONS, SHOWN) if fact.kind in one), None)
    found = entries if entries is not None else of_frameworks.table("FACTS")
    text = rendered(found[fact.kind], fact)
    if entries is FACTS or entries is None or fact.place is None:
        return text
    text = f"{fact.place.place}: `{fact.place.code}` {text}".rstrip()
    return f"likely why: {text}" if is_reason(fact) else text


def checked(scope: Scope) -> str:
    """Return ``4 ranks, 12 collectives on 1 group agree``."""
    parts = [count(scope.ranks, "rank")]
    if scope.collectives:
        seen = count(scope.collectives, "collective")
        kind, preposition = ("tensor", "of") if scope.by_tensor else ("group", "on")
        parts.append(f"{seen} {preposition} {count(scope.groups, kind)}")
    else:
        parts.append("no collectives")
    if scope.messages:
        parts.append(count(scope.messages, "message"))
    text = ", ".join(parts)
    if scope.agree:
        text += " agree" if scope.collectives + scope.messages > 1 else " agrees"
    notes = []
    if scope.calls_dropped:
        dropped = count(scope.calls_dropped, "earlier call")
        notes.append(f"{dropped} of a rank matched and were not kept")
    if scope.idle:
        notes.append(f"{ranks_text(scope.idle)} did not run the cell")
    notes += map(str, scope.missing_features)
    text = "; ".join([text, *notes])
    if scope.interrupted_at:
        stood = [
            f"{ranks_text([rank])} at {place.label}" for rank, place in scope.interrupted_at.items()
        ]
        text += "; interrupted: " + "; ".join(stood)
    return text


def is_reason(fact: Fact) -> bool:
    """Whether a fact is the reason: read from the source, or observed where ranks parted."""
    return fact.kind in REASONS or fact.kind in parting_wording.FACTS


# -- templates ---------------------------------------------------------------------------------

#: ``{name}`` or ``{name:noun}``.
_SLOT = re.compile(r"\{([^{}:]+)(?::([^{}]+))?\}")


def rendered(entry: Title | Sentence, subject: Any) -> str:
    """Render an entry of the tables with the data of a finding or a fact."""
    if not isinstance(entry, str):
        return entry(subject)
    return _SLOT.sub(lambda slot: _filled(subject, slot[1], slot[2]), entry)


def _filled(subject: Finding | Fact, name: str, noun: str | None) -> str:
    """Return the text for one pair of braces."""
    values = subject.values
    if "|" in name:
        return agree(subject.ranks, *name.split("|"))
    if name in values:
        return _value(name, values[name], noun)
    if name in _PARTS:
        return _PARTS[name](values)
    if name == "ranks":
        return ranks_text(subject.ranks)
    if isinstance(subject, Finding):
        return {"wait": wait}[name](subject)
    place = subject.place
    return {
        "place": at(place),
        "at": _at(subject),
        "line": place.place if place else at(None),
        "code": place.code if place else "",
    }[name]


def _value(name: str, value: Any, noun: str | None) -> str:
    if noun == "ranks":
        return ranks_text(value)
    if noun is not None:
        return count(value, noun)
    if isinstance(value, tuple):
        return listing(map(str, value))
    if isinstance(value, (int, float)) and name.endswith("_s"):
        return seconds(value)
    return size(value) if isinstance(value, int) and name.endswith("_bytes") else str(value)


# -- parts of sentences ------------------------------------------------------------------------


def at(place: Place | None) -> str:
    """Return ``cell[3] line 6: dist.barrier()``."""
    return place.label if place is not None else "an unknown line"


def wait(finding: Finding) -> str:
    """Return who has been waiting for the culprits and for how long, as the end of a title."""
    waiting = finding.waiting
    if not waiting:
        return ""
    age, it = finding.values.get("waited_s"), agree(finding.ranks, "it", "them")
    if finding.values.get("freed"):
        verb = f"waited for {it}"
    elif age is None:
        verb = f"{agree(waiting, 'waits', 'wait')} for {it}"
    else:
        verb = f"{agree(waiting, 'has', 'have')} been waiting for {it} for {seconds(age)}"
    return f"; {ranks_text(waiting)} {verb}"


def call(values: Values, *, whose: bool = True, direction: bool = True) -> str:
    """Return ``all_reduce #17 (10 × float32) of DDP``, with its group or its peer and tag.

    Parameters
    ----------
    whose
        Whether to name the library that issued it.
    direction
        Whether to name the peer of a message.
    """
    text = label_of(values) + (_issuer(values) if whose else "")
    if "peer" in values and direction:
        peer = "anyone" if values["peer"] is None else ranks_text([values["peer"]])
        text += f" {'to' if 'send' in values['op'] else 'from'} {peer}"
    if "tag" in values:
        text += f", tag {values['tag']}"
    return f"{text} on group {values['group']}" if "group" in values else text


def _issuer(values: Values) -> str:
    """Return `` of DDP`` or `` called from FILE`` for a call that the user did not write."""
    if "called_from" in values:
        return f" called from {values['called_from']}"
    issuer = values.get("issued_by")
    return f" of {_LIBRARIES.get(issuer, issuer)}" if issuer else ""


#: The names that users give to libraries, if they are not the names of classes.
_LIBRARIES = {"DistributedDataParallel": "DDP"}


def exit_text(values: Values) -> str:
    """Return ``signal 9, SIGKILL`` or ``exit code 3``."""
    number = values["signal"]
    if number is None:
        return f"exit code {values['exit_code']}"
    try:
        return f"signal {number}, {signal.Signals(number).name}"
    except ValueError:  # a real-time signal has no name
        return f"signal {number}"


def error_text(values: Values) -> str:
    """Return ``ValueError: bad batch``; the sentence goes on, so a full stop is left out."""
    message = values["message"].removesuffix(".") if values["message"] else ""
    return f"{values['error']}: {message}" if message else values["error"]


def to_change(call: Call) -> str:
    """Return what the user has to change: the call, or the library's work that issues it."""
    if call.caller == "DistributedDataParallel":
        if call.op == "all_gather":  # it compares the models' parameters
            return "the constructor of the DDP model"
        return "forward and backward of the DDP model (to evaluate on one rank: its `.module`)"
    if call.caller == "FSDP":
        return "forward, backward and `full_tensor` of the sharded model"
    return call.op


def lacking(ranks: Iterable[int], *, everywhere: bool) -> dict[str, str]:
    """Return ``who`` for the advice on a name that some or all ranks lack."""
    return {"who": "the ranks" if everywhere else ranks_text(ranks)}


#: Names in templates that combine several values.
_PARTS: dict[str, Callable[[Values], str]] = {
    "call": call,
    "label": label_of,
    "exception": error_text,
    "ending": exit_text,
    "a_group": lambda values: f"group {values['group']}" if values["group"] else "a group",
}


# -- what happened -----------------------------------------------------------------------------


def _late(finding: Finding) -> str:
    """Describe ranks that others waited for without success by what the first of them does."""
    first, place = finding.ranks[0], finding.places.get(finding.ranks[0])
    text = rendered("{ranks} did not enter {call} within {limit_s}", finding)
    if finding.kind == "silent":
        seen = f", last seen at {place.label}" if place else ""
        text += f"; rank {first} does not answer{seen}"
    elif place is not None:
        text += f"; rank {first} is still at {place.label}"
    waiting, it = finding.waiting, agree(finding.ranks, "it", "them")
    return f"{text}; {ranks_text(waiting)} {agree(waiting, 'waits', 'wait')} for {it}"


def _stands_elsewhere(finding: Finding) -> str:
    """Describe ranks by their stacks: those that are in a call, and the others."""
    first, place = finding.ranks[0], finding.places.get(finding.ranks[0])
    ranks, waiting = finding.ranks, finding.waiting
    at = f"; rank {first} is at {place.label}" if place is not None else ""
    return (
        f"{ranks_text(waiting)} {agree(waiting, 'is', 'are')} in {_ops(finding)}, "
        f"and {ranks_text(ranks)} {agree(ranks, 'is', 'are')} not{at}"
    )


def _stand_in_different_calls(finding: Finding) -> str:
    return f"the ranks' stacks end in different calls: {_ops(finding)}"


def _ops(finding: Finding) -> str:
    """Return ``all_reduce and a backward pass``."""
    return " and ".join(PASSES.get(op, op) for op in finding.values["ops"])


def _message_awaited(finding: Finding) -> str:
    """Describe a send or a receive that its partner never answered."""
    tag = ", tag {tag}" if "tag" in finding.values else ""
    verbs = ("received", "sends") if finding.kind == "never-received" else ("sent", "receives")
    text = f"{{ranks}} never {verbs[0]} what rank {{partner}} {verbs[1]} in {{label}}{tag}{{wait}}"
    return rendered(text, finding)


def _died(finding: Finding) -> str:
    # a process that ends itself leaves no frames: the line is the last one that it reported
    at = "at" if finding.values.get("exit_code") is None else "after"
    where = f" {at} {place.label}" if (place := finding.places.get(finding.ranks[0])) else ""
    return rendered("{ranks} died ({ending})", finding) + where + wait(finding)


def _blocked_clause(finding: Finding) -> str:
    """Return ``; ranks 0 and 1 have been blocked for 2.1 s`` for a mismatch."""
    stuck = finding.values.get("blocked", ())
    if not stuck:
        return ""
    verb = agree(stuck, "has", "have")
    return f"; {ranks_text(stuck)} {verb} been blocked for {seconds(finding.values['blocked_s'])}"


def _sides(finding: Finding) -> list[Fact]:
    """Return the sides of a mismatch, the largest first."""
    return [fact for fact in finding.facts if fact.kind == "entered"]


def _different_collectives(finding: Finding) -> str:
    entered = listing(
        f"{ranks_text(side.ranks)} entered {label_of(side.values)}{_issuer(side.values)}"
        for side in reversed(_sides(finding))
    )
    return f"different collectives meet: {entered}{_blocked_clause(finding)}"


def _out_of_step(finding: Finding) -> str:
    """Name the lines before what differs, if a condition on the rank separated them."""
    sides = _sides(finding)
    entered = listing(
        f"{ranks_text(side.ranks)} at {side.place.place if side.place else at(None)}"
        + (f" ({_differing(side, finding)})" if finding.values["fields"] else "")
        for side in reversed(sides)
    )
    tensor = of_tensor(sides[0].values)
    what = f"{sides[0].values['op']} #{finding.values['sequence']}{tensor}"
    return f"out of step in {what}: {entered}{_blocked_clause(finding)}"


def _arguments_differ(finding: Finding) -> str:
    sides = _sides(finding)
    what = listing(_FIELDS[field] for field in finding.values["fields"])
    values = "; ".join(f"{_differing(side, finding)} on {ranks_text(side.ranks)}" for side in sides)
    issuers = {_issuer(side.values) for side in sides}
    issuer = issuers.pop() if len(issuers) == 1 else ""
    tensor = of_tensor(sides[0].values)
    collective = f"{sides[0].values['op']} #{finding.values['sequence']}{tensor}{issuer}"
    return f"{what} differ in {collective}: {values}{_blocked_clause(finding)}"


#: Names of the values on which the ranks of a collective must agree.
_FIELDS = {
    "root": "roots",
    "reduce_op": "reduce operations",
    "dtype": "data types",
    "shape": "shapes",
}


def _differing(side: Fact, finding: Finding) -> str:
    """Return the values of one side that differ between the sides of a mismatch."""
    values, fields = side.values, finding.values["fields"]
    texts = {
        "root": f"rank {values.get('root')}",
        "reduce_op": str(values.get("reduce_op")),
        "dtype": ", ".join(dict.fromkeys(values.get("dtypes", ()))),
        "shape": ", ".join(map(shape_label, values.get("shapes", ()))),
    }
    if len(fields) == 1:
        return texts[fields[0]]
    return ", ".join(f"{field.replace('_', ' ')} {texts[field]}" for field in fields)


def _message_differs(finding: Finding) -> str:
    values = finding.values
    sent, room = (
        tensor_label(values[f"{side}_shapes"], values[f"{side}_dtypes"])
        + (f" ({number:,} bytes)" if (number := values[f"{side}_bytes"]) is not None else "")
        for side in ("sent", "room")
    )
    sender, receiver = (ranks_text([values[side]]) for side in ("sender", "receiver"))
    return f"{sender} sends {sent}, but {receiver} receives {room}"


def _wait_cycle(finding: Finding) -> str:
    """Describe up to three sides of the cycle and count the rest."""
    sides = [fact for fact in finding.facts if fact.kind == "waits-for"]
    texts = [
        f"{ranks_text(side.ranks)} {agree(side.ranks, 'waits', 'wait')} in "
        f"{call(side.values, direction=False)} for {ranks_text(side.values['awaited'])}"
        for side in sides[:3]
    ]
    if len(sides) > 3:
        texts.append(f"and {len(sides) - 3} more")
    if "blocked_s" in finding.values:
        texts.append(f"they have been blocked{_for(finding)}")
    return "; ".join(texts)


def _for(finding: Finding) -> str:
    """Return `` for 2.1 s``, if it is known how long the ranks have been blocked."""
    blocked_s = finding.values.get("blocked_s")
    return f" for {seconds(blocked_s)}" if blocked_s is not None else ""


def _new_group_skipped(finding: Finding) -> str:
    text = (
        "{ranks} did not call {call}, which {callers:ranks} called: from there on the ranks number "
        "their groups differently, and "
    )
    waits = "have been waiting" if "blocked_s" in finding.values else "wait"
    return f"{rendered(text, finding)}{waits} for each other{_for(finding)}"


def _limit_too_short(finding: Finding) -> str:
    values = finding.values
    who = ranks_text(finding.waiting) if finding.waiting else "ranks"
    call = f"{values['op']} #{values['sequence']}" if values["sequence"] is not None else "the wait"
    worker = ranks_text(finding.ranks) if finding.ranks else "another rank"
    worked = values["worked_s"]
    if values["after"]:
        doing = f"{worker} {agree(finding.ranks or [0], 'was', 'were')} still at work after that"
    else:
        doing = f"{worker} {agree(finding.ranks or [0], 'was', 'were')} at work meanwhile"
    if worked is not None:
        doing += f", for {seconds(worked)} so far"
    return (
        f"the time limit of {seconds(values['limit_s'])} was too short: {who} gave up {call}, and "
        f"{doing}"
    )


#: Kind of a finding -> its title.
TITLES: dict[str, Title] = {
    **training_wording.TITLES,
    # hang
    "never-entered": "{ranks} never entered {call}{wait}",
    "not-asked": "{ranks} {was|were} not asked to run the cell, but {call} needs {it|them}{wait}",
    "suspended": "{ranks} {is|are} suspended and never entered {call}{wait}",
    "no-dump": "{call} needs {ranks} as well, but there is no dump of {ranks}{wait}",
    "no-record": "{call} needs {ranks} as well, but nothing is known about {ranks}{wait}",
    "no-such-rank": "{call} needs {ranks} as well, but the session does not have {ranks}{wait}",
    "late": _late,
    "silent": _late,
    "waits-for-build-lock": (
        "{ranks} {waits|wait} for the lock file of an extension that PyTorch builds"
    ),
    "stands-elsewhere": _stands_elsewhere,
    "stand-in-different-calls": _stand_in_different_calls,
    "never-received": _message_awaited,
    "thread-without-partners": (
        "a thread of {ranks} ({thread}) entered {op}, and no thread of {others:ranks} did{wait}"
    ),
    "thread-shares-group": (
        "a thread of {ranks} ({thread}) entered {op} on the group in which the main threads enter "
        "theirs, so other collectives met{wait}"
    ),
    "never-sent": _message_awaited,
    "wait-cycle": _wait_cycle,
    "new-group-skipped": _new_group_skipped,
    # a process that ended, an exception
    "died": _died,
    "host-lost": "{host} no longer answers: {ranks} {is|are} lost{wait}",
    "garbled": "{ranks} {was|were} ended for sending the notebook other data than messages{wait}",
    "raised": "{ranks} raised {exception}{wait}",
    "arguments-not-accepted": "the script did not accept its arguments on {ranks}",
    "raised-while-others-wait": (
        "{ranks} raised {exception} and entered {call} while handling it{wait}"
    ),
    # ranks that do not find each other
    "rank-number-repeated": lambda f: rendered(
        "{joined_alike:ranks} joined as rank {as_rank} of {world_size}"
        + (", and nobody joined as {missing:ranks}" if f.values["missing"] else "")
        + "{wait}",
        f,
    ),
    "rank-outside-world": (
        "{ranks} joined as rank {as_rank} of {world_size}, but ranks count from 0{wait}"
    ),
    "world-size-differs": (
        "{ranks} {was|were} given a world size of {world_size}, {others:ranks} of {others_size}"
        "{wait}"
    ),
    "rendezvous-differs": (
        "{ranks} {was|were} given the address {address}, {others:ranks} {others_address}{wait}"
    ),
    "rendezvous-file-left-over": (
        "{ranks} {forms|form} a group with {address}, which held data before{wait}"
    ),
    "store-reused": (
        "{ranks} {uses|use} the store at {address}, which held addresses of an earlier group{wait}"
    ),
    "store-not-served": "{ranks} {waits|wait} for a store at {address} that nobody serves{wait}",
    "master-unreachable": "{ranks} cannot reach {address}{wait}",
    # calls that do not fit
    "different-collectives": _different_collectives,
    "out-of-step": _out_of_step,
    "arguments-differ": _arguments_differ,
    "message-differs": _message_differs,
    "caller-not-in-group": (
        "{ranks} called {op} on {a_group} without being a member: the call did nothing{wait}"
    ),
    "absence-unnoticed": (
        "{ranks} never entered {call}; {entered:ranks} went on without {it|them}"
    ),
    "handle-not-waited": (
        "{ranks} did not enter {call}, which {entered:ranks} issued and did not wait for"
    ),
    "new-group-on-some-ranks": (
        "{ranks} did not call {call}, which {callers:ranks} called: groups are named by their "
        "number, so later ones may not find each other"
    ),
    "group-members-differ": (
        "the ranks do not agree which ranks are in group {group}: {ranks} did not call new_group "
        "alike, and groups are named by the number of the call"
    ),
    "swapped-collectives": (
        "{ranks} called {op} #{sequence} and #{next_sequence} from the same two lines in opposite "
        "order"
    ),
    # no cause on record
    "connection-lost": "{ranks} raised {exception}; no rank is known to have failed before",
    "transfer-stalled": lambda f: (
        f"{rendered('{ranks} {has|have} been in {call}', f)}{_for(f)}; every member has entered "
        "it, and it does not end"
    ),
    "members-unknown": lambda f: (
        f"{rendered('{ranks} {has|have} been in {call}', f)}{_for(f)}, which does not end; the "
        "members of its group are not known, so a missing rank cannot be named"
    ),
    "time-limit": "{ranks} had not finished after {passed_s}, when the time limit ended the cell",
    "made-no-progress": "{ranks} made no progress, and the cell was ended after {passed_s}",
    # a pasted text or a log
    "text-says": lambda f: (
        f.values["says"]
        + ("" if f.values["printed_by"] is None else f" (rank {f.values['printed_by']})")
    ),
    "words-fit": "the words fit {title} in {stage}",
    "reported-before": "{says}",
    # a log as a whole
    "limit-too-short": _limit_too_short,
    "versions-differ": lambda f: (
        "ranks run different releases: "
        + "; ".join(
            f"{name} "
            + listing(
                f"{version} on {ranks_text(ranks) if ranks else listing(hosts)}"
                for version, ranks, hosts in versions
            )
            for name, versions in f.values["of"]
        )
    ),
    "sockets-despite-infiniband": lambda f: (
        "NCCL exchanges data over TCP sockets, although the hosts have InfiniBand"
        + (": NCCL_IB_DISABLE turns it off" if f.values["disabled"] else "")
        + (
            ": NCCL found no adapter in the process"
            if f.values["absent"] and not f.values["disabled"]
            else ""
        )
    ),
    # values
    "reduced-elsewhere": (
        "{ranks} {uses|use} a tensor in line {line}, but {label} left the result on rank {root} "
        "only"
    ),
    "stepped-before-wait": (
        "{optimizer} of {ranks} took its steps without waiting for {never} {op}s of its gradients"
    ),
    "read-before-wait": (
        "{ranks} {reads|read} the result of {label} in line {line}, before waiting for it"
    ),
    "changed-before-wait": (
        "{ranks} {changes|change} in line {line} the tensor that {label} is still sending"
    ),
    "prints-own-share": (
        "{ranks} {shows|show} a {what} of {its own|their own} share of the data in line {line} "
        "as if it were that of all ranks"
    ),
    "writes-own-share": (
        "{ranks} {shows|show} a result of {its own|their own} share of the data in line {line} as "
        "if it were that of all ranks: {text}"
    ),
    "decides-by-own-share": (
        "{ranks} {decides|decide} by a {what} of {its own|their own} share of the data in line "
        "{line} as if it were that of all ranks"
    ),
    # foreseen from the source: calls that not all ranks make
    "not-python": "the source is not Python: {message}",
    "some-ranks-call": "only some ranks reach {op}",
    "each-rank-decides-call": "each rank decides by itself whether it reaches {op}",
    "some-ranks-leave-before": "some ranks leave before {op}",
    "clock-decides-calls": "each rank's own clock decides how often it reaches {op}",
    "uneven-calls": "some ranks reach {op} more often than others",
    "handler-misses-call": "a rank that catches an exception misses {op}",
    "handler-calls-alone": "a rank that catches an exception calls {op} alone",
    "branches-differ": "some ranks call {op} while others call {other}",
    "groups-differ": "{op} is called on one group by some ranks and on another by others",
    "order-differs": "the ranks call {op} on two tensors in opposite order",
    "roots-differ": "{op} is called with different roots on different ranks",
    "reduce-ops-differ": "{op} is called with {other} on some ranks and not on others",
    "outsiders-call": "{op} is called on a group by ranks that are not in it",
    "each-rank-decides-step": "each rank decides by itself whether the optimizer steps",
    "all-receive-first": "all ranks receive before any of them sends",
    "message-against-collective": (
        "some ranks wait for a message while others wait for a collective"
    ),
    "tag-never-sent": "a receive asks for a different tag than the message has",
    "message-never-sent": "a receive waits for a message that is never sent",
    "groups-crossed": "the ranks use their groups in opposite order",
    # foreseen from the source: results
    "read-in-flight": "{tensor} is read before {op} has finished",
    "changed-in-flight": "{tensor} is changed before {op} has finished",
    "read-elsewhere": "{tensor} holds the result on rank {rank} alone, and other ranks read it too",
    "never-waited-for": "nothing waits for the asynchronous {op}",
    "shows-own-share": "one rank shows a figure of its share of the data",
    "averaged-twice": "{tensor} is averaged by the collective and divided once more",
    "sum-shown-as-mean": "{tensor} is a sum over the ranks and is shown as a mean",
    "type-not-reduced": "{tensor} has a type that no backend reduces",
    "outputs-fixed": "{op} gets {outputs} outputs, regardless of the number of ranks",
    # foreseen from the source: data
    "every-rank-trains-on-all": ("every rank trains on all of the data: the loader has no sampler"),
    "same-order-every-epoch": (
        "every epoch goes through the data in the same order: set_epoch is never called"
    ),
    "sampler-with-iterable": "a loader over an IterableDataset gets a sampler",
    "sampler-with-shuffle": "the loader gets shuffle=True and a sampler, which it rejects",
    "workers-repeat-stream": "every worker of the loader reads all of {name}",
    "every-rank-reads-all": "every rank reads all of {name}: it is not divided by rank",
    "samples-for-one-rank": "every rank samples the share of rank {rank}",
    # foreseen from the source: models
    "each-rank-trains-alone": (
        "each rank trains a separate model: the data is divided, the model is not wrapped"
    ),
    "trained-past-wrapper": (
        "the model inside the wrapper is trained: its gradients are never averaged"
    ),
    "steps-without-average": (
        "the optimizer steps on gradients that were never averaged, because of no_sync()"
    ),
    "optimizes-another-copy": "the optimizer holds the parameters of another copy of the model",
    "asked-of-wrapper": "{name} is read from the wrapper, but belongs to the model inside it",
    "loaded-on-some-ranks": ("weights are loaded on some ranks only, after the model was wrapped"),
    "plain-tensor": "{name} is a plain tensor, unknown to the module",
    "layer-never-used": "no forward pass goes through {name}",
    "used-in-every-iteration": "{name} is used in every iteration, inside a reentrant checkpoint",
    "keeps-graphs": "{total} keeps the graph of every batch that is added to it",
    # foreseen from the source: checkpoints and files
    "every-rank-writes": "every rank writes {path}",
    "every-rank-makes-folder": (
        "every rank makes the same folder: all but the first find that it exists"
    ),
    "loads-nothing": (
        "the state dict of {of} is loaded into the other: nothing is loaded, without an error"
    ),
    "no-name-fits": "the state dict of {of} is loaded into the other: no name fits",
    "saves-names-of-wrapper": "the checkpoint holds the names of the wrapper: `module.…`",
    "every-rank-loads-onto": lambda f: (
        f"every rank loads onto "
        f"{f.values['device'] or 'the device that the checkpoint was saved from'}"
    ),
    "may-be-read-before-written": lambda f: (
        f"ranks read {f.values['path']!r} without knowing that rank {f.values['writer']} has "
        "written it"
    ),
    # foreseen from the source: set-up
    "no-such-backend": lambda f: f"torch has no backend {f.values['backend']!r}",
    "nccl-without-gpu": "the backend is nccl, but nothing is ever put on a GPU",
    "backend-serves-no-cpu": lambda f: (
        f"the backend {f.values['backend']!r} does not support tensors on the CPU"
    ),
    "formed-twice": "init_process_group is called while the group exists",
    "needs-group": "{what} needs the group, which is formed later",
    "timeout-is-number": "the timeout is a number; init_process_group takes a timedelta",
    "init-method-alone": "init_method is given, but neither rank nor world_size",
    "timeout-not-inherited": ("the group does not inherit the timeout of the first one"),
    "same-gpu": "every rank uses the same GPU",
    "device-ids": "device_ids is given for a model that is on the CPU",
    "module-gone": "torch no longer has {module}",
    "function-gone": "torch.distributed has no {name}; it has {now}",
    "debug-detail": "DDP on gloo crashes at the debug level DETAIL",
    "process-may-end": "a rank may end its process while others wait for it",
}


# -- what was seen -----------------------------------------------------------------------------


def _at(fact: Fact) -> str:
    return f" at {fact.place.label}" if fact.place is not None else ""


def _blocked_in(fact: Fact) -> str:
    issuer = fact.values.get("issued_by")
    by = f", issued by {issuer}" if issuer else ""
    if "called_from" in fact.values:
        by = _issuer(fact.values)
    what = f"{call(fact.values, whose=False)}{by}"
    return f"{rendered('{ranks} {is|are} blocked in', fact)} {what}, at {at(fact.place)}"


def _entered(fact: Fact) -> str:
    extra = [str(fact.values["reduce_op"])] if "reduce_op" in fact.values else []
    extra += [f"root rank {fact.values['root']}"] if "root" in fact.values else []
    what = ", ".join([label_of(fact.values), *extra])
    return f"{ranks_text(fact.ranks)} entered {what} at {at(fact.place)}"


def _joined(fact: Fact) -> str:
    number = fact.values["as_rank"]
    name = "no number" if number is None else f"rank {number}"
    return rendered(f"{{ranks}} joined as {name} of {{world_size}} at {{address}}", fact)


def _called_as_outsider(fact: Fact) -> str:
    members = fact.values["members"]
    known = f" (its members are {rank_list(members)})" if members else ""
    return rendered(f"{{ranks}} called {{op}} on {{a_group}}{known} at {{place}}", fact)


def _state(text: str, in_cell: str = "") -> Sentence:
    """Make an entry for what ranks did in the end, and their last collective if there is one."""

    def last_state(fact: Fact) -> str:
        did = text if "script" in fact.values else text + in_cell
        last = "; {its|their} last collective was {label}{at}" if "op" in fact.values else ""
        return rendered(did + last, fact)

    return last_state


#: Kind of a fact -> its sentence.
FACTS: dict[str, Sentence] = {
    **training_facts.FACTS,
    **parting_wording.FACTS,
    "note": "{note}",
    "not-seen": lambda fact: str(MissingFeature(**fact.values)),
    # where ranks wait
    "blocked-in": _blocked_in,
    "waits-for-handle": lambda f: (
        f"{ranks_text(f.ranks)} {agree(f.ranks, 'waits', 'wait')} for "
        f"{call(f.values, whose=False)}, issued at {at(f.place)}"
    ),
    "open-on-device": "{label} is not complete on the device of {ranks}; it was issued{at}",
    "waits-for": _blocked_in,
    "each-waits": "each waits for another, so none can go on",
    "waits-in-turn": lambda f: rendered(
        "{ranks} {waits|wait} in turn for rank {for_rank}"
        if "for_rank" in f.values
        else "{ranks} {waits|wait} for them in turn",
        f,
    ),
    # what others did instead
    "no-record": "nothing is known about {ranks}",
    "finished": _state("{ranks} finished", in_cell=" the cell"),
    "ended-itself": "{ranks} ended {its|their} own {process|processes}{at}",
    "raised-exception": _state("{ranks} raised an exception"),
    "ended": _state("{ranks} ended with {ending}"),
    "blocked": "{ranks} {is|are} blocked{at}",
    "stands-in": lambda fact: rendered(
        "{ranks} {is|are} in " + PASSES.get(fact.values["op"], "{op}") + "{at}",
        fact,
    ),
    "still-running": "{ranks} {is|are} still running{at}",
    "suspended": "{ranks} {is|are} suspended by the operating system{at}",
    "does-not-answer": (
        "{ranks} {does|do} not answer: C code holds {its interpreter|their interpreters}{at}"
    ),
    "not-asked": _state("{ranks} {was|were} not asked to run this cell"),
    "record-ends-before": _state(
        "{ranks} had not entered it when {its record was|their records were} written"
    ),
    "last-collective": "the last collective of {ranks} was {label}{at}",
    "called-on-other-group": lambda f: (
        f"{ranks_text(f.ranks)} called {f.values['op']} on group {f.values['group'] or '(none)'} "
        f"from that line, not on group {f.values['awaited_group']}"
    ),
    "ranks-spawn": (
        "{ranks} run this code already, and each starts processes of its own there, which ask for "
        "one port and meet those of other ranks"
    ),
    "file-missing": "{ranks} {asks|ask} again and again for {file}, which does not exist",
    "runs-inside": (
        "{ranks} {runs|run} this function of the program{at}, in a thread of the framework"
    ),
    "thread-ended": "{ranks} {waits|wait} for a thread that an exception has ended{at}: {error}",
    "file-lock-held": "{ranks} {waits|wait} for the lock of {file}, which rank {holder} holds",
    "host-stands": "the host of {ranks} is{at}",
    "issued-behind": lambda f: (
        f"Python had gone on from that line on {ranks_text(f.ranks)}, whose device waits: "
        f"{count(f.values['count'], 'more operation')} had been issued, the last one "
        + call_label(f.values["op"], f.values["sequence"])
    ),
    "last-backward-incomplete": (
        "every rank runs the same number of iterations, so the last backward pass of {ranks} did "
        "not reach all parameters"
    ),
    "passes-not-exchanged": lambda f: (
        f"DDP did not exchange gradients in {f.values['passes']} of the "
        f"{count(f.values['backwards'], 'backward pass')} that {ranks_text(f.ranks)} ended"
        + (f", because of no_sync() at {at(f.place)}" if f.place else "")
        if f.values["passes"]
        else f"DDP exchanged gradients in every backward pass that {ranks_text(f.ranks)} ended"
    ),
    "issued-every-iteration": "{issued_by} issues {op} in every iteration",
    "called-with-other-tag": "{ranks} called {op} with tag {tag}, not {awaited_tag}, at {place}",
    "before-training": (
        "no backward pass has run; the study counts a hang before the first training step as "
        "{symptom}"
    ),
    "build-lock": "{file} is there, and no process of this user on this host has it open",
    "build-lock-open": "{file} is there, and process {holder} has it open",
    "no-rank-builds": "no rank of this run builds it; an earlier build that was ended leaves it",
    "came-without-it": "{ranks} reached {place} without it",
    # a process that ended, an exception
    "process-ended": "the process of {ranks} ended with {ending}",
    "aborted": "before it aborted, {ranks} printed: {message}",
    "crash-frame": lambda f: (
        f"faulthandler: {f.place.file} line {f.place.line} in {f.place.function}" if f.place else ""
    ),
    "memory-held": "it held {memory_bytes} when last seen",
    "ended-inside": "it ended inside {label} at {place}",
    "died-of-it": "{ranks} died because of it ({ending})",
    "raised": "{ranks} raised {exception}",
    "raised-at": "raised at {place}",
    "line-lost-for-memory": "Python had no memory left to record the line",
    "raised-inside": "raised inside {label}",
    "raised-in-worker": lambda f: (
        f"in the worker: {f.values['error']}" + (f", at {f.place.label}" if f.place else "")
    ),
    "came-apart": parting_wording.came_apart,
    "raised-after-release": "the exception came only after the other ranks had been released",
    "command-printed": "the command printed: {line}",
    "existed-before": "no rank made it: it existed before",
    "written-later": "{ranks} finished writing it {later_s} later, at {place}",
    "without-gradient": lambda f: f"without gradient: {', '.join(f.values['parameters'])}",
    "ready-twice": "ready twice: {parameter}",
    "rank-0-is-odd": "all ranks except 0 have the same sizes: the model of rank 0 differs",
    # a line of a pasted text or a log
    "line-of-text": lambda f: (
        f"line {f.values['number']}"
        + (f" of {f.values['file']}" if f.values.get("file") else "")
        + (f", {ranks_text(f.ranks)}" if f.ranks else "")
        + f": {f.values['text']}"
    ),
    "gave-up": lambda f: rendered(
        "{ranks} gave up {op} #{sequence}"
        + (" ({elements:element})" if f.values["elements"] is not None else "")
        + " after {timeout_s}",
        f,
    ),
    "gave-up-nothing": "{ranks} printed no timeout",
    "quiet-since": "{ranks} had printed nothing for {since_s} when the first other rank gave up",
    "nearest-description": "the nearest description in the catalogue: {means}",
    "to-confirm": "to confirm it: {check}",
    "reported-before": lambda f: (
        f"line {f.values['number']}: ddt_notebook itself reported this"
        + (f"; %ddt_load {f.values['folder']} opens its record" if f.values["folder"] else "")
    ),
    "cards-print": lambda f: f"faults that print such words: {', '.join(f.values['cards'])}",
    "probability": lambda f: (
        f"estimated probability of this symptom: {f.values['percent'] or 'less than 1'} %"
    ),
    # ranks that do not find each other
    "joined": _joined,
    "launcher-serves": (
        "the launcher serves the store at {address}, and has told the ranks to serve none"
    ),
    # calls that do not fit
    "entered": _entered,
    "called": "{ranks} called {label} at {place}",
    "called-as-outsider": _called_as_outsider,
    "group-has-members": lambda f: (
        f"group {f.values['group']} of {ranks_text(f.ranks)} consists of "
        f"{ranks_text(f.values['members'])}"
    ),
    "repeated": "it happened {times:time} on a rank",
    "later-mismatches": lambda f: (
        f"{count(f.values['collectives'], 'later collective')} of the group "
        f"{'does' if f.values['collectives'] == 1 else 'do'} not fit either"
    ),
    "returned-wrong": "{op} #{sequence} returned on {ranks}, but its result cannot be trusted",
    "lost-connection": "{ranks} lost the connection to the others",
    "wrong-in-silence": "no rank raised an exception: the results are silently wrong",
    "received-wrong-in-silence": "no rank raised an exception: the received data is silently wrong",
    "group-out-of-step": "the ranks of this group are out of step from here on",
    "calls-fit": "the calls fit each other, so nothing fails; the results may be exchanged",
    # values
    "took-steps": "the optimizer took {steps:step} on {ranks}",
    "step-after-passes": "{ranks} took step {step} after {passes:backward pass}",
    "passes-in-a-step": "{passes:backward pass} came before nearly every step on {ranks}",
    "averaged-in-every-pass": (
        "DDP averaged the gradients of {model} in every pass; not every rank used them"
    ),
    "reduced-in-every-pass": (
        "{ranks} reduced the gradients of {optimizer} after every pass; not every rank used them"
    ),
    "reduced-to": "reduced to rank {root} at {place}",
    "prints-own-part": "{ranks} {prints|print} what it holds at {place}",
    "decides-by-own-part": "{ranks} {decides|decide} by what it holds at {place}",
    "applies-own-part": "{ranks} {applies|apply} what it holds as a gradient at {place}",
    "computes-with-own-part": "{ranks} {computes|compute} with what it holds at {place}",
    "others-hold-parts": (
        "on the other ranks the tensor holds their own value or a part of the result"
    ),
    "issued-async": "issued at {place}, which returns a handle",
    "read-at": "read at {place}",
    "sent-at": "sent at {place}",
    "changed-at": "changed in place at {place}",
    "waited-for-others": (
        "{never} of its {calls} handles were never waited for, with {steps:step} of the optimizer"
    ),
    "seen-before-wait": "its handle was still open: nothing had waited for it",
    "no-wait-between": "there is no wait() for its handle between the two lines",
    "value-read": "{place} reads the value from a tensor",
    "data-divided": "the data is divided among the ranks",
    "other-numbers-exchanged": (
        "the ranks exchange other numbers before that line, but not this value, which is another "
        "one on each rank"
    ),
    "no-collective-before": ("no collective carries the value from rank to rank before that line"),
}


def _uneven_rounds(fact: Fact) -> str:
    if "times" not in fact.values:
        return rendered("brought rank {caller} to {op} more often than {ranks}", fact)
    each = "each " if len(fact.ranks) > 1 else ""
    came = f"{each}{{times:time}}" if fact.values["times"] else "never"
    return rendered(
        f"brought rank {{caller}} to {{op}} {{caller_times:time}}, {{ranks}} {came}", fact
    )


#: Kind of a likely reason from the source -> what the line of its place does.
REASONS: dict[str, Sentence] = {
    "called-another": lambda f: (
        f"the ranks parted at {f.place.label}: "  # type: ignore[union-attr]
        + listing(f"rank {rank} called {name}" for rank, name in f.values["functions"])
    ),
    **parting_wording.REASONS,
    "uneven-rounds": _uneven_rounds,
    "keeps-graph": "keeps the autograd graph of every iteration",
    "plain-attribute": "makes {name} a plain attribute, which `to()` does not move",
}
#: Kind of a fact that lint reads from the source -> what the line of its place does.
SHOWN: dict[str, Sentence] = {
    "source-line": "",
    "averages-it": "averages it",
    "concerns-every-rank": "concerns every rank",
    "decided-on-each-rank": "is decided by each rank alone",
    "decides-on-each-rank": "decides it on each rank",
    "depends-on-own-clock": "depends on each rank's own clock",
    "divides-the-data": "divides the data",
    "does-not-ask-for-rank": "does not ask for the rank",
    "does-not-ask-for-worker": "does not ask for the worker",
    "formed-it": "formed it",
    "forms-it": "forms it",
    "goes-on-without-it": "goes on without it after an exception on one rank",
    "keeps-some-ranks": "keeps some ranks from it",
    "leaves-result-on": "leaves the result on rank {rank}",
    "lets-some-ranks-leave": "lets some ranks leave before it",
    "makes-it": "makes it",
    "may-raise-on-one-rank": "may raise on one rank",
    "never-called": "is never called",
    "not-waited-for": "has not been waited for",
    "other-ranks-call": "is what other ranks call",
    "others-stand-here": "is where others are then",
    "repeats-it": "repeats it",
    "repeats-the-pass": "repeats the pass over the data",
    "runs-inside-no-sync": "runs inside no_sync()",
    "sends-two-ways": "sends the ranks different ways",
    "sums-it": "sums it",
    "trains-on-it": "trains on it",
    "uneven-loop": "has a different number of iterations on each rank",
    "waits-for-every-gradient": "waits for the gradient of every parameter",
    "wraps-the-model": "wraps the model",
    "wraps-the-trained-copy": "wraps the copy that is trained",
    "writes-on-rank": "writes it on rank {rank}",
}
