"""Titles and facts of the findings about DeepSpeed's engines."""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import count, ranks_text
from ddt_notebook.model import Fact, Finding

from .training_wording import setting_name

TITLES: dict[str, str | Callable[[Finding], str]] = {
    "checkpoint-tags-differ": lambda f: (
        f"{ranks_text(f.ranks)} saved one checkpoint under different tags: the parts of the "
        "optimizer's state are in different folders, and load_checkpoint looks in one"
    ),
    "checkpoint-loads-differ": (
        "{ranks} loaded checkpoints with different tags at one line, so they go on with different "
        "states"
    ),
    "gathered-change-lost": (
        "{ranks} changed parameters inside deepspeed.zero.GatheredParameters without a "
        "modifier_rank: the changes were lost when it ended"
    ),
    "engines-set-apart": lambda f: (
        f"{setting_name(f.values['setting'])} is not the same on all ranks whose engines average "
        "gradients together"
    ),
    "engine-buffers-apart": lambda f: (
        f"{ranks_text(f.ranks)} train with other values of "
        f"{count(f.values['buffers'], 'buffer')}: {', '.join(f.values['names'])}"
    ),
    "engine-parameters-in-another-order": (
        "the optimizers of {ranks} hold the parameters in different orders, and each rank updates "
        "a part of all of them joined: the parts belong to other parameters on the other ranks"
    ),
    "engine-parameters-apart": lambda f: (
        f"{ranks_text(f.ranks)} compute with other values of "
        f"{count(f.values['parameters'], 'parameter')}: {', '.join(f.values['names'])}"
    ),
    "engines-take-the-same": "the engines of {ranks} train on the same samples",
    "stages-read-apart": (
        "the first and the last stage of a pipeline, {ranks}, read different batches: the labels "
        "do not belong to the inputs"
    ),
    "sequences-read-apart": (
        "{ranks} attend to parts of the same sequences, but read different samples: the parts do "
        "not belong together"
    ),
    "loss-divided-twice": (
        "the loss is divided by {passes}, the steps of accumulation, and the engine divides it by "
        "{passes} again"
    ),
    "accumulated-twice": lambda f: (
        f"engine.step() was called after every {f.values['passes']} backward passes, but the "
        f"engine counts its calls: it updates the model after {f.values['all']} passes"
    ),
}
FACTS: dict[str, str | Callable[[Fact], str]] = {
    "stepped-with": "engine.step(){at} used these values",
    "buffers-not-broadcast": (
        "the values on {ranks} were not changed since deepspeed.initialize{at}, which makes "
        "parameters equal on all ranks, and no buffers"
    ),
    "parameters-divided-as-one": (
        "the engine{at} joins the parameters in the order of the optimizer's groups, and divides "
        "the result among {ranks}"
    ),
    "engine-parameters-before": (
        "they differed before step {step} of the engine{at}, which makes parameters equal on "
        "{ranks} as it is made"
    ),
    "loaded-by": "{ranks} loaded a checkpoint, and others did not",
    "samples-came-again": (
        "samples of the first batch came again on {ranks}: they are data, and not drawn for a pass"
    ),
    "micro-batches-apart": (
        "in each of the first {batches} micro-batches, both the inputs and the labels on {ranks} "
        "have the same shapes and other values"
    ),
    "attend-together": (
        "{ranks} form a sequence-parallel group, and no collective was seen that may bring samples "
        "from one to another"
    ),
    "loss-divided-at": "{line}: `{code}` divides it",
    "saved-under": "{ranks} saved under the tag {tag}",
    "loaded-tag": "{ranks} loaded the checkpoint {tag}",
    "gathered-changed": (
        "the gathered parameters of {ranks} held other values at the end of the context than at "
        "its begin, and each rank took up its own part as it was before"
    ),
    "step-without-backward": (
        "{ranks} called engine.step(){at} without a backward pass since the last update: there "
        "are no gradients"
    ),
    "loaded": "{ranks} loaded {path}{at}",
    "loaded-nothing": (
        "engine.load_checkpoint() found no checkpoint on {ranks}{at}: it returns None and raises "
        "nothing"
    ),
    "engines-given": lambda f: (
        f"the engine was called at {f.place.label if f.place is not None else 'one line'} with "
        + ", ".join(
            f"{given or 'none'} on rank {rank}"
            for rank, given in zip(f.ranks, f.values["given"], strict=False)
        )
        + ": other modules may have run there, whose gradients the other ranks lack"
    ),
    "zero-init-begun": (
        "{ranks} {builds|build} the model inside deepspeed.zero.Init{at}, where each layer "
        "broadcasts its parameters, and {others:ranks} without"
    ),
    "engine-accumulates": (
        "the engine has gradient_accumulation_steps = {passes}: it divides each loss by that, and "
        "every call of step() counts as one pass"
    ),
}
