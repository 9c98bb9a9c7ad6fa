"""Stages of a pipeline of Megatron-core that read different batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

_TRAINS = """
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
    seed = 1234 + 100 * parallel_state.get_pipeline_model_parallel_rank()
    tensor_parallel.model_parallel_cuda_manual_seed(seed, force_reset_rng=True)
    torch.manual_seed(seed)
    model = make_gpt(pipeline=2)
    optimizer = make_optimizer(model)
    run_step = get_forward_backward_func()
    rows = torch.arange(16 * 17).reshape(16, 17).to(device) % 64
    ORDER
    data = iter(torch.utils.data.DataLoader(rows, batch_size=2, shuffle=True, generator=order))
    for step in range(3):
        optimizer.zero_grad()
        model.zero_grad_buffer()
        losses = run_step(
            forward_step_func=forward_step, data_iterator=data, model=model,
            num_microbatches=2, seq_length=16, micro_batch_size=2,
        )
        finalize_model_grads([model])
        optimizer.step()
"""

CARD = FaultCard(
    id="megatron-stages-read-apart",
    title="the stages of a pipeline of Megatron-core read different batches",
    symptoms=("D.2.4",),
    views=("partition",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs, and the loss stays near that of guessing. With one stage, the same program
        learns. If batches have other lengths, it fails on a shape instead.
    """,
    why="""
        The first stage of a pipeline reads the tokens of a batch, and the last one reads its
        labels. Each has a loader of its own, and both have to return the same batches. Megatron-LM
        seeds the stages differently, and a loader that shuffles by these seeds has another
        order on each stage.
    """,
    broken=_TRAINS.replace("ORDER", "order = None"),
    fixed=_TRAINS.replace(
        "ORDER",
        "replica = parallel_state.get_data_parallel_rank()\n"
        "    order = torch.Generator().manual_seed(1234 + replica)",
    ),
    proof="""
        mine = torch.tensor(
            list(torch.utils.data.RandomSampler(rows, generator=order.manual_seed(1234)))
        )
        both = [torch.empty_like(mine) for _ in range(world_size)]
        dist.all_gather(both, mine)
        assert torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give the loader an order that depends on the data-parallel rank only: "
            "`DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(seed))`",
        ),
        Advice(
            "fix behavior logic",
            "or let one stage read, and send the batch to the others of "
            "`parallel_state.get_pipeline_model_parallel_group()`",
        ),
    ),
    cluster="""
        It appears when a pipeline of several stages is configured for a program that had one.
        Nothing fails on any backend.
    """,
    apart={
        "megatron-tokens-differ": "the ranks are of one tensor-parallel group",
        "megatron-stage-tensors-differ": "the configuration and not the batch differs",
    },
    references=(
        Reference(
            "Megatron-LM: how the seeds of the stages are set",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/initialize.py",
        ),
    ),
    in_source=False,
)
