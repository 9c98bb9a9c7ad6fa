"""Ranks of a tensor-parallel group of Megatron-core that all hold the part of one of them."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-parts-alike",
    title="the ranks of a tensor-parallel group of Megatron-core hold one part of a parameter",
    symptoms=("D.2.4",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs. A model that was loaded or copied gives other outputs than before, much
        worse ones, with tensor parallelism only. Its checkpoint holds the same rows or columns
        several times.
    """,
    why="""
        Each rank of a tensor-parallel group holds other rows or columns of a weight, as a tensor
        of the same size. A loop that broadcasts all parameters over all ranks writes the part of
        the first rank over those of the others. Only parameters that are held whole, such as those
        of norms, may be sent within such a group.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(tensor=2)
        for parameter in model.parameters():
            dist.broadcast(parameter.data, src=0)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(1234 + parallel_state.get_data_parallel_rank())
        for step in range(2):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model,
                num_microbatches=2, seq_length=16, micro_batch_size=2,
            )
            finalize_model_grads([model])
            optimizer.step()
    """,
    fixed="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(tensor=2)
        for parameter in model.parameters():
            if not getattr(parameter, "tensor_model_parallel", False):
                dist.broadcast(parameter.data, src=0)
        model.broadcast_params()
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(1234 + parallel_state.get_data_parallel_rank())
        for step in range(2):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model,
                num_microbatches=2, seq_length=16, micro_batch_size=2,
            )
            finalize_model_grads([model])
            optimizer.step()
    """,
    proof="""
        own = model.module.embedding.word_embeddings.weight.detach().contiguous()
        both = [torch.empty_like(own) for _ in range(world_size)]
        dist.all_gather(both, own)
        assert not torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "send each part within its data-parallel group, as `model.broadcast_params()` of "
            "Megatron-core's DistributedDataParallel does",
        ),
        Advice(
            "fix behavior logic",
            "send over all ranks only what each holds whole: "
            "`if not getattr(parameter, 'tensor_model_parallel', False)`",
        ),
        Advice(
            "fix distributed API usage",
            "load a model with `dist_checkpointing.load`, which gives each rank its own part",
        ),
    ),
    cluster="""
        Nothing fails, on any backend. Losses are higher than with one rank, from the first step on.
    """,
    apart={
        "megatron-parameters-differ": "parameters differ that the ranks should hold alike",
        "megatron-tokens-differ": "the ranks of the group read different batches",
    },
    references=(
        Reference(
            "Megatron-LM: distributed_data_parallel.py, broadcast_params",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/distributed/distributed_data_parallel.py",
        ),
        Reference(
            "Megatron-LM: Training Multi-Billion Parameter Language Models",
            "https://arxiv.org/abs/1909.08053",
        ),
    ),
    in_source=False,
)
