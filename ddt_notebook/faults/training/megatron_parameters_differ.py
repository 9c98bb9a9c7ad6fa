"""Ranks of Megatron-core that begin with different values in parameters that must be equal."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-parameters-differ",
    title="parameters that ranks of Megatron-core should hold alike begin with different values",
    symptoms=("D.2.4",),
    views=("parity",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs, the loss falls, and the result depends on which rank is looked at.
        Checkpoints of the replicas differ. A model that is continued with another number of ranks
        is worse than before.
    """,
    why="""
        The DistributedDataParallel of Megatron-core averages gradients and, unlike PyTorch's,
        does not broadcast the parameters when it is made. Ranks that drew their initial values
        from different seeds, or loaded different files, stay apart: equal updates keep the
        difference.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel()
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234 + rank)
        model = make_gpt()
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
        parallel_state.initialize_model_parallel()
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234 + rank)
        model = make_gpt()
        model.broadcast_params()
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
        first = next(model.parameters()).detach().flatten()[:8]
        both = [torch.empty_like(first) for _ in range(world_size)]
        dist.all_gather(both, first)
        assert torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}),
    fixes=(
        Advice(
            "fix behavior logic",
            "call `model.broadcast_params()` once after the model was wrapped in "
            "Megatron-core's DistributedDataParallel, and after a checkpoint was loaded "
            "on some ranks only",
        ),
        Advice(
            "fix behavior logic",
            "set the same seed on all ranks before the model is built: "
            "`torch.manual_seed(seed)`; tensor-parallel layers draw the whole weight and "
            "keep their part of it",
        ),
        Advice(
            "fix behavior logic",
            "if they differ only at the end, reduce the gradients in every step before "
            "`optimizer.step()`: `finalize_model_grads([model])`",
        ),
    ),
    cluster="""
        Nothing shows it; --check-weight-hash-across-dp-replicas-interval of Megatron-LM compares
        the replicas now and then and stops the job.
    """,
    apart={
        "replicas-start-apart": "a model in PyTorch's DDP, or in none",
        "megatron-seeds-differ": "the values begin equal, and the random states differ",
    },
    references=(
        Reference(
            "Megatron-LM: a simple training loop with Megatron Core",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/examples/run_simple_mcore_train_loop.py",
        ),
        Reference(
            "Megatron-LM: Training Multi-Billion Parameter Language Models",
            "https://arxiv.org/abs/1909.08053",
        ),
    ),
    in_source=False,
)
