"""A tiny model of Megatron-core, for cards about its parallel groups."""

from __future__ import annotations

from typing import Any

#: Modules that the cells import.
NEEDS = ("megatron.core",)
#: Megatron-core asks for GPUs and NCCL.
OPTIONS: dict[str, Any] = {"simulate": "cuda:2"}
#: The setup cell: a model in tensor-parallel or pipeline-parallel groups of two ranks.
SETUP = """
import warnings
warnings.simplefilter("ignore")  # Megatron-core writes of optional packages
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

def make_gpt(tensor=1, pipeline=1, **settings):
    config = TransformerConfig(**dict(
        num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True,
        hidden_dropout=0.0, attention_dropout=0.0, tensor_model_parallel_size=tensor,
        pipeline_model_parallel_size=pipeline, pipeline_dtype=torch.float32,
    ) | settings)
    model = GPTModel(
        config=config, transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=64, max_sequence_length=16,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    ).to(device)
    return DistributedDataParallel(config, DistributedDataParallelConfig(), model)

def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        yield torch.randint(64, (2, 17), generator=generator).to(device)

def make_optimizer(model):
    return get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2), [model])

def loss_of(output):
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}

def forward_step(iterator, model):
    tokens = next(iterator)
    positions = torch.arange(16, device=device).expand(2, -1)
    return model(tokens[:, :-1], positions, None, labels=tokens[:, 1:]), loss_of

torch.cuda.set_device(device)
"""
