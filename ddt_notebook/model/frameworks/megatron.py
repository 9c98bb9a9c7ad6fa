"""Megatron-core, which trains through ``torch.distributed``."""

from __future__ import annotations

from .description import Description

#: The call that forms its groups; a rank records their sizes, as JSON in place of a reduce
#: operation.
GROUP_SIZES = "initialize_model_parallel"
#: What a rank notes of gradients that were clipped.
NORM = "norm of gradients"
#: What it notes of a batch from which each rank of a context-parallel group takes its part.
WHOLE_BATCH = "batches before they are cut"
#: What it notes of all tensors that a data-parallel model is given in a training pass.
MODEL_INPUTS = "inputs of the model"
_SIZES = ("tensor_model", "pipeline_model", "context")

FRAMEWORK = Description(
    name="megatron-core",
    title="Megatron-core",
    asks_for_gpus=True,
    in_ranks="ddt_notebook.rank.frameworks.megatron:Megatron",
    settings_calls=(GROUP_SIZES,),
    causes={
        "num_microbatches": "megatron-micro-batches-differ",
        "seq_length": "megatron-stage-tensors-differ",
        "micro_batch_size": "megatron-stage-tensors-differ",
        "pipeline_dtype": "megatron-stage-tensors-differ",
        "seed": "megatron-seeds-differ",
        "tokens": "megatron-tokens-differ",
        "labels": "megatron-tokens-differ",
        "batches": "megatron-tokens-differ",
        "input": "megatron-tokens-differ",
        "norm": "megatron-clipped-by-parts",
        "parameter": "megatron-parameters-differ",
        **{f"{axis}_parallel_size": "megatron-sizes-differ" for axis in _SIZES},
    },
    effects=frozenset({"parameter", "norm", "input"}),
    alike={
        ("tokens", "data"): "megatron-data-undivided",
        ("inputs", "data"): "megatron-data-undivided",
        ("labels", "context"): "megatron-sequence-undivided",
        ("parameter", "tensor"): "megatron-parts-alike",
    },
)
