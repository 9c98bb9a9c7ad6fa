"""DeepSpeed, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: What a rank records beside its collectives: an engine with its settings, as JSON in place of a
#: reduce operation, before it communicates; the same engine when it is ready, with its ranks; and
#: the begin of a checkpoint, with its tag there.
ENGINE, ENGINE_READY = "deepspeed.initialize", "deepspeed.initialize's end"
SAVE_CHECKPOINT = "engine.save_checkpoint"
#: What was loaded stands in place of a reduce operation; nothing, if no checkpoint was found.
LOAD_CHECKPOINT = "engine.load_checkpoint"
#: Parameters were changed while they were gathered, in a context that does not keep changes.
CHANGE_LOST = "deepspeed.zero.GatheredParameters"
#: An update was asked for, and failed, without a backward pass since the last one.
EMPTY_STEP = "engine.step without backward"
#: A context begins in which each layer is divided as it is made.
ZERO_INIT = "deepspeed.zero.Init"
#: The first step that again followed as many passes as the engine itself accumulates; this number
#: stands in place of a reduce operation.
LATE_STEP = "engine.step"
#: What an engine that is ready shows: the ranks that average its gradients.
MEMBERS = "members"

FRAMEWORK = Description(
    name="deepspeed",
    title="DeepSpeed",
    in_ranks="ddt_notebook.rank.frameworks.deepspeed:DeepSpeed",
    rules="ddt_notebook.diagnosis.rules.deepspeed",
    words="ddt_notebook.diagnosis.deepspeed_wording",
    stand_ins={
        "message-without-partner": "deepspeed-pipeline-batches-differ",
        "uneven-iterations": "deepspeed-batches-differ",
    },
)
