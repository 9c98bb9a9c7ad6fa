"""Titles and sentences of the rules on training: data, values, checkpoints, placement, speed.

They are part of the tables of `wording`, which explains the templates.
"""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import agree, count, listing, rank_list, ranks_text, seconds
from ddt_notebook.model import Fact, Finding
from ddt_notebook.model.collective import call_label
from ddt_notebook.model.finding import Values

#: Number of parameter names in a sentence; the rest is "others". Chosen, not measured.
_MOST_NAMES = 3
#: Number of recorded indices (`rank.probes.loaders`); if all are there, more may follow.
_INDICES = 8


def label_of(values: Values) -> str:
    """Return ``all_reduce #17 (10 × float32)``, in Horovod with the name of the tensor."""
    label = call_label(
        values["op"], values.get("sequence"), values.get("shapes", ()), values.get("dtypes", ())
    )
    return label + of_tensor(values)


def of_tensor(values: Values) -> str:
    """Return `` of tensor weight``; empty if ranks do not meet by a tensor's name."""
    return f" of tensor {values['tensor']}" if "tensor" in values else ""


def _names(values: Values) -> str:
    """Return ``model.0.weight and model.0.bias``; of many names, the first ones and ``others``."""
    names = values["names"]
    more = ["others"] if len(names) > _MOST_NAMES else []
    return listing([*names[:_MOST_NAMES], *more])


def _written_unequally(fact: Fact) -> str:
    """Return ``train.py line 9: slow.lerp_(fast) ran 12 times on rank 0, never on rank 1``."""
    ran = [
        f"{count(times, 'time') if times else 'never'} on {ranks_text(ranks)}"
        for times, ranks in sorted(fact.values["times"], reverse=True)
    ]
    place = fact.place.label if fact.place is not None else "an unknown line"
    return f"{place} ran {', '.join(ran)}"


def _several(values: Values, one: str, several: str) -> str:
    """Return the verb form that fits the number of names."""
    return one if len(values["names"]) == 1 else several


def _indices(values: Values) -> str:
    """Return ``3, 4, 5``, with dots if more may follow."""
    indices = values["indices"]
    return ", ".join(map(str, indices)) + (", …" if len(indices) >= _INDICES else "")


#: What `fits-differ` compares, as `fit` names it.
_ARGUMENTS = {
    "steps": "steps_per_epoch",
    "epochs": "epochs",
    "callbacks": "callbacks",
    "validates": "validation_data",
}


def _given(value: object) -> str:
    if isinstance(value, tuple):
        return listing([str(one) for one in value]) if value else "none"
    return {True: "some", False: "none"}[value] if isinstance(value, bool) else str(value)


def _on_each(fact: Fact, texts: list[str]) -> str:
    """Return ``8 samples on rank 0, 4 samples on ranks 1 and 2``."""
    ranks: dict[str, list[int]] = {}
    for rank, text in zip(fact.ranks, texts, strict=True):
        ranks.setdefault(text, []).append(rank)
    return ", ".join(f"{text} on {ranks_text(those)}" for text, those in ranks.items())


# -- what happened -----------------------------------------------------------------------------


def _given_apart(finding: Finding) -> str:
    values, ranks = finding.values, ranks_text(finding.ranks)
    axis, what = values["axis"], values["what"]
    if axis in ("world", "training"):
        return f"{ranks} differ in {what}"
    together = f"one {axis}-parallel group" if axis != "model" else "one copy of the model"
    if what.startswith("parameter "):
        when, name = "begin" if values["number"] == 1 else "end", what.partition(" ")[2]
        return f"{ranks} of {together} {when} with different values of {name}"
    step = f" in step {values['number']}" if values["number"] > 1 and what != "tokens" else ""
    return f"{ranks} of {together} differ in {what}{step}"


def _given_alike(finding: Finding) -> str:
    axis, what = finding.values["axis"], finding.values["what"]
    return f"{ranks_text(finding.ranks)} of one {axis}-parallel group train on the same {what}"


def _loss_not_finite(finding: Finding) -> str:
    loss, backward = finding.values["loss"], finding.values["backward"]
    text = (
        f"the loss of {ranks_text(finding.ranks)} was {loss} in backward pass {backward}, when "
        "that of the other ranks was finite"
    )
    return f"{text}; {ranks_text(finding.waiting)} followed" if finding.waiting else text


def _replaced_layer(finding: Finding) -> str:
    values = finding.values
    return (
        f"{values['optimizer']} holds {count(values['stale'], 'parameter')} that the model no "
        f"longer has, and not {_names(values)}, which {_several(values, 'has', 'have')} gradients "
        f"and never {_several(values, 'changes', 'change')}"
    )


def _ranks_share_a_gpu(finding: Finding) -> str:
    idle = finding.values["idle"]
    return (
        f"{ranks_text(finding.ranks)} train on the same GPU, {finding.values['device']}; "
        f"{listing(idle)} {'is' if len(idle) == 1 else 'are'} idle"
    )


def _model(values: Values) -> str:
    """Return the model's name, or the name of the optimizer that holds its parameters."""
    return values["model"] or f"the model of {values['optimizer']}"


def _moment(values: Values, step: int) -> str:
    """Return ``after step 3``, or ``before the first step of optimizer``."""
    return f"after step {step}" if step else f"before the first step of {values['optimizer']}"


def _parted(finding: Finding) -> str:
    return f"the ranks are apart {_moment(finding.values, finding.values['step'])}"


