"""Gradients of a tensor-parallel model that each rank clips by the norm of its own part."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

_TRAINS = """
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
    torch.manual_seed(1234)
    model = make_gpt(tensor=2)
    OPTIMIZER
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
        UPDATE
"""


def _cell(optimizer: str, update: str) -> str:
    indented = update.replace("\n", "\n" + " " * 8)
    return _TRAINS.replace("OPTIMIZER", optimizer).replace("UPDATE", indented)


CARD = FaultCard(
    id="megatron-clipped-by-parts",
    title="each rank of Megatron-core clips its part of the gradients by a norm of its own",
    symptoms=("D.2.4",),
    views=("parity",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs, and the loss falls. Norms and biases, which the ranks of a tensor-parallel
        group hold alike, drift apart, and a checkpoint has those of one rank.
    """,
    why="""
        `torch.nn.utils.clip_grad_norm_` computes the norm of the parameters that it is given.
        With tensor parallelism, these are a rank's parts of the weights. So each rank finds
        another norm, and scales by it also the gradients of what all ranks hold alike.
    """,
    broken=_cell(
        "optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)",
        "for parameter in model.parameters():\n"
        "    parameter.grad = parameter.main_grad\n"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
        "optimizer.step()",
    ),
    fixed=_cell(
        'settings = OptimizerConfig(optimizer="adam", lr=1e-2, clip_grad=0.1)\n'
        "    optimizer = get_megatron_optimizer(settings, [model])",
        "optimizer.step()",
    ),
    proof="""
        norm = model.module.decoder.final_layernorm.weight.detach()
        both = [torch.empty_like(norm) for _ in range(world_size)]
        dist.all_gather(both, norm)
        assert torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 19, 1: 19}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "let Megatron-core's optimizer clip: "
            "`OptimizerConfig(clip_grad=1.0)` for `get_megatron_optimizer`",
        ),
        Advice(
            "fix behavior logic",
            "or sum the squares of the parts with `dist.all_reduce(…, "
            "group=parallel_state.get_tensor_model_parallel_group())`, count what all ranks hold "
            "alike once, and scale all gradients by this norm",
        ),
    ),
    cluster="""
        It appears when a training loop for one GPU gets tensor parallelism. Nothing fails; the
        larger the group, the more a rank's norm is too small.
    """,
    apart={
        "megatron-parameters-differ": "the values differ, and no rank clips by a norm of its own",
    },
    references=(
        Reference(
            "PyTorch: torch.nn.utils.clip_grad_norm_",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        ),
        Reference(
            "Megatron-LM: clipping in Megatron Core's optimizer",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/clip_grads.py",
        ),
    ),
    in_source=False,
)
