"""Titles and facts of the findings about workers that do not train the same thing."""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import count, listing, ranks_text
from ddt_notebook.model import Fact, Finding


def _workers_apart(finding: Finding) -> str:
    values = finding.values
    when = (
        f"before the first execution of {values['graph']}"
        if not values["executed"]
        else f"after {count(values['executed'], 'execution')} of {values['graph']}"
    )
    if "numbers" in values:
        numbers = zip(values["holding"], values["numbers"], strict=True)
        given = listing([f"{number:.6g} on rank {rank}" for rank, number in numbers])
        return f"{values['variable']} differs between the workers {when}: {given}"
    others = (
        f", and so do {values['apart'] - 1} of the other {values['variables'] - 1} variables"
        if values["apart"] > 1
        else ""
    )
    return f"the copies of {values['variable']} differ between the workers {when}{others}"


def _batches_read(fact: Fact) -> str:
    read = [
        f"rank {rank} read {count(batches, 'batch')} with {count(samples, 'sample')}"
        for rank, batches, samples in zip(
            fact.ranks, fact.values["batches"], fact.values["samples"], strict=True
        )
    ]
    return listing(read)


TITLES: dict[str, str | Callable[[Finding], str]] = {
    "workers-apart": _workers_apart,
    "graph-numbers-apart": lambda f: (
        f"{f.values['graph']} computes with another number on each worker: "
        + listing(
            [
                f"{number:.6g} on rank {rank}"
                for rank, number in zip(f.values["holding"], f.values["numbers"], strict=True)
            ]
        )
    ),
    "pipelines-apart": "the workers prepare the data that they distribute in other ways",
    "left-graph": (
        "{ranks} ended {call}, and another worker still waits for {it|them} inside of it{wait}"
    ),
    "held-in-pipeline": (
        "{ranks} {runs|run} a function of {its|their} data inside of {call}, where the other "
        "workers wait{wait}"
    ),
    "adapted-apart": (
        "adapt() computed other statistics or another vocabulary for {layer} on each worker"
    ),
    "weighed-apart": "fit was given other class weights on each worker",
    "shares-end-early": lambda f: (
        f"the share of {ranks_text(f.ranks)} ended after "
        f"{count(f.values['fewest'], 'batch')}, those of others after up to "
        f"{f.values['most']:,}"
    ),
    "step-not-finite": "{graph} returned {value} after {executed:execution} and from then on",
    "variables-not-finite": (
        "{variable} holds nan or inf on {holding:ranks} after {executed:execution} of {graph}"
    ),
    "shows-own-result": (
        "{ranks} {shows|show} in line {line} what {graph} returned for {its own|their own} part of "
        "the data, as if it were that of all workers: {text}"
    ),
    "curves-mixed": lambda f: (
        f"{ranks_text(f.ranks)} write other numbers for {f.values['name']} to one folder, "
        f"{f.values['folder']}: TensorBoard mixes them in one curve"
        + (
            f", and so {count(f.values['curves'] - 1, 'more curve')}"
            if f.values["curves"] > 1
            else ""
        )
    ),
    "own-terms-summed": (
        "each of {size} replicas adds a term of variables alone to its loss, and the strategy sums "
        "the gradients: the term counts {size} times"
    ),
    "replica-means-summed": (
        "the sum of the means of {size} replicas was taken: it is {size} times as large as the mean"
    ),
}
FACTS: dict[str, str | Callable[[Fact], str]] = {
    "checkpoint-found": "only {ranks} found a checkpoint and restored it",
    "graph-given": lambda f: (
        f"{f.values['graph']} was given {listing([str(n) for n in f.values['given']])} on "
        f"{ranks_text(list(f.ranks))}"
    ),
    "results-differ": lambda f: (
        "it first returned "
        + listing(
            [
                f"{value:.6g} on rank {r}"
                for r, value in zip(f.ranks, f.values["values"], strict=True)
            ]
        )
    ),
    "points-differ": lambda f: (
        f"for step {f.values['step']:,} there is "
        + listing(
            [
                f"{number:.6g} of rank {r}"
                for r, number in zip(f.ranks, f.values["numbers"], strict=True)
            ]
        )
    ),
    "policy-set": (
        "{ranks} {computes|compute} with Keras' policy {policy}{at}, and not every worker: it adds "
        "variables to the optimizer and changes data types"
    ),
    "assigned-in-graph": ("{graph} assigns {variable} {at}, from what each worker computed itself"),
    "one-model-trained": (
        "all workers train one model, but each computes the gradients of another function"
    ),
    "steps-of-pipelines": lambda f: "; ".join(
        f"on rank {rank}: {', '.join(steps)}"
        for rank, steps in zip(f.ranks, f.values["steps"], strict=True)
    ),
    "function-of-step": "the functions of {step} have other operations or numbers",
    "checkpoints-differ": lambda f: (
        "each worker restored a checkpoint that holds something else: "
        + listing(
            [
                f"{name} on rank {rank}"
                for rank, name in zip(f.ranks, f.values["names"], strict=True)
            ]
        )
    ),
    "variable-written": lambda f: (
        f"{ranks_text(f.ranks)} assigned {f.values['variable']} outside of the strategy's updates, "
        f"{count(f.values['times'], 'time')}"
    ),
    "strategy-keeps-equal": (
        "the strategy never compares the variables of its workers: what differs once stays apart"
    ),
    "gradients-not-summed": (
        "{optimizer} was told not to sum the gradients over the workers, and each used its own"
    ),
    "own-data": "it was computed from each worker's own data, and all train one model with it",
    "batches-read": _batches_read,
    "batches-empty": (
        "TensorFlow gives a worker whose data have ended empty batches until all have ended"
    ),
    "profiler-crashed": (
        "TensorFlow's profiler crashed as it collected its events, which TensorFlow 2.21 does now "
        "and then: run without it, such as TensorBoard(profile_batch=0), or ask for a traced run"
    ),
    "steps-went-on": "the steps of {place} went on with them",
    "batch-not-finite": "batch {batch} of {ranks} holds nan or inf",
    "own-term-whole": "nothing in the graph divides that term by the number of replicas",
    "replica-mean-at": "each replica takes its mean at {place}",
    "divided-by-own-batch": lambda f: (
        f"the sum of the losses is divided by {f.values['by']:.0f}, the size of each worker's own "
        "batch"
    ),
}