def _setting(name: str) -> str:
    return "learning rate" if name == "lr" else name


def _settings_differ(finding: Finding) -> str:
    values = finding.values
    shown = listing(
        f"{fact.values['value']} on {ranks_text(fact.ranks)}"
        for fact in finding.facts
        if fact.kind == "setting"
    )
    return (
        f"the {_setting(values['setting'])} of {values['optimizer']} differs between ranks "
        f"({shown}): {_parted(finding)}"
    )


def _no_sync_left_on(finding: Finding) -> str:
    values = finding.values
    which = f"only {values['averaged']}" if values["averaged"] else "none"
    return (
        f"{which} of the {count(values['steps'], 'step')} of {values['optimizer']} took gradients "
        "that DDP had averaged: no_sync() was on in the last backward pass before the step"
    )


def _parameters_changed(finding: Finding) -> str:
    step = finding.values["step"]
    when = f"after step {step}" if step else "before the first step"
    return (
        f"parameters of {finding.values['model']} were changed outside the optimizer on "
        f"{ranks_text(finding.ranks)} {when}"
    )


def _some_not_reduced(finding: Finding) -> str:
    values = finding.values
    return (
        f"gradients of {_names(values)} are not reduced, but others are: the ranks' copies of "
        f"{_model(values)} drift apart"
    )


def _rank_lags(finding: Finding) -> str:
    others = finding.waiting
    return (
        f"{ranks_text(others)} {agree(others, 'waits', 'wait')} for {ranks_text(finding.ranks)} "
        f"in step after step: {finding.values['share']:.0%} of the time"
    )


def _uneven_steps(finding: Finding) -> str:
    apart = [fact for fact in finding.facts if fact.kind == "step-after-passes"]
    if apart:
        after = listing(
            f"{count(fact.values['passes'], 'backward pass')} on {ranks_text(fact.ranks)}"
            for fact in apart
        )
        return (
            f"{finding.values['optimizer']} took step {apart[0].values['step']} after {after}, and "
            "each rank left out steps of its own: the parameters differ between the ranks at the "
            "end"
        )
    taken = listing(
        f"{count(fact.values['steps'], 'step')} on {ranks_text(fact.ranks)}"
        for fact in finding.facts
        if fact.kind == "took-steps"
    )
    return (
        f"{finding.values['optimizer']} took {taken}, after as many forward and backward passes on "
        "every rank: the parameters differ between the ranks at the end"
    )


def _uneven_passes(finding: Finding) -> str:
    made = listing(
        f"{count(fact.values['passes'], 'backward pass')} on {ranks_text(fact.ranks)}"
        for fact in finding.facts
        if fact.kind == "passes-in-a-step"
    )
    return (
        f"each step of {finding.values['optimizer']} follows {made}: the mean over the ranks "
        "weighs their samples differently"
    )


