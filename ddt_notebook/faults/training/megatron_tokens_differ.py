"""A tensor-parallel group of Megatron-core that is given different batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-tokens-differ",
    title="the ranks of a tensor-parallel group of Megatron-core read different batches",
    symptoms=("D.2.4",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs and the loss falls slowly. It is the loss of no batch: with the same seed,
        the result changes with the size of the tensor-parallel group.
    """,
    why="""
        The ranks of a tensor-parallel group compute one batch with parts of one model: each
        embedding and each layer adds up what its parts make of it. If every rank reads a batch of
        its own, the sums mix them. A data loader that was divided by the global rank does this;
        it has to be divided by the data-parallel rank.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(tensor=2)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(rank)

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
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(tensor=2)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())

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
        assert torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "divide the data by the data-parallel rank: `DistributedSampler(data, "
            "parallel_state.get_data_parallel_world_size(), "
            "parallel_state.get_data_parallel_rank())`",
        ),
        Advice(
            "fix behavior logic",
            "or let the first rank of each group load the batch and send it: "
            "`tensor_parallel.broadcast_data(keys, data, torch.int64)`",
        ),
    ),
    cluster="""
        It appears when tensor parallelism is added to a data-parallel job. Nothing fails, on any
        backend; the loss that is printed depends on the rank that prints it.
    """,
    apart={
        "tensor-parallel-inputs-differ": "the layers are those of torch.distributed.tensor",
        "megatron-seeds-differ": "the batches are equal, and the random states differ",
    },
    references=(
        Reference(
            "Megatron Core: tensor_parallel package",
            "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/tensor_parallel.html",
        ),
        Reference(
            "Megatron-LM: a simple training loop with Megatron Core",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/examples/run_simple_mcore_train_loop.py",
        ),
    ),
    in_source=False,
)
