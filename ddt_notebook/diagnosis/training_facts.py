"""Sentences for the facts of the rules on training: data, values, checkpoints, placement, speed.

They are part of the tables of `wording`, which explains the templates.
"""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import count, listing, rank_list, ranks_text, seconds
from ddt_notebook.model import Fact
from ddt_notebook.model.finding import Values

from .training_wording import moment, named, setting_name

#: Number of recorded indices (`rank.probes.loaders`); if all are there, more may follow.
_INDICES = 8


def _written_unequally(fact: Fact) -> str:
    """Return ``train.py line 9: slow.lerp_(fast) ran 12 times on rank 0, never on rank 1``."""
    ran = [
        f"{count(times, 'time') if times else 'never'} on {ranks_text(ranks)}"
        for times, ranks in sorted(fact.values["times"], reverse=True)
    ]
    place = fact.place.label if fact.place is not None else "an unknown line"
    return f"{place} ran {', '.join(ran)}"


def _indices(values: Values) -> str:
    """Return ``3, 4, 5``, with dots if more may follow."""
    indices = values["indices"]
    return ", ".join(map(str, indices)) + (", …" if len(indices) >= _INDICES else "")


#: What `fits-differ` compares, as `fit` names it.
_ARGUMENTS = {
    "steps": "was given steps_per_epoch",
    "epochs": "was given epochs",
    "epochs_left": "began anew or where a backup ended, with epochs to make:",
    "callbacks": "was given callbacks",
    "validates": "was given validation_data",
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


# -- what was seen -----------------------------------------------------------------------------


def _parameter_differs(fact: Fact) -> str:
    sides = zip(fact.values["names"], fact.ranks, strict=True)
    shown = listing(f"{name} on rank {rank}" for name, rank in sides)
    return f"parameter {fact.values['number']} is {shown}"


def _held_sizes(fact: Fact) -> str:
    """Return ``their data sets have 24 samples on rank 0 and 23 on rank 1``."""
    first, *others = zip(fact.ranks, fact.values["sizes"], strict=True)
    texts = [f"{count(first[1], 'sample')} on rank {first[0]}"]
    texts += (f"{size} on rank {rank}" for rank, size in others)
    return f"their data sets have {listing(texts)}"


def _sampler_takes(fact: Fact) -> str:
    taken = zip(fact.ranks, fact.values["parts"], strict=True)
    return f"{fact.values['sampler']} takes " + listing(
        f"rank {rank} for {part} of {parts}" for rank, (part, parts) in taken
    )


def _sampler_seeds(fact: Fact) -> str:
    seeds = zip(fact.ranks, fact.values["seeds"], strict=True)
    return "seeds of the samplers: " + listing(f"{seed} on rank {rank}" for rank, seed in seeds)


def _seeded_with(fact: Fact) -> str:
    """Return ``random numbers were seeded at cell[3] line 4, with 7 on rank 0 and 8 on rank 1``."""
    seeds = zip(fact.ranks, fact.values["seeds"], strict=True)
    label = fact.place.label if fact.place is not None else "an unknown line"
    with_ = listing(f"{seed} on rank {rank}" for rank, seed in seeds)
    return f"random numbers were seeded at {label}, with {with_}"


def _sampler_epochs(fact: Fact) -> str:
    epochs = zip(fact.ranks, fact.values["epochs"], strict=True)
    return "epochs of the samplers: " + listing(f"{epoch} on rank {rank}" for rank, epoch in epochs)


def _undivided_loader(fact: Fact) -> str:
    values = fact.values
    made = f", made at {fact.place.label}" if fact.place is not None else ""
    return (
        f"{values['loader']}{made}: {values['dataset']} of {values['universe']} with "
        f"{values['sampler'] or 'no sampler'} on each rank; in the last epoch "
        f"{values['covered']:,} different samples were handed out, {values['overlap']:,} of them "
        "to more than one rank"
    )


def _samples_handed_out(fact: Fact) -> str:
    each = zip(fact.values["samples"], fact.ranks, strict=True)
    return "samples handed out: " + listing(f"{number:,} to rank {rank}" for number, rank in each)


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
    equal = f"equal {moment(values, before)}, " if before is not None else ""
    sides = sorted(values["sides"], key=len, reverse=True)
    named = [ranks_text(side) + (" are equal" if len(side) > 1 else "") for side in sides]
    if len(sides) == 2 and len(sides[0]) > 1 and len(sides[1]) == 1:
        named[1] += " differs from them"
    elif all(len(side) == 1 for side in sides):
        named = [f"{ranks_text(sorted(rank for side in sides for rank in side))} differ"]
    return (
        f"{equal}apart {moment(values, values['step'])}, first in {values['name']}; "
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
    "averaged-now-and-then": "the program averages tensors of {model} on {ranks} now and then",
    "ddp-averages": "DistributedDataParallel averages the gradients of {model} on {ranks}",
    "optimizer-averages": "the optimizer averages gradients in the backward pass on {ranks}",
    "deepspeed-averages": "DeepSpeed averages the gradients of its engine on {ranks}",
    "fsdp-reduces": "FSDP reduces the gradients of {model} on {ranks}",
    "cell-reduces-gradients": "the run reduces gradients ({calls:call} of all_reduce)",
    # values
    "inputs-finite": "on {ranks}, the model's inputs were all finite in that pass",
    "inputs-not-finite": "on {ranks}, the model's inputs held nan or inf in that pass",
    "parameters-finite": "on {ranks}, its parameters were all finite in that pass",
    "parameters-not-finite": "on {ranks}, its parameters held nan or inf in that pass",
    "memory-not-written": (
        "of {parameters:parameter} that got memory without values there and were trained, nobody "
        "wrote to {unwritten} before the first step"
    ),
    "without-initial-values": (
        "{place} gave {unwritten:parameter} of {module} memory, and nobody wrote to them before "
        "the first step"
    ),
    "memory-held-not-finite": "on {ranks}, that memory held nan or inf",
    "memory-held-anything": "on {ranks}, that memory held what was in it before",
    "memory-held-zeros": "on {ranks}, only zeros were found in that memory, as in a fresh page",
    "loss-became": "the loss of {ranks} was {loss} from backward pass {backward} on",
    "raised-after": "{ranks} then raised {error} at {place}",
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
        f"{named(f.values)}: gradients are required, and there were some"
    ),
    "not-among-parameters": lambda f: (
        f"{f.values['model']} has {count(f.values['parameters'], 'parameter')}, without "
        f"{named(f.values)}"
    ),
    # replicas
    "apart-since": _apart_since,
    "elements-differ": _elements_differ,
    "setting": lambda f: (
        f"{setting_name(f.values['setting'])} on {ranks_text(f.ranks)}: {f.values['value']}"
    ),
    "setting-assigned": lambda f: (
        f"{setting_name(f.values['setting'])} is assigned at "
        + (f.place.label if f.place is not None else "an unknown line")
    ),
    "averaged-as-built": (
        "{names} had a gradient in a step, and are not among the parameters that DDP was built with"
    ),
    "inside-no-sync": "before {steps:step} the last forward pass was inside no_sync()",
    "no-sync-entered": "no_sync() was entered at {place}",
    "synchronisation-set": "whether DDP averages in a backward pass is set at {place}",
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
    "apart-at-first-call": (
        "its copies differed when they were called first; neither DDP nor an optimizer holds it"
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
    "written-in-place": "it is written in place at {place}",
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
    "samples-read": lambda f: (
        f"the first samples of {ranks_text(f.ranks)} are "
        + ", ".join(map(str, f.values["first"][:_INDICES]))
    ),
    "given-at": "{name} comes from {place} on {ranks}",
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
        f"the engines{f' made at {f.place.place}' if f.place is not None else ''} differ in "
        f"{f.values['setting']}: " + _on_each(f, list(f.values["given"]))
    ),
    "run-went-on": "the run ended without an error, with fewer samples than the data set has",
    "only-in-graph-of": "only the graph of {ranks} has the collective of {place}",
    "stopped-training": "{ranks} ended fit early, by stop_training at {place}",
    "fits-differ": lambda f: (
        f"fit {_ARGUMENTS[f.values['argument']]} "
        + _on_each(f, [_given(one) for one in f.values["given"]])
    ),
    "counts-one-process": "the library counts 1 process on {ranks}, and no gradient was sent",
    "no-group-formed": "{ranks} never called init_process_group, and no library called it",
    "copies-part": _copies_part,
    "sampler-divides": (
        "a DistributedSampler divides the data: each copy learns from its part only"
    ),
    "ranks-take-parts": (
        "each rank takes a part of the data by its number: each copy learns from its part only"
    ),
    "gradients-differed": lambda f: (
        f"at {count(f.values['steps'], 'sampled step')} the gradients of {named(f.values)} "
        "differed between the ranks"
    ),
    "gradients-kept": lambda f: (
        f"at {count(f.values['steps'], 'sampled step')} each rank used its own gradients of "
        f"{named(f.values)}, as its backward pass had computed them"
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
    "equal-after-exchange": "the gradients of step {step} were equal on all ranks before that",
    "clipped-them": "{ranks} clipped them",
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
    "named-as-mean": "the function that reduces them is called {function}, and nothing is divided",
    "batch-is-shared": (
        "the ranks share the batch of one process, so that steps should be as large as its own"
    ),
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
    "sampler-epochs": _sampler_epochs,
    "epoch-set-at": "set_epoch is called at {place}",
    "trained-and-evaluated": (
        "trained on by one rank and evaluated on by another: {samples:sample}"
    ),
    "split-at": "split at {place}",
    "seeded-at": "{ranks} took this seed at {place}",
    "seeded-with": _seeded_with,
    "held-apart": lambda f: (
        "their data sets hold the same samples in another order"
        if f.values["alike"]
        else f"of {f.values['compared']} samples of each rank's data set that were compared, "
        f"{f.values['common']} lie at another place of another rank's"
    ),
    "held-sizes": _held_sizes,
    "numbered-apart": lambda f: (
        f"the values of {', '.join(f.values['names'])} that are equal on one rank are equal on the "
        "others, too, and yet are other values there: each rank has its own numbers for them"
    ),
    "order-of-set": (
        "{place} takes the order in which a set holds its items: with texts it is another one in "
        "each process"
    ),
    "share-chosen": "the rank's share of the data set is computed at {place}",
    "loader-made": "the loader was made at {place}",
    "sampler-made": "the sampler was made at {place}",
    "own-order": "the order comes from {place}",
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
    "model-called": "the model is called at {place}",
    "inputs-moved": (
        "DDP moves the inputs to {device}, since device_ids says so at {place}; its parameters are "
        "on {devices}"
    ),
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
    "averaged-in-loop": "what each rank gives is a mean, divided at {place}",
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
    "exchanged-at": "{op} in {place} carries it from rank to rank",
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