#: Kind of a finding -> its title.
TITLES: dict[str, str | Callable[[Finding], str]] = {
    # values
    "loss-not-finite": _loss_not_finite,
    "loss-not-finite-everywhere": (
        "the loss was {loss} on every rank from backward pass {backward} on"
    ),
    "optimizer-of-another-copy": (
        "{optimizer} holds the parameters of another copy of {model}, which is trained: {model} "
        "never changes"
    ),
    "optimizer-of-a-replaced-layer": _replaced_layer,
    "submodules-in-another-order": (
        "the submodules of {model} are registered in another order on {ranks}: DDP averages "
        "gradients of different parameters"
    ),
    "trained-attribute": lambda f: (
        f"{_names(f.values)} {_several(f.values, 'is a plain attribute', 'are plain attributes')} "
        f"of {f.values['model']}, not {_several(f.values, 'a parameter', 'parameters')}, but "
        f"trained: DDP does not average {_several(f.values, 'its gradient', 'their gradients')}"
    ),
    # replicas
    "settings-differ": _settings_differ,
    "no-sync-left-on": _no_sync_left_on,
    "trained-past-ddp": (
        "{model} was trained past DDP: {optimizer} took gradients of a forward pass that did not "
        "go through the DDP model, so nothing averaged them"
    ),
    "averaging-incomplete": (
        "gradients of {model} were not averaged in step {step}: {parameters:parameter} had no part "
        "in the loss on {ranks}, and DDP waits for every one"
    ),
    "gradients-changed": lambda f: (
        f"gradients of {f.values['model']} were changed on some ranks after DDP had averaged "
        f"them: {_parted(f)}"
    ),
    "trained-but-not-averaged": (
        "DDP does not average the gradients of {names} of {model}, since they did not require "
        "gradients when it was built; the ranks' copies drift apart"
    ),
    "optimizer-state-differs": lambda f: (
        f"the state of {f.values['optimizer']} differs between ranks: {_parted(f)}"
    ),
    "parameters-changed": _parameters_changed,
    "part-not-wrapped": (
        "{model} is called in training and stepped by {optimizer}, but it is not in DDP: its "
        "gradients are not averaged, and its copies drift apart"
    ),
    "used-module-left-behind": lambda f: (
        f"{f.values['model']} is called in training on every rank, but "
        f"{ranks_text(f.values['others'])} changed it and {ranks_text(f.ranks)} did not"
    ),
    "used-module-apart": (
        "{model} is called in training on every rank, and each rank changed it in another way"
    ),
    "buffer-apart": (
        "each rank updates the buffer {name} of {model} from its own batches: the ranks train with "
        "different values of it"
    ),
    "plain-state-apart": (
        "each rank updates {names} of {object} from its own data: the ranks train with different "
        "values"
    ),
    "copy-statistics-apart": (
        "every rank evaluates {model} with running statistics of its own batches"
    ),
    "labels-of-another-rank": (
        "the labels on {ranks} count from 0: they name the samples of rank {owner} among those "
        "of all ranks"
    ),
    "evaluated-copy-left-behind": lambda f: (
        f"every rank evaluates {f.values['model']}, but {ranks_text(f.values['others'])} changed "
        f"it and {ranks_text(f.ranks)} did not"
    ),
    "evaluated-copy-apart": (
        "every rank evaluates {model}, and each rank changed it in another way"
    ),
    "evaluated-copy-starts-apart": (
        "every rank evaluates {model}, whose copies began with other values on each rank"
    ),
    "parameters-changed-unwatched": (
        "parameters of {model} were changed outside the optimizer on {ranks}: {name} differs at "
        "the end"
    ),
    "frozen-parameters-apart": (
        "the ranks hold different values of {names} of {model}: they set them outside the optimizer"
    ),
    "changed-by-hand": (
        "the ranks hold different values of {names} at the end, and equal values of the other "
        "parameters: beside the updates, each rank wrote something else"
    ),
    "apart-before-this-cell": (
        "the ranks' copies of {model} already differed when this run began to train"
    ),
    "model-not-wrapped": lambda f: (
        f"{_model(f.values)} is not wrapped in DDP: each rank trains its own copy, and they drift "
        "apart"
    ),
    "given-alike": _given_alike,
    "given-apart": _given_apart,
    "trained-without-strategy": (
        "{ranks} trained the same model without a strategy that connects workers: no gradient was "
        "exchanged"
    ),
    "pipeline-error-lost": (
        "{ranks} raised {type} in a function of the data pipeline, and TensorFlow took it for the "
        "end of the data: {message}"
    ),
    "graphs-differ": lambda f: (
        f"the graph of {f.values['graph']} has {count(f.values['most'], 'collective')} on other "
        f"ranks and {f.values['fewest']} on {ranks_text(f.ranks)}"
    ),
    "undivided-pipeline": lambda f: (
        "every worker trained with the same data: "
        + (
            "the function that makes the data set does not divide it"
            if f.values["policy"] == "function"
            else f"its auto-shard policy is {f.values['policy']}"
        )
    ),
    "batches-count-alike": lambda f: (
        f"workers read batches of {listing(list(map(str, sorted(set(f.values['sizes'])))))} "
        f"samples of {f.values['loader']}, "
        + ("and each batch counts alike" if f.values["alike"] else "which may count alike")
    ),
    "mean-losses-summed": lambda f: (
        f"{f.values['optimizer']} uses the sum of the gradients of {f.values['size']} replicas, "
        "and the loss of each is the mean over its own batch: the gradients are "
        f"{f.values['size']} times as large"
    ),
    "group-never-formed": lambda f: (
        f"{ranks_text(f.ranks)} trained {_model(f.values)} separately: no process group connects "
        "them"
    ),
    "some-gradients-not-reduced": _some_not_reduced,
    "added-after-exchange": lambda f: (
        "a backward pass adds each rank's own gradients to those that the ranks had exchanged: "
        f"their copies of {_model(f.values)} drift apart"
    ),
    "other-tensors-reduced": lambda f: (
        f"no gradient that {f.values['optimizer']} used was equal on all ranks, although tensors "
        "of the same shapes were reduced in every step: the ranks' copies of "
        f"{_model(f.values)} drift apart"
    ),
    "copies-start-apart": lambda f: (
        f"the ranks' copies of {_model(f.values)} differed before the first step of "
        f"{f.values['optimizer']}, and averaging their gradients keeps them apart"
    ),
    "scaler-skipped": (
        "the gradient scaler of {ranks} left out steps of {optimizer} that the others took: the "
        "ranks' parameters are apart"
    ),
    "schedule-over-early": (
        "{schedule} steps {size} times for each step of {optimizer}: the learning rate has come "
        "to the end of its schedule long before training ends"
    ),
    "resumed-without-state": (
        "{ranks} {resumes|resume} from {file} without the state of the {state} that it holds"
    ),
    "resumed-without-entries": lambda f: (
        f"{ranks_text(f.ranks)} {agree(f.ranks, 'resumes', 'resume')} from {f.values['file']} and "
        f"{agree(f.ranks, 'leaves', 'leave')} in it what it holds as "
        + listing([repr(key) for key in f.values["keys"]])
    ),
    "graphs-kept": (
        "{ranks} {keeps|keep} the graphs of past steps: something holds their losses or outputs, "
        "and memory grows in every step"
    ),
    "clipped-before-average": (
        "{ranks} {clips|clip} the gradients of {name} before they are averaged: this clips only "
        "the gradients of each rank's own batch"
    ),
    "gradients-swapped": (
        "{ranks} reduce gradients of one shape in different orders, so one sum reaches different "
        "parameters before step {step} of {optimizer}"
    ),
    "clipped-while-scaled": (
        "{ranks} {clips|clip} the gradients of {optimizer} while they are multiplied by the factor "
        "of the gradient scaler"
    ),
    "uneven-steps": _uneven_steps,
    "uneven-passes": _uneven_passes,
    "gradients-summed": lambda f: (
        f"{f.values['optimizer']} uses the sum of the gradients of {f.values['size']} ranks, not "
        f"their mean: its steps are {f.values['size']} times as large"
    ),
    "accumulated-loss-undivided": lambda f: (
        f"{f.values['optimizer']} uses the sum of the gradients of {f.values['passes']} "
        "micro-batches, not their mean: no loss is divided by their number"
    ),
    "rate-not-scaled": lambda f: (
        f"{f.values['optimizer']} uses {f.values['name']} = {f.values['rate']:.6g} unchanged, "
        f"although {f.values['size']} ranks make the batch {f.values['size']} times as large"
    ),
    "sum-printed-as-mean": "line {line} shows the sum over {size:rank} as a mean",
    "mean-divided-again": lambda f: (
        f"line {f.values['line']} divides by the number of ranks what {label_of(f.values)} has "
        "averaged"
    ),
    "loss-divided-by-world": (
        "line {line} divides the loss by {size:rank}, and DDP divides the gradients of {model} by "
        "this number again"
    ),
    # data
    "samplers-share-a-part": (
        "the samplers of {loader} do not divide the data by {size:rank}: several ranks get the "
        "same part of the data"
    ),
    "samplers-leave-a-part": (
        "the samplers of {loader} do not divide the data by {size:rank}: a part of the data goes "
        "to no rank"
    ),
    "same-samples": "{ranks} each trained on the same {samples:sample} of {loader}",
    "samplers-shuffle-apart": (
        "the samplers of {loader} shuffle with another seed on each of {ranks}: some samples go to "
        "several ranks and others to none"
    ),
    "splits-differ": (
        "{ranks} split the data of {loader} differently: each of them divides a different part"
    ),
    "shards-overlap": "{samples:sample} of {loader} went to more than one of {ranks}",
    "contents-overlap": (
        "{samples:sample} of {loader} went to more than one of {ranks}: each has a data set of its "
        "own, and these hold the same samples"
    ),
    "same-inputs": "{ranks} each train {model} on the same inputs",
    "same-slices": "{ranks} each train {model} on the same slices of a tensor",
    "replicated-apart": (
        "{ranks} differ in a tensor ({shape}) that a tensor-parallel layer takes as equal on them"
    ),
    "summed-apart": (
        "{ranks} give a model different inputs ({shape}), and its forward pass adds up activations "
        "over these ranks"
    ),
    "sampler-begins-again": (
        "{ranks} {resumes|resume} training, but the sampler of {loader} begins again at an early "
        "epoch: the order of the data repeats"
    ),
    "alone-in-ddp": (
        "each rank has {model} in a DDP whose group holds no other rank: each trains its own copy, "
        "and they drift apart"
    ),
    "updated-alone": lambda f: (
        f"each of {ranks_text(f.ranks)} updates {_names(f.values)} by its own gradients: the "
        "copies drift apart"
    ),
    "shards-leave-gaps": "{samples:sample} of {loader} went to no rank",
    "same-stream": "{ranks} each trained on the same samples of {loader}",
    "every-worker-reads-all": (
        "{loader} gave {ranks} every sample {workers} times, once from each worker"
    ),
    "same-order-in-every-epoch": (
        "{loader} gave {ranks} the samples in the same order in every epoch"
    ),
    "padding-counted": (
        "{loader} repeats {repeated:sample} to give {ranks} equal parts: the sum over the ranks "
        "counts {counted} samples, and there are {covered}"
    ),
    "mean-of-uneven-batches": lambda f: _wrong_mean(
        f, "the mean of the means of batches that differ in size"
    ),
    "mean-of-uneven-ranks": lambda f: _wrong_mean(
        f, "the mean of the means of ranks that evaluated different numbers of samples"
    ),
    "mean-of-uneven-parts": lambda f: (
        f"{f.values['op']} averages means of different numbers of values: it gives "
        f"{f.values['shown']:.5g}, and the mean of all values is {f.values['mean']:.5g}"
    ),
    "gathered-without-gradient": (
        "what {op} gathers in line {line} has no gradient, and a loss uses all of it as a constant"
    ),
    "sum-over-own-count": lambda f: _wrong_mean(
        f, "the sum of all ranks divided by what one rank has counted"
    ),
    "sum-over-own-rows": lambda f: (
        "a sum over the samples of all ranks is divided by the number of samples of one rank: the "
        f"mean is {f.values['ratio']:.3g} times too large"
    ),
    "sum-of-means": lambda f: _wrong_mean(f, "the sum of the means of the ranks"),
    "no-batch": "{loader} gave {ranks} no batch at all",
    # layers
    "batch-norm-statistics-differ": (
        "batch-norm statistics of {model} differ between ranks, and DDP is set not to copy them: "
        "each rank evaluates another model"
    ),
    "same-noise": "{function}() draws the same random numbers on every rank, in each step",
    "contrasts-within-ranks": (
        "the loss compares each sample with the {samples} of its own rank, and not with those of "
        "all {size} ranks"
    ),
    "loss-over-uneven-counts": (
        "the loss is a mean over another number of elements on each rank: the mean over the ranks "
        "weighs them differently"
    ),
    "same-dropout-masks": "dropout in {model} draws the same masks on every rank",
    "needless-search-for-unused": (
        "DDP looks for unused parameters of {model} in every step, but there were none"
    ),
    # checkpoints
    "written-at-the-same-time": "{ranks} write the same file, {file}, at the same time",
    "written-without-order": ("{ranks} write the same file, {file}, with no collective in between"),
    "read-before-written": (
        "{ranks} read {file} {early_s} before rank {writer} had written it, so what "
        "{it|they} read is older"
    ),
    "nothing-loaded": (
        "{ranks} loaded nothing into {model}: none of the {keys:key} fits, and strict=False "
        "accepts that"
    ),
    "names-of-the-wrapper": (
        "{file} holds the names of the wrapper (`{key}`): a model without DDP does not load it"
    ),
    # placement
    "ranks-share-a-gpu": _ranks_share_a_gpu,
    "loaded-onto-another-gpu": (
        "{ranks} loaded {file} onto {device}, a GPU that has no part of {its|their} model"
    ),
    # speed
    "rank-lags": _rank_lags,
    "loader-starves-ranks": lambda f: (
        f"{ranks_text(f.ranks)} waited for batches of {f.values['loader']} for "
        f"{f.values['share']:.0%} of the time"
    ),
    "small-buckets": lambda f: (
        f"{f.values['model']} sends its gradients in {f.values['buckets']} buckets of at most "
        f"{f.values['limit_mib']:.3g} MiB"
    ),
    "more-threads-than-processors": (
        "{size:rank} compute in {threads} threads on {processors:processor}"
    ),
    "small-collectives": lambda f: (
        f"{ranks_text(f.ranks)} issued {f.values['per_step']} {f.values['op']}s of "
        f"{f.values['size_bytes']:,} bytes in each step"
    ),
}


