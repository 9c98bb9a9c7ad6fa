"""Titles and facts of the findings about DeepSpeed's engines."""

from __future__ import annotations

from collections.abc import Callable

from ddt_notebook.formatting import ranks_text
from ddt_notebook.model import Fact, Finding

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
    "accumulated-twice": lambda f: (
        f"engine.step() was called after every {f.values['passes']} backward passes, but the "
        f"engine counts its calls: it updates the model after {f.values['all']} passes"
    ),
}
FACTS: dict[str, str | Callable[[Fact], str]] = {
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
    "zero-init-begun": (
        "{ranks} {builds|build} the model inside deepspeed.zero.Init{at}, where each layer "
        "broadcasts its parameters, and {others:ranks} without"
    ),
    "engine-accumulates": (
        "the engine has gradient_accumulation_steps = {passes}: it divides each loss by that, and "
        "every call of step() counts as one pass"
    ),
}
