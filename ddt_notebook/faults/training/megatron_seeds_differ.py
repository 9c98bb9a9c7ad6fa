"""A tensor-parallel group of Megatron-core with different seeds."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-seeds-differ",
    title="the ranks of a tensor-parallel group of Megatron-core have different seeds",
    symptoms=("D.2.4",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Nothing fails and the loss falls, but worse than with one rank. Parameters that every rank
        of the group holds whole (layer norms, position embeddings) drift apart, and a checkpoint
        depends on which rank has written it.
    """,
    why="""
        model_parallel_cuda_manual_seed keeps two random states: one that is equal within a
        tensor-parallel group, for tensors that each rank holds whole, and one that differs, for
        parts. Megatron-core adds the rank in the group itself. If the seed that it is given has
        the rank already, the first state differs, too: each rank drops other elements of the same
        activations.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234 + rank, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(tensor=2, hidden_dropout=0.1)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        for step in range(3):
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
        model = make_gpt(tensor=2, hidden_dropout=0.1)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        for step in range(3):
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
        norm = model.module.decoder.final_layernorm.weight.detach()
        both = [torch.empty_like(norm) for _ in range(world_size)]
        dist.all_gather(both, norm)
        assert torch.equal(both[0], both[1]) and losses[0]["loss"].isfinite()
    """,
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix behavior logic",
            "give every rank of a tensor-parallel group the same seed; as Megatron-LM "
            "does, add only the pipeline rank, and the data-parallel rank if replicas are "
            "to differ: `seed + 100 * pipeline_rank`",
        ),
    ),
    cluster="""
        It appears when the seeding of a data-parallel script, seed + rank, is kept for
        Megatron-core. No message, no hang; check_param_hashes_across_dp_replicas does not see it,
        since it compares data-parallel replicas only.
    """,
    apart={
        "same-dropout-masks": "data-parallel ranks draw the same masks, and should not",
        "megatron-parameters-differ": "the seeds are equal, and the parameters begin apart",
    },
    references=(
        Reference(
            "Megatron-LM: model_parallel_cuda_manual_seed and its three random states",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/random.py",
        ),
        Reference(
            "Megatron-LM: Training Multi-Billion Parameter Language Models",
            "https://arxiv.org/abs/1909.08053",
        ),
    ),
    in_source=False,
)