# -- what was seen -----------------------------------------------------------------------------


def _parameter_differs(fact: Fact) -> str:
    sides = zip(fact.values["names"], fact.ranks, strict=True)
    shown = listing(f"{name} on rank {rank}" for name, rank in sides)
    return f"parameter {fact.values['number']} is {shown}"


def _sampler_takes(fact: Fact) -> str:
    taken = zip(fact.ranks, fact.values["parts"], strict=True)
    return f"{fact.values['sampler']} takes " + listing(
        f"rank {rank} for {part} of {parts}" for rank, (part, parts) in taken
    )


def _sampler_seeds(fact: Fact) -> str:
    seeds = zip(fact.ranks, fact.values["seeds"], strict=True)
    return "seeds of the samplers: " + listing(f"{seed} on rank {rank}" for rank, seed in seeds)


def _undivided_loader(fact: Fact) -> str:
    values = fact.values
    return (
        f"{values['loader']}: {values['dataset']} of {values['universe']} with "
        f"{values['sampler'] or 'no sampler'} on each rank; in the last epoch "
        f"{values['covered']:,} different samples were handed out, {values['overlap']:,} of them "
        "to more than one rank"
    )


def _samples_handed_out(fact: Fact) -> str:
    each = zip(fact.values["samples"], fact.ranks, strict=True)
    return "samples handed out: " + listing(f"{number:,} to rank {rank}" for number, rank in each)


