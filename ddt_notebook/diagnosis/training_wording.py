"""Titles of the rules on training: data, values, checkpoints, placement, speed.

They are part of the tables of `wording`, which explains the templates.
"""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import agree, count, listing, ranks_text
from ddt_notebook.model import Finding
from ddt_notebook.model.agreements import BATCH
from ddt_notebook.model.collective import call_label
from ddt_notebook.model.finding import Values

#: Number of parameter names in a sentence; the rest is "others". Chosen, not measured.
_MOST_NAMES = 3


def label_of(values: Values) -> str:
    """Return ``all_reduce #17 (10 × float32)``, in Horovod with the name of the tensor."""
    label = call_label(
        values["op"], values.get("sequence"), values.get("shapes", ()), values.get("dtypes", ())
    )
    return label + of_tensor(values)


def of_tensor(values: Values) -> str:
    """Return `` of tensor weight``; empty if ranks do not meet by a tensor's name."""
    return f" of tensor {values['tensor']}" if "tensor" in values else ""


def named(values: Values) -> str:
    """Return ``model.0.weight and model.0.bias``; of many names, the first ones and ``others``."""
    names = values["names"]
    more = ["others"] if len(names) > _MOST_NAMES else []
    return listing([*names[:_MOST_NAMES], *more])


def _several(values: Values, one: str, several: str) -> str:
    """Return the verb form that fits the number of names."""
    return one if len(values["names"]) == 1 else several


# -- what happened -----------------------------------------------------------------------------


def _given_apart(finding: Finding) -> str:
    values, ranks = finding.values, ranks_text(finding.ranks)
    axis, what = values["axis"], values["what"]
    given = [fact.ranks for fact in finding.facts if fact.kind == "given"]
    few = min(given, key=len, default=())
    if len(given) == 2 and 2 * len(few) < len(finding.ranks):
        who, differ = ranks_text(few), f"differ{'s' if len(few) == 1 else ''} from the others"
    else:
        who, differ = ranks, "differ"
    if axis in ("world", "training"):
        return f"{who} {differ} in {what}"
    together = f"one {axis}-parallel group" if axis != "model" else "one copy of the model"
    if what.startswith("parameter "):
        when, name = "begin" if values["number"] == 1 else "end", what.partition(" ")[2]
        return f"{ranks} of {together} {when} with different values of {name}"
    step = f" in step {values['number']}" if values["number"] > 1 and what not in BATCH else ""
    return f"{who} of {together} {differ} in {what}{step}"


def _given_alike(finding: Finding) -> str:
    axis, what = finding.values["axis"], finding.values["what"]
    together = f"{ranks_text(finding.ranks)} of one {axis}-parallel group"
    if what.startswith("parameter "):
        others = finding.values["others"]
        more = f" and {count(others, 'other parameter')}" if others else ""
        return f"{together} hold the same values as their parts of {what.partition(' ')[2]}{more}"
    return f"{together} train on the same {what}"


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
        f"longer has, and not {named(values)}, which {_several(values, 'has', 'have')} gradients "
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


def moment(values: Values, step: int) -> str:
    """Return ``after step 3``, or ``before the first step of optimizer``."""
    return f"after step {step}" if step else f"before the first step of {values['optimizer']}"


def _parted(finding: Finding) -> str:
    return f"the ranks are apart {moment(finding.values, finding.values['step'])}"


def setting_name(name: str) -> str:
    """Return how a setting of an optimizer is called in a sentence."""
    return "learning rate" if name == "lr" else name


def _settings_differ(finding: Finding) -> str:
    values = finding.values
    shown = listing(
        f"{fact.values['value']} on {ranks_text(fact.ranks)}"
        for fact in finding.facts
        if fact.kind == "setting"
    )
    return (
        f"the {setting_name(values['setting'])} of {values['optimizer']} differs between ranks "
        f"({shown}): {_parted(finding)}"
    )


