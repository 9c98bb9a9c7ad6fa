"""What ranks disagree on, in words."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.parity import Disagreement, RankParity, ValueDifference
from . import words
from .flags import Flag, ordered
from .places import group

_PLURALS = {
    "parameter": "parameters",
    "buffer": "buffers",
    "gradient": "gradients",
    "state": "entries of the state",
    "setting": "settings",
}


def owner(name: str, role: str) -> str:
    """The variable that an item belongs to: ``"model"`` of ``"model.fc1.weight"``."""
    if role == "random":
        return "random state"
    if role == "state":
        return name.partition(".state.")[0]
    if role == "setting":
        return name.rpartition(".")[0]
    return name.partition(".")[0]


def as_join_allows(found: Disagreement, parities: Sequence[RankParity]) -> bool:
    """Whether these are gradients after ``join()``: ranks with less data keep older ones."""
    return found.role == "gradient" and _of_joined(found.name, parities)


def _of_joined(name: str, parities: Sequence[RankParity]) -> bool:
    """Whether a gradient, or an entry of an optimizer's state, is of a model inside ``join()``."""
    joined = tuple(f"{model}." for parity in parities for model in parity.joined)
    return name.rpartition(".state.")[2].startswith(joined)


def flags(parities: Sequence[RankParity], differing: Sequence[Disagreement]) -> list[Flag]:
    """One for each object and role that differs, the gravest first."""
    wrapped = {name for parity in parities for name in parity.wrapped}
    copied = {name for parity in parities for name in parity.synchronized_buffers}
    measured = {d.name: d for parity in parities for d in parity.differences}
    trained = {item.name for parity in parities for item in parity.items if item.role == "gradient"}
    found = []
    for (name, role), members in group(differing, lambda d: (owner(d.name, d.role), d.role)):
        first = members[0]
        # other random numbers on each rank are lawful, too, and often wanted
        if role == "random" or as_join_allows(first, parities):
            continue
        ranks = sorted({rank for member in members for rank in member.deviating})
        if role == "setting":
            found += [Flag("error", disagreement_text(member, None)) for member in members]
            continue
        if len(members) == 1:
            text = disagreement_text(first, measured.get(first.name))
        else:
            what = f"{len(members):,} {_PLURALS[role]} of {words.middle(name, 60)}"
            text = f"{what} differ on {words.ranks(ranks)}, first "
            text += disagreement_text(first, measured.get(first.name))
        if role == "state" and all(_of_joined(member.name, parities) for member in members):
            why = "join() makes parameters equal at its end, but not the optimizer's state"
            found.append(Flag("warning", f"{text}; {why}"))
            continue
        kept_equal = name in wrapped or (role == "state" and bool(wrapped))
        found.append(_judged(role, text, kept_equal, name in copied, bool(trained)))
    different = {member.name for member in differing}
    return ordered([*found, *_not_finite(parities, different)])


def _not_finite(parities: Sequence[RankParity], different: Collection[str]) -> list[Flag]:
    """Parameters and buffers on which the ranks agree, and that are nan or inf.

    Gradients are left out: a gradient scaler meets nan and inf, and skips the step. So is inf in
    buffers: masks are made of it.
    """
    odd = [
        (parity.rank, item)
        for parity in parities
        for item in parity.items
        if item.name not in different
        and (
            (item.role == "parameter" and item.not_finite)
            or (item.role == "buffer" and item.not_finite == "nan")
        )
    ]
    found = []
    for (name, role), members in group(odd, lambda m: (owner(m[1].name, m[1].role), m[1].role)):
        ranks = sorted({rank for rank, _ in members})
        names = list(dict.fromkeys(item.name for _, item in members))
        values = " or ".join(sorted({item.not_finite for _, item in members}, reverse=True))
        what = f"{words.middle(names[0], 80)} holds {values}"
        if len(names) > 1:
            what = f"{len(names):,} {_PLURALS[role]} of {words.middle(name, 60)} hold {values}"
        everywhere = len(ranks) == len(parities) > 1
        if everywhere:
            what += " on every rank; that the ranks agree says nothing then"
        found.append(Flag("warning", what if everywhere else f"{what} on {words.ranks(ranks)}"))
    return found


def _judged(role: str, text: str, wrapped: bool, copied: bool, trained: bool) -> Flag:
    """How grave it is depends on whether something should have kept the ranks equal."""
    if role == "buffer" and copied:
        return Flag("hint", f"{text}; DDP copies rank 0's at the next forward pass in training")
    if role == "gradient" and not wrapped:
        return Flag("warning", f"{text}; nothing averages them over the ranks")
    if role == "parameter" and not wrapped:
        advice = "the model is not wrapped in DDP or FSDP" if trained else "load or seed them alike"
        return Flag("warning", f"{text}; {advice}")
    return Flag("error" if wrapped else "warning", text)


def disagreement_text(found: Disagreement, difference: ValueDifference | None) -> str:
    """``model.fc1.weight: rank 1 differs from rank 0 …``."""
    name = words.middle(found.name, 80)
    if "" in found.groups:
        lacking = found.groups[""]
        return (
            f"{name} is there on {words.ranks(found.agreeing)}, but not on {words.ranks(lacking)}"
        )
    return f"{name}: {first_difference(found, difference)}" + _how_far(difference)


def first_difference(found: Disagreement, difference: ValueDifference | None) -> str:
    """The first place where two ranks differ, or what each group of ranks has."""
    kinds = list(dict.fromkeys(found.kinds))
    groups = list(found.groups.items())
    if len(kinds) > 1:
        return ", ".join(
            f"{kind or 'absent'} on {words.ranks(ranks)}"
            for kind, (_, ranks) in zip(found.kinds[:4], groups[:4], strict=True)
        )
    if difference is not None:
        if not difference.count:
            return "equal values in different bits (such as 0.0 and -0.0)"
        at = f"[{', '.join(map(str, difference.first))}]"
        here, there = words.middle(difference.here, 24), words.middle(difference.there, 24)
        return f"element {at} is {there} on rank {difference.reference}, but {here}"
    if found.role == "setting" or kinds[0].endswith("scalar"):
        return ", ".join(
            f"{words.middle(value, 40)} on {words.ranks(ranks)}" for value, ranks in groups[:4]
        ) + (f" and {len(groups) - 4} more values" if len(groups) > 4 else "")
    verb = "differs" if len(found.deviating) == 1 else "differ"
    return f"{words.ranks(found.deviating)} {verb} from {words.ranks(found.agreeing)}"


def _how_far(difference: ValueDifference | None) -> str:
    if difference is None or not difference.count:
        return ""
    share = f"{difference.count:,} of {words.count(difference.elements, 'element')} differ"
    if difference.largest is None:
        return f" ({share}, some are no finite numbers)"
    return f" ({share}, by up to {difference.largest:.3g})"