def _wrong_mean(finding: Finding, what: str) -> str:
    values = finding.values
    return (
        f"line {values['line']} shows {values['shown']:.5g}, {what}; the mean over all samples is "
        f"{values['mean']:.5g}"
    )


def _own_counts(fact: Fact) -> str:
    each = zip(fact.values["counts"], fact.ranks, strict=True)
    counts = listing(f"{number:,} on rank {rank}" for number, rank in each)
    return f"{fact.values['name']} is {counts}, and no collective adds it up"


def _samples_evaluated(fact: Fact) -> str:
    each = zip(fact.values["samples"], fact.ranks, strict=True)
    return "samples evaluated: " + listing(f"{number:,} by rank {rank}" for number, rank in each)


def _less_than_a_batch(fact: Fact) -> str:
    values = fact.values
    parts = f" in {count(values['parts'], 'part')}" if values["parts"] else ""
    return (
        f"{count(values['samples'], 'sample')}{parts}, in batches of {values['batch_size']}: with "
        "drop_last, less than one batch is left out"
    )


def _apart_since(fact: Fact) -> str:
    values = fact.values
    before = values["equal_at"]
    equal = f"equal {_moment(values, before)}, " if before is not None else ""
    sides = sorted(values["sides"], key=len, reverse=True)
    named = [ranks_text(side) + (" are equal" if len(side) > 1 else "") for side in sides]
    if len(sides) == 2 and len(sides[0]) > 1 and len(sides[1]) == 1:
        named[1] += " differs from them"
    elif all(len(side) == 1 for side in sides):
        named = [f"{ranks_text(sorted(rank for side in sides for rank in side))} differ"]
    return (
        f"{equal}apart {_moment(values, values['step'])}, first in {values['name']}; "
        f"{'; '.join(named)}"
    )


def _copies_part(fact: Fact) -> str:
    values = fact.values
    start = "equal" if values["equal_at_start"] else "not equal"
    since = f"after step {values['step']}" if values["step"] else "from the start"
    return f"the copies were {start} before the first step, and are apart {since}"


def _elements_differ(fact: Fact) -> str:
    values = fact.values
    return (
        f"at the end {values['name']} differs on {ranks_text(fact.ranks)} in "
        f"{values['differ']:,} of {count(values['elements'], 'element')}, by up to "
        f"{values['largest']:.3g}"
    )


def _written_alone(fact: Fact) -> str:
    text = f"on {ranks_text(fact.ranks)} alone the parameters were written to"
    if "step" not in fact.values:
        return text
    step = fact.values["step"]
    return f"{text} after step {step}" if step else f"{text} before the first step"