def _no_sync_left_on(finding: Finding) -> str:
    values = finding.values
    which = f"only {values['averaged']}" if values["averaged"] else "none"
    by_hand = any(fact.kind == "synchronisation-set" for fact in finding.facts)
    off = "require_backward_grad_sync was False" if by_hand else "no_sync() was on"
    return (
        f"{which} of the {count(values['steps'], 'step')} of {values['optimizer']} took gradients "
        f"that DDP had averaged: {off} in the last backward pass before the step"
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
        f"gradients of {named(values)} are not reduced, but others are: the ranks' copies of "
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
    end = "the parameters differ between the ranks at the end"
    if not finding.values.get("apart", True):
        end = "the parameters are still equal, since no step changed a value"
    return (
        f"{finding.values['optimizer']} took {taken}, after as many forward and backward passes on "
        f"every rank: {end}"
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
    "gave-not-finite": lambda f: (
        f"{ranks_text(f.ranks)} gave {f.values['op']} a value that is not finite, and the loss "
        f"was {f.values['loss']} in backward pass {f.values['backward']}"
    ),
    "loss-not-finite-everywhere": (
        "the loss was {loss} on every rank from backward pass {backward} on"
    ),
    "parameters-not-initialised": lambda f: (
        f"{named(f.values)} of {f.values['module']} "
        f"{_several(f.values, 'has', 'have')} no initial value: nobody wrote to "
        f"{_several(f.values, 'its', 'their')} memory before the first step"
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
        f"{named(f.values)} {_several(f.values, 'is a plain attribute', 'are plain attributes')} "
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
    "used-module-began-apart": (
        "{model} is called in training on every rank and never changes, and each rank has other "
        "values of it"
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
    "outside-engine": (
        "the parameters of {optimizer} are in no engine of DeepSpeed: each rank steps its own copy "
        "with its own gradients, and they drift apart"
    ),
    "stage-loaders-differ": "{ranks} are stages of one model and read other samples",
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
    "counted-alone": lambda f: (
        f"{f.values['library']} takes each of {f.values['size']} ranks for the only process: "
        "each trains a model of its own on all of the data"
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
    "copies-start-apart-by-hand": (
        "the ranks held other values of {names} before the first update, and averaging their "
        "gradients keeps them apart"
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
    "clipped-apart": (
        "the ranks clipped the gradients of {model} differently after they had exchanged them: "
        "the parameters are apart after step {step}"
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
    "sampler-epochs-differ": (
        "the samplers of {loader} shuffle for another epoch on each of {ranks}: some samples go to "
        "several ranks and others to none"
    ),
    "orders-differ": (
        "the sampler of {loader} has another order on each of {ranks}, and each takes its part of "
        "that: some samples go to several ranks and others to none"
    ),
    "data-differ": (
        "{ranks} give {loader} the same data in another order or selection: each of them divides "
        "another list"
    ),
    "data-sizes-differ": (
        "the data sets that {ranks} give {loader} have other sizes: the parts of the ranks do not "
        "belong together"
    ),
    "parts-of-samples-differ": lambda f: (
        f"{ranks_text(f.ranks)} give {f.values['loader']} the same samples with other "
        f"{', '.join(f.values['names'])}: they train towards different results"
    ),
    "splits-differ": (
        "{ranks} split the data of {loader} differently: each of them divides a different part"
    ),
    "shards-overlap": "{samples:sample} of {loader} went to more than one of {ranks}",
    "divided-in-other-orders": (
        "{samples:sample} of {loader} went to more than one of {ranks}, although TensorFlow "
        "divides the data: each worker has it in an order of its own and takes its part of that"
    ),
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
        f"each of {ranks_text(f.ranks)} updates {named(f.values)} by its own gradients: the "
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
    "own-sum-over-all": lambda f: _wrong_mean(
        f, "the sum of one rank divided by what all ranks have counted"
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


def _wrong_mean(finding: Finding, what: str) -> str:
    values = finding.values
    return (
        f"line {values['line']} shows {values['shown']:.5g}, {what}; the mean over all samples is "
        f"{values['mean']:.5g}"
    )
