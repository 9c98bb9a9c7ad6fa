"""Rules about calls that not all ranks make, or make differently."""

from __future__ import annotations

from collections.abc import Iterator

from ddt_notebook.model.finding import Confidence

from .blame import Parting
from .compare import partings
from .note import Note
from .program import Program
from .trace import NOWHERE

_SYMPTOM = {
    "different-collectives": "D.1.1",
    "root-differs": "D.1.1",
    "reduce-op-differs": "D.2.4",
    "swapped-collectives": "D.2.4",
    "new-group-on-some-ranks": "B.1",
    "rank-missing-at-setup": "B.2",
}
_SAYS = {
    "collective-under-rank-condition": "keeps some ranks from it",
    "collective-under-local-condition": "is decided on each rank by itself",
    "early-exit-on-rank-condition": "lets some ranks leave before it",
    "loop-ends-by-clock": "depends on each rank's own clock",
    "uneven-iterations": "makes another number of rounds on each rank",
    "exception-swallowed": "goes on without it after an exception on one rank",
    "different-collectives": "sends the ranks two ways",
    "swapped-collectives": "sends the ranks two ways",
}


def parted(program: Program) -> Iterator[Note]:
    """Calls that some ranks never come to."""
    seen: set[tuple[str, int]] = set()
    for passage in program.passages:
        for parting in partings(passage.walks):
            if parting.cause == "exception-swallowed" and passage.facts[0].of("swallowed"):
                continue  # told by `after_exception`
            told = any(line == parting.line for _, line in seen)
            if parting.cause == "rank-skips-collective" and told:
                continue
            if (parting.cause, parting.line) not in seen:
                seen.add((parting.cause, parting.line))
                yield _note(parting, sure=parting.sure and passage.called)


def steps(program: Program) -> Iterator[Note]:
    """Optimizers that step on some ranks only, so that the copies of the model part."""
    for passage in program.passages:
        if not passage.facts[0].kind("DistributedDataParallel"):
            continue
        known = {parting.why for parting in partings(passage.walks)}
        for parting in partings(passage.walks, NOWHERE):
            if parting.why and parting.why not in known:
                yield Note(
                    symptom="D.2.4",
                    title="whether the optimizer steps is decided on each rank by itself",
                    cause="steps-skipped-on-some-ranks",
                    line=parting.line,
                    also=((parting.why, _SAYS.get(parting.cause, "")),),
                )
                break


def _note(parting: Parting, sure: bool) -> Note:
    cause, op = parting.cause, parting.op
    confidence: Confidence = "certain" if sure else "likely"
    on_rank = cause in ("collective-under-rank-condition", "early-exit-on-rank-condition")
    if op == "new_group" and on_rank:
        cause = "new-group-on-some-ranks"
        confidence = "likely"
    elif op == "init_process_group" and on_rank:
        cause = "rank-missing-at-setup"
    if cause == "swapped-collectives":
        confidence = "possible"
    also: tuple[tuple[int, str], ...] = ()
    if parting.why:
        also = ((parting.why, _SAYS.get(parting.cause, "")),)
    if parting.other_line and parting.other_line != parting.line:
        also += ((parting.other_line, "is what other ranks call"),)
    return Note(
        symptom=_SYMPTOM.get(cause, "D.2.1"),
        title=_title(parting),
        cause=cause,
        line=parting.line,
        also=also,
        confidence=confidence,
        op=op,
    )


def _title(parting: Parting) -> str:
    op = parting.op
    match parting.cause:
        case "different-collectives":
            return f"some ranks call {op} while others call {parting.other}"
        case "different-groups":
            return f"{op} is called on one group by some ranks and on another by others"
        case "swapped-collectives":
            return f"the ranks call {op} on two tensors in opposite order"
        case "root-differs":
            return f"{op} is called with another root on other ranks"
        case "reduce-op-differs":
            return f"{op} is called with {parting.other} on some ranks and not on others"
        case "loop-ends-by-clock":
            return f"each rank's own clock decides how often it comes to {op}"
        case "uneven-iterations":
            return f"some ranks come to {op} more often than others"
        case "early-exit-on-rank-condition":
            return f"some ranks leave before {op}"
        case "collective-under-local-condition":
            return f"whether a rank comes to {op} is decided on each rank by itself"
        case "exception-swallowed":
            return f"a rank that catches an exception misses {op}"
    return f"only some ranks come to {op}"


def after_exception(program: Program) -> Iterator[Note]:
    """Calls that a rank misses, or makes alone, when an exception is raised on it."""
    for passage in program.passages:
        facts = passage.facts[0]
        for event in (*facts.of("swallowed"), *facts.of("handler issues")):
            line, op, risk = event.text.split("\0")
            missed = event.what == "swallowed"
            does = "misses" if missed else "alone calls"
            yield Note(
                symptom="D.2.1",
                title=f"a rank on which an exception is caught {does} {op}",
                cause="exception-swallowed" if missed else "collective-under-local-condition",
                line=event.line,
                also=((int(risk), "may raise on one rank"), (int(line), "concerns every rank")),
                op=op,
            )


def strangers(program: Program) -> Iterator[Note]:
    """Calls on a group by ranks that are not in it."""
    for passage in program.passages:
        for facts in passage.facts:
            for event in facts.of("stranger"):
                if any(not around.sure and not around.loop for around in event.around):
                    continue  # a condition that is not known may ask for membership
                yield Note(
                    symptom="D.2.4",
                    title=f"{event.text} is called on a group by ranks that are not in it",
                    cause="caller-not-in-group",
                    line=event.line,
                    op=event.text,
                )