def _came_last(fact: Fact) -> str:
    values = fact.values
    return (
        f"{ranks_text(fact.ranks)} came last in {values['times']} of "
        f"{count(values['steps'], 'step')}; {ranks_text(values['others'])} waited idle for "
        f"{seconds(values['stood_s'])} of {seconds(values['window_s'])}"
    )


#: Kind of a fact -> its sentence.
FACTS: dict[str, str | Callable[[Fact], str]] = {
    # who trains together
    "ddp-averages": "DistributedDataParallel averages the gradients of {model} on {ranks}",
    "optimizer-averages": "the optimizer averages gradients in the backward pass on {ranks}",
    "deepspeed-averages": "DeepSpeed averages the gradients of its engine on {ranks}",
    "fsdp-reduces": "FSDP2 reduces the gradients of {model} on {ranks}",
    "cell-reduces-gradients": "the run reduces gradients ({calls:call} of all_reduce)",
    # values
    "inputs-finite": "on {ranks}, the model's inputs were all finite in that pass",
    "inputs-not-finite": "on {ranks}, the model's inputs held nan or inf in that pass",
    "parameters-finite": "on {ranks}, its parameters were all finite in that pass",
    "parameters-not-finite": "on {ranks}, its parameters held nan or inf in that pass",
    "loss-became": "the loss of {ranks} was {loss} from backward pass {backward} on",
    "loss-stayed-finite": "the loss of {ranks} was finite to the end",
    "steps-without-gradient": "no parameter of {optimizer} had a gradient in {steps:step}",
    "twin-has-gradients": (
        "those of {model} have the same shapes and gradients, and are not in {optimizer}"
    ),
    "stale-parameters": (
        "{stale:parameter} of {optimizer} had no gradient and are not part of the model"
    ),
    "in-no-optimizer": "{parameters:parameter} with a gradient are in no optimizer",
    "parameter-differs": _parameter_differs,
    "shapes-fit": "all shapes fit, so nothing fails",
    "attribute-has-gradient": lambda f: (
        f"{_names(f.values)}: gradients are required, and there were some"
    ),
    "not-among-parameters": lambda f: (
        f"{f.values['model']} has {count(f.values['parameters'], 'parameter')}, without "
        f"{_names(f.values)}"
    ),
    # replicas
    "apart-since": _apart_since,
    "elements-differ": _elements_differ,
    "setting": lambda f: (
        f"{_setting(f.values['setting'])} on {ranks_text(f.ranks)}: {f.values['value']}"
    ),
    "averaged-as-built": (
        "{names} had a gradient in a step, and are not among the parameters that DDP was built with"
    ),
    "inside-no-sync": "before {steps:step} the last forward pass was inside no_sync()",
    "no-sync-entered": "no_sync() was entered at {place}",
    "forward-through-ddp": "DDP saw a forward pass before {averaged} of {steps:step}",
    "inner-model-called": "the model inside DDP is called at {place}",
    "parameters-with-gradient": (
        "{with_gradient} of {trainable} parameters have a gradient on {ranks}"
    ),
    "ddp-reports-later": "DDP reports it only at the next forward pass, and there was none",
    "state-differs": "gradients and settings were equal, but {name} is not",
    "written-alone": _written_alone,
    "written-unequally": _written_unequally,
    "other-part-wrapped": "another part was put into DDP at {place}",
    "equal-at-first-call-only": (
        "its copies were equal when they were called first, and differ at the end"
    ),
    "equal-at-first-call": (
        "its copies were equal when they were called first, and differ at the end; neither DDP "
        "nor an optimizer holds it"
    ),
    "equal-before-first-pass": (
        "on all ranks, {names} had the same values before the first forward pass, and other values "
        "later"
    ),
    "apart-before-first-pass": (
        "on each rank, {names} had other values before the first forward pass; DDP makes only its "
        "own model equal"
    ),
    "updated-from-before": "it is updated at {place}, too",
    "no-optimizer-holds": "no optimizer holds them, so DDP exchanges no gradients of them",
    "other-optimizer-averages": (
        "all ranks had equal gradients in the steps of {optimizer}, which trains another part of it"
    ),
    "gradients-averaged-by-hand": (
        "the program reduced tensors of the shapes of all parameters in the {steps:step} that "
        "updated them"
    ),
    "equal-and-apart": (
        "all parameters were equal at first, and {equal:parameter} still were at the end"
    ),
    "values-apart": "the ranks hold different values of {names} at the end and at steps before",
    "never-sent": "no call of torch.distributed was given a tensor of the size of {name}",
    "saved-by-one": "{ranks} alone saves it at {place}",
    "ddp-equalises-once": "DDP makes replicas equal once, when it is built",
    "differ-at-the-end": "{parameters:parameter} differ at the end, first {name}",
    "nothing-sent": "no gradient and no parameter was sent in {steps:step} of {optimizer}",
    "shuffled-before-share": (
        "each worker shuffles all data in an order of its own, and takes its share of that"
    ),
    "strategy-sums-gradients": (
        "the graph takes the mean of the loss over the batch, and nothing scales it or its "
        "gradients before the strategy sums them"
    ),
    "updates-of-one-replica": "every update of the optimizer was that of one replica",
    "given": lambda f: f"{f.values['what']} is {f.values['value']} on {ranks_text(f.ranks)}",
    "pipelines-equal": lambda f: (
        "the pipelines of all workers are equal, with all their constants"
        + ("; each worker draws its own order" if f.values["shuffled"] else "")
    ),
    "batch-sizes": lambda f: (
        "a batch has "
        + _on_each(f, [count(size, "sample") for size in f.values["sizes"]])
        + ": if batches count alike, the samples of the smaller ones weigh more"
    ),
    "engines-differ": lambda f: (
        f"the engines differ in {f.values['setting']}: " + _on_each(f, list(f.values["given"]))
    ),
    "run-went-on": "the run ended without an error, with fewer samples than the data set has",
    "only-in-graph-of": "only the graph of {ranks} has the collective of {place}",
    "stopped-training": "{ranks} ended fit early, by stop_training at {place}",
    "fits-differ": lambda f: (
        f"fit was given {_ARGUMENTS[f.values['argument']]} "
        + _on_each(f, [_given(one) for one in f.values["given"]])
    ),
    "no-group-formed": "{ranks} never called init_process_group, and no library called it",
    "copies-part": _copies_part,
    "sampler-divides": (
        "a DistributedSampler divides the data: each copy learns from its part only"
    ),
    "ranks-take-parts": (
        "each rank takes a part of the data by its number: each copy learns from its part only"
    ),
    "gradients-differed": lambda f: (
        f"at {count(f.values['steps'], 'sampled step')} the gradients of {_names(f.values)} "
        "differed between the ranks"
    ),
    "gradients-kept": lambda f: (
        f"at {count(f.values['steps'], 'sampled step')} each rank used its own gradients of "
        f"{_names(f.values)}, as its backward pass had computed them"
    ),
    "pass-after-exchange": (
        "at {steps:sampled step} the gradients were equal on all ranks before the last backward "
        "pass, and differed after it"
    ),
    "gradients-agreed": "{agreed} of {watched} watched gradients agreed",
    "apart-throughout": "apart before the first step and at the end, first in {name}",
    "gradients-equal": "at {steps:sampled step} all watched gradients were equal",
    "no-broadcast": "no parameter was broadcast in this run",
    "left-out-by-scaler": (
        "on {ranks} the gradient scaler found infinite gradients and left out {steps:step}"
    ),
    "schedule-steps": lambda f: (
        f"{f.values['schedule']} took {count(f.values['scheduled'], 'step')}, the optimizer "
        f"{f.values['steps']:,}"
        + (f"; the schedule has {f.values['end']:,}" if f.values["end"] is not None else "")
    ),
    "scheduler-stepped": "its schedulers took {steps:step} on {ranks}",
    "file-holds-state": (
        "the file holds the state of the {state}, and its load_state_dict was not called"
    ),
    "nothing-took-over": (
        "when training began, no object held this state, while others of the file had been taken "
        "over"
    ),
    "counts-on": "the program counts on from a number in the file",
    "took-state-over": "{ranks} took it over",
    "graphs-alive": "the graphs of {graphs} of the first 32 backward passes were alive at once",
    "clipped-then-combined": (
        "at {steps:sampled step} the gradients of the step were those that the ranks had clipped, "
        "combined afterwards"
    ),
    "clipped-in-no-sync": "gradients were clipped {times} times after passes inside no_sync()",
    "used-the-sum": (
        "the gradients that {optimizer} used were the sum of those of the ranks, in each sampled "
        "step"
    ),
    "inputs-from": "the inputs come from {place}",
    "taken-from": "the inputs are parts of {name}, data that the program holds",
    "random-states-apart": (
        "torch's random states differ between the ranks, so the inputs are not drawn from them"
    ),
    "loss-averaged-by-ddp": "the loss is a mean over the rank's own samples",
    "sum-at-another": lambda f: (
        f"the gradient of {f.values['here']} on rank {f.ranks[0]} is that of {f.values['there']} "
        f"on rank {f.ranks[1]}"
    ),
    "not-unscaled": "no unscale_() came before {steps:step} for which gradients were clipped",
    "loss-is-mean": "the loss is a mean over the rank's own samples, and its graph divides no more",
    "gradients-as-accumulated": "the step used the gradients as the backward passes left them",
    "rate-never-rose": lambda f: f"the rate never rose above {f.values['rate']:.6g} in this run",
    "batches-in-a-step": ("DDP averages the gradients of {size:rank}: a step follows {size:batch}"),
    "summed-at": "summed at {place}",
    "tensors-reduced-at": "tensors of such shapes are reduced at {place}",
    "never-divided": "nothing divides it",
    "averaged-at": "averaged over the ranks at {place}",
    # data
    "sampler-takes": _sampler_takes,
    "sampler-seeds": _sampler_seeds,
    "trained-and-evaluated": (
        "trained on by one rank and evaluated on by another: {samples:sample}"
    ),
    "split-at": "split at {place}",
    "share-chosen": "the rank's share of the data set is computed at {place}",
    "loader-made": "the loader was made at {place}",
    "sampler-made": "the sampler was made at {place}",
    "handed-out": (
        "of {universe} samples {covered} were handed out, {overlap} of them to more than one rank"
    ),
    "undivided-loader": _undivided_loader,
    "on-several-ranks": lambda f: f"on several ranks: index {_indices(f.values)}",
    "on-no-rank": lambda f: f"on no rank: index {_indices(f.values)}",
    "samples-compared": lambda f: (
        f"of the first samples of each rank ({listing(list(map(str, f.values['samples'])))}), "
        "none is repeated on its own rank"
    ),
    "inputs-equal": "the first {passes:input} of the model were equal on all ranks",
    "cut-from-part": lambda f: (
        f"all inputs were cut from the same {f.values['share']:.0%} of the tensor's memory"
    ),
    "activations-summed-at": (
        "{place} adds up one row for each sample of the batch: partial results of one batch"
    ),
    "losses-apart": "the losses of {ranks} differ, too",
    "declared-equal": (
        "the placement Replicate says that it is equal on {ranks}, and nothing checks that"
    ),
    "epochs-of-sampler-and-file": (
        "{sampler} shuffles by its seed and its epoch: set_epoch({set}) was called, and the "
        "checkpoint is of epoch {saved}"
    ),
    "resumed-at": "{file} was loaded at {place}",
    "updated-without-sending": (
        "no gradient and no parameter was sent in {steps:backward pass}, and no optimizer has "
        "these parameters"
    ),
    "samples-handed-out": _samples_handed_out,
    "samples-evaluated": _samples_evaluated,
    "mean-of": "{ranks} {gives|give} the mean of {counted:value}",
    "mean-taken-at": "the result is taken as the mean at {place}",
    "reduced-at": "summed over the ranks at {place}",
    "own-counts": _own_counts,
    "gradient-carried": (
        "the tensor that each rank passed had a gradient, which does not flow through the call"
    ),
    "gradient-stopped": "the program itself ended the gradient before the call",
    "constant-in-loss": (
        "the loss of the backward pass at {place} holds all gathered parts without gradient, also "
        "the rank's own"
    ),
    "schedules-by": lambda f: (
        f"the scheduler of {ranks_text(f.ranks)} is given {f.values['value']:.5g}"
    ),
    "added-up": "{name} is added up in the loop at {place}",
    "samples-begin-alike": (
        "the first {samples} samples of the last epoch are equal, in the same order"
    ),
    "batches-begin-alike": (
        "batches come in groups of {workers} that begin with the same sample, and there are "
        "{workers:worker}"
    ),
    "epochs-begin-alike": lambda f: (
        f"epochs {rank_list(f.values['epochs'])}"
        f"{' (of all cells)' if f.values['of_all_cells'] else ''} begin alike: index "
        f"{_indices(f.values)}"
    ),
    "sampler-epoch": (
        "{sampler} shuffles by its seed and its epoch, and its epoch was always {epochs}"
    ),
    "passes-decided": "their number is decided at {place}",
    "set-epoch-called": "set_epoch is called at {place}, always with the same number",
    "less-than-a-batch": _less_than_a_batch,
    # layers
    "statistics-differ": "{statistics:statistic} differ, first {name}",
    "evaluated-at": "evaluated at {place}",
    "choices": "each of the {samples} samples is compared with {choices} samples of all ranks",
    "own-choices": (
        "each of the {samples} samples is compared with these {samples}; all ranks together have "
        "{whole}"
    ),
    "nothing-gathered-for-loss": "what they are compared with differs between the ranks",
    "mean-over": "the first loss of {ranks} is a mean over {counted} elements",
    "mean-of-ranks-by-ddp": (
        "DDP averages the gradients of the ranks as if they stood for equally many"
    ),
    "drawn-alike": "{function}() drew equal numbers ({shape}) on all ranks in step after step",
    "batches-apart": "their loaders brought different batches",
    "same-choices": "these are the same on all ranks and in the same order",
    "same-labels": "the labels are the same on all ranks",
    "backward-at": "the backward pass begins at {place}",
    "broadcast-buffers-off": "broadcast_buffers=False",
    "put-into-ddp": "the model was put into DDP at {place}",
    "same-random-state": "torch's random state was equal on all ranks at the first forward pass",
    "all-parameters-used": "all parameters were used at {steps:sampled step} on every rank",
    # checkpoints
    "file": "the file is {path}",
    "no-collective-between": "no collective lies between the two",
    "written-at": "{ranks} {writes|write} it at {place}",
    "keys-differ": lambda f: (
        f"the first key is `{f.values['unexpected']}`"
        + (f" where the model has `{f.values['missing']}`" if f.values["missing"] else "")
    ),
    "saved-at": "saved at {place}",
    # placement
    "parameters-there": "{ranks} {has|have} the parameters there",
    "tensors-elsewhere": "its tensors are on {device}, but the model of {ranks} is not",
    # speed
    "came-last": _came_last,
    "runs-alone": "only {ranks} {runs|run} {place}",
    "larger-batches": lambda f: (
        f"its batches of {f.values['loader']} have {f.values['samples']} samples, those of the "
        f"others {f.values['others_samples']}; it computed for {seconds(f.values['longer_s'])} "
        "longer than the others"
    ),
    "computed-longer": "it computed for {longer_s} longer than the others",
    "waited-for-data": "its loaders kept it waiting for {longer_s} longer than those of the others",
    "slept": lambda f: (
        "it neither computed nor waited for a processor meanwhile: it slept, or waited for a file "
        f"or a connection, {seconds(f.values['each_s'])} in each step"
    ),
    "waited-for-batches": "{ranks} waited {waited_s} of {lasted_s} for {batches:batch}",
    "bucket-limit": lambda f: (
        f"bucket_cap_mb={f.values['limit_mib']:.3g}: each step waits for {f.values['buckets']} "
        "collectives instead of a few large ones"
    ),
    "threads-of-torch": "torch.get_num_threads() is up to {threads} on {ranks}",
    "calls-took": lambda f: (
        f"{f.values['calls']:,} calls in {f.values['steps']} steps took "
        f"{seconds(f.values['took_s'])}"
    ),
}
