"""Data-parallel replicas of Megatron-core that read the same batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-data-undivided",
    title="the data-parallel replicas of Megatron-core read the same batches",
    symptoms=("C.7",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs, and every rank prints the same loss. More replicas make an epoch no shorter,
        and the gradient is that of one batch.
    """,
    why="""
        Megatron-core takes an iterator, and leaves it to the program to divide the data. The ranks
        of a tensor-parallel group have to read the same batch, and those of a data-parallel group
        different ones. A loader without a sampler, or one that is divided by the rank in another
        axis of the mesh, gives every replica the same batches.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel()
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt()
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(1234)

        def forward_step(iterator, model):
            tokens, positions = next(iterator), torch.arange(16, device=device).expand(2, -1)
            return model(tokens[:, :-1], positions, None, labels=tokens[:, 1:]), loss_of

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
        torch.manual_seed(1234)
        model = make_gpt()
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(1234 + parallel_state.get_data_parallel_rank())

        def forward_step(iterator, model):
            tokens, positions = next(iterator), torch.arange(16, device=device).expand(2, -1)
            return model(tokens[:, :-1], positions, None, labels=tokens[:, 1:]), loss_of

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
        tokens = next(data)
        both = [torch.empty_like(tokens) for _ in range(world_size)]
        dist.all_gather(both, tokens)
        assert not torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "divide the data by the data-parallel rank: `DistributedSampler(data, "
            "parallel_state.get_data_parallel_world_size(), "
            "parallel_state.get_data_parallel_rank())`",
        ),
        Advice(
            "fix behavior logic",
            "if the batches are drawn at random, add `parallel_state.get_data_parallel_rank()` to "
            "the seed",
        ),
    ),
    cluster="""
        Nothing fails, on any backend. The loss falls as with one replica, at the price of all.
    """,
    apart={
        "megatron-tokens-differ": "the ranks of a tensor-parallel group have to read the same",
        "shard-overlap": "the model is wrapped in DDP, and a loader reads the data",
    },
    references=(
        Reference(
            "Megatron Core: parallel_state package",
            "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/parallel_state.html",
        ),
        Reference(
            "Megatron-LM: a simple training loop with Megatron Core",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/examples/run_simple_mcore_train_loop.py",
        ),
    ),
    in_source=False,
)
