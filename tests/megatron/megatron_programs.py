"""Training programs of Megatron-core, with places for a fault."""

from __future__ import annotations

from textwrap import dedent, indent

#: After Megatron-core's example ``run_simple_mcore_train_loop.py``, with a tiny model. Format it
#: with the sizes of the parallel groups and with further arguments of the configuration.
GPT = """
import os
import torch
import torch.distributed as dist
from functools import partial
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

TENSOR, PIPELINE = {tensor}, {pipeline}
SEQUENCE, VOCABULARY, MICRO_BATCH = 16, 64, 2


def batches(seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        tokens = torch.randint(VOCABULARY, (MICRO_BATCH, SEQUENCE + 1), generator=generator)
        yield tokens.cuda()


def forward_step(iterator, model):
    tokens = next(iterator)
    # before the forward pass
    position_ids = torch.arange(SEQUENCE, device="cuda").expand(MICRO_BATCH, -1)
    output = model(tokens[:, :-1], position_ids, None, labels=tokens[:, 1:])

    def loss_func(output):
        loss = output.float().mean()
        return loss, dict(loss=loss.detach())

    return output, loss_func


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    if not dist.is_initialized():
        dist.init_process_group("nccl")
    rank = dist.get_rank()
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(TENSOR, PIPELINE)
    seed = 1234
    # before the seed
    tensor_parallel.model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    torch.manual_seed(seed)
    settings = dict(
        num_layers=2, hidden_size=16, num_attention_heads=2, use_cpu_initialization=True,
        pipeline_dtype=torch.float32, tensor_model_parallel_size=TENSOR,
        pipeline_model_parallel_size=PIPELINE, {settings}
    )
    # before the model
    config = TransformerConfig(**settings)
    model = GPTModel(
        config=config, transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY, max_sequence_length=SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    ).cuda()
    model = DistributedDataParallel(config, DistributedDataParallelConfig({ddp}), model)
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-2), [model])
    data_seed = parallel_state.get_data_parallel_rank()
    # before the data
    iterator = batches(data_seed)
    run_step = get_forward_backward_func()
    steps, micro_batches = 3, 2
    # before the loop
    for step in range(steps):
        # in a step
        optimizer.zero_grad()
        model.zero_grad_buffer()
        losses = run_step(
            forward_step_func=forward_step, data_iterator=iterator, model=model,
            num_microbatches=micro_batches, seq_length=SEQUENCE, micro_batch_size=MICRO_BATCH,
            decoder_seq_length=SEQUENCE, forward_only=False,
        )
        finalize_model_grads([model])
        # before the update
        optimizer.step()
        # after a step
    # at the end
    print("rank", rank, [round(float(one["loss"]), 4) for one in losses])


main()
"""


DROPOUT = "hidden_dropout=0.1, attention_dropout=0.1"
#: For the place after a step.
EVALUATES = """
model.eval()
with torch.no_grad():
    run_step(
        forward_step_func=forward_step, data_iterator=iterator, model=model,
        num_microbatches=1, seq_length=SEQUENCE, micro_batch_size=MICRO_BATCH,
        decoder_seq_length=SEQUENCE, forward_only=True,
    )
model.train()
"""
#: For the place at the end.
SAVES = """
import tempfile
from megatron.core import dist_checkpointing

folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder, src=0)
state = model.module.sharded_state_dict(prefix="")
dist_checkpointing.save(state, folder[0])
loaded = dist_checkpointing.load(model.module.sharded_state_dict(prefix=""), folder[0])
model.module.load_state_dict(loaded)
"""


def gpt(tensor: int = 1, pipeline: int = 1, settings: str = "", ddp: str = "") -> str:
    """Return a program that trains with these parallel groups."""
    if "dropout" not in settings:
        settings += "hidden_dropout=0.0, attention_dropout=0.0"
    return GPT.format(tensor=tensor, pipeline=pipeline, settings=settings, ddp=ddp)


def at_top_level(source: str) -> str:
    """Return the program with its variables in the notebook, as a cell would have them."""
    before, _, main = source.partition("def main():\n")
    return before + dedent(main.rpartition("main()")[0])


