"""DeepSpeed, which trains through ``torch.distributed``."""

from __future__ import annotations

from typing import NamedTuple

from .description import Description

#: What a rank records beside its collectives: an engine with its settings, as JSON, before it
#: communicates; the same engine when it is ready, with its ranks; and the begin of a checkpoint,
#: with its tag.
ENGINE, ENGINE_READY = "deepspeed.initialize", "deepspeed.initialize's end"
SAVE_CHECKPOINT = "engine.save_checkpoint"
#: With what was loaded; nothing, if no checkpoint was found.
LOAD_CHECKPOINT = "engine.load_checkpoint"
#: Parameters were changed while they were gathered, in a context that does not keep changes.
CHANGE_LOST = "deepspeed.zero.GatheredParameters"
#: An update was asked for, and failed, without a backward pass since the last one.
EMPTY_STEP = "engine.step without backward"
#: A context begins in which each layer is divided as it is made.
ZERO_INIT = "deepspeed.zero.Init"
#: The first step that again followed as many passes as the engine itself accumulates, with their
#: number.
LATE_STEP = "engine.step"
#: What an engine used in a step, and the buffers that have stood in it since it was made. As JSON:
#: the number of the engine and the group that averages its gradients, with the settings or the
#: buffers' fingerprints.
ENGINE_USES, ENGINE_HOLDS = "engine.step's settings", "engine's buffers"
#: Fingerprints of parameters before some of an engine's steps, by name, also as JSON.
ENGINE_TRAINS = "engine.step's parameters"
#: Fingerprints of an engine's first inputs, which are samples of data: they are parts of the named
#: data, or their rows came again later.
ENGINE_TAKES = "engine's inputs"
#: The texts and switches with which a pass of an engine was asked for, such as the name of a task,
#: where they changed, as JSON.
ENGINE_GIVEN = "engine's arguments"
#: What a stage of a pipeline read as a micro-batch, with the ranks of the pipeline, also as JSON.
STAGE_READS = "engine.train_batch's data"
#: Ranks that attend to parts of the same sequences, and the name of their group, also as JSON.
SEQUENCE = "deepspeed.sequence.DistributedAttention"
#: The loss was divided already by the passes that the engine divides it by, with their number.
LOSS_DIVIDED = "engine.backward of a divided loss"
#: What an engine that is ready shows: the ranks that average its gradients, and a digest of the
#: order of the parameters that its optimizer divides among them as one.
MEMBERS, ORDER = "members", "order"


class StageData(NamedTuple):
    """The inputs or the labels of a micro-batch.

    Attributes
    ----------
    shapes
        Of its tensors, such as ``"4×8"``.
    content
        A fingerprint of all of them.
    varied
        Whether not all elements are one value, as in a tensor that only takes the place of data.
    """

    shapes: str
    content: int
    varied: bool


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