def experts() -> str:
    """Return a program with a mixture of experts, of which each rank holds two."""
    source = gpt(
        1,
        1,
        "num_moe_experts=4, moe_router_topk=2, moe_ffn_hidden_size=32, add_bias_linear=False, "
        "expert_model_parallel_size=2, ",
    )
    source = source.replace("(TENSOR, PIPELINE)", "(expert_model_parallel_size=2)")
    return source.replace("layer_local_spec()", "layer_local_spec(num_experts=4)")


def sequence_parallel() -> str:
    """Return a program with sequence parallelism, whose norm a user writes for the CPU."""
    norm = """
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules


class Norm(torch.nn.LayerNorm):
    def __init__(self, config, hidden_size, eps=1e-5):
        super().__init__(hidden_size, eps)
        for parameter in self.parameters():
            parameter.sequence_parallel = config.sequence_parallel


def layers():
    spec = get_gpt_layer_local_spec()
    spec.submodules.input_layernorm = spec.submodules.pre_mlp_layernorm = Norm
    return TransformerBlockSubmodules(layer_specs=[spec] * 2, layer_norm=Norm)

TENSOR, PIPELINE ="""
    source = gpt(2, 1, "sequence_parallel=True, ").replace("\nTENSOR, PIPELINE =", norm, 1)
    return source.replace("spec=get_gpt_layer_local_spec()", "spec=layers()")


#: Groups as a program forms them that does not use those of Megatron-core's state.
_MAKES_GROUPS = """
from megatron.core.pipeline_parallel.schedules import forward_backward_no_pipelining
from megatron.core.process_groups_config import ProcessGroupCollection


def make_groups():
    everyone = list(range(dist.get_world_size()))
    alone = [dist.new_group([one]) for one in everyone][dist.get_rank()]
    names = "pp cp dp dp_cp ep embd pos_embd expt_tp expt_dp tp_ep tp_ep_pp intra_expt_dp"
    groups = ProcessGroupCollection(**{name: alone for name in names.split()})
    groups.tp, groups.mp = dist.new_group(everyone), dist.new_group(everyone)
    return groups


TENSOR, PIPELINE ="""


def own_groups() -> str:
    """Return a program whose tensor-parallel group is one that it forms itself."""
    source = gpt(2, 1).replace("\nTENSOR, PIPELINE =", _MAKES_GROUPS, 1)
    for old, new in {
        "parallel_state.initialize_model_parallel(TENSOR, PIPELINE)": (
            "parallel_state._set_global_memory_buffer()\n    groups = make_groups()"
        ),
        "seed, force_reset_rng=True": (
            "seed, tp_rank=groups.tp.rank(), ep_rank=0, etp_rank=0, force_reset_rng=True"
        ),
        "pre_process=parallel_state.is_pipeline_first_stage(),": "pg_collection=groups,",
        "post_process=parallel_state.is_pipeline_last_stage(),": "parallel_output=False,",
        "DistributedDataParallelConfig(), model)": (
            "DistributedDataParallelConfig(), model, pg_collection=groups)"
        ),
        "lr=1e-2), [model])": (
            "lr=1e-2), [model], use_gloo_process_groups=False, pg_collection=groups)"
        ),
        "parallel_state.get_data_parallel_rank()": "groups.dp.rank()",
        "get_forward_backward_func()": "forward_backward_no_pipelining",
        "decoder_seq_length=SEQUENCE,": "pg_collection=groups,",
        "finalize_model_grads([model])": "finalize_model_grads([model], pg_collection=groups)",
        "position_ids, None, labels=tokens[:, 1:])": "position_ids, None)",
        "output.float().mean()": (
            "torch.nn.functional.cross_entropy("
            "output.float().flatten(0, 1), tokens[:, 1:].flatten())"
        ),
    }.items():
        assert old in source, old
        source = source.replace(old, new)
    return source


def without_schedule(adds: str) -> str:
    """Return a program that calls a tensor-parallel model and an optimizer of torch by itself."""
    begin, _, _rest = gpt(2, 1).partition("    model = DistributedDataParallel(")
    return (
        begin
        + indent(adds, "    ")
        + """
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    iterator = batches(0)
    for step in range(3):
        tokens = next(iterator)
        optimizer.zero_grad()
        position_ids = torch.arange(SEQUENCE, device="cuda").expand(MICRO_BATCH, -1)
        loss = model(tokens[:, :-1], position_ids, None, labels=tokens[:, 1:]).mean()
        loss.backward()
        # before the update
        optimizer.step()
"""
        + "\n\nmain()\n"
    )
