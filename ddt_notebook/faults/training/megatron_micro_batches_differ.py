"""Stages of a pipeline of Megatron-core that run different numbers of micro-batches."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-micro-batches-differ",
    title="the stages of a pipeline of Megatron-core run different numbers of micro-batches",
    symptoms=("D.2.1",),
    views=("stacks", "collectives"),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        A step of training does not end: one stage of the pipeline waits for the activations or
        the gradients of a micro-batch that another stage never runs. Other stages have gone on to
        their next step, or have ended.
    """,
    why="""
        A schedule of Megatron-core exchanges one message forward and one backward for each
        micro-batch. Each stage counts for itself up to the num_microbatches that it was given,
        and no message carries the number. If a stage computes it from something of its own, such
        as the size of its part of the data or its environment, the stages do not fit each other.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(pipeline=2)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        micro_batches = 2 + parallel_state.get_pipeline_model_parallel_rank()
        for step in range(3):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model,
                num_microbatches=micro_batches, seq_length=16, micro_batch_size=2,
            )
            finalize_model_grads([model])
            optimizer.step()
    """,
    fixed="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt(pipeline=2)
        optimizer = make_optimizer(model)
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        micro_batches = 2
        for step in range(3):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model,
                num_microbatches=micro_batches, seq_length=16, micro_batch_size=2,
            )
            finalize_model_grads([model])
            optimizer.step()
    """,
    proof="""
        if parallel_state.is_pipeline_last_stage():
            assert len(losses) == 2 and all(one["loss"].isfinite() for one in losses)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 13, 1: 13}),
    fixes=(
        Advice(
            "fix behavior logic",
            "give every stage the same num_microbatches: the global batch size divided by "
            "the micro-batch size and by the data-parallel size, as "
            "`get_num_microbatches()` returns it after "
            "`init_num_microbatches_calculator()` on every rank",
        ),
        Advice(
            "fix behavior logic",
            "if a rank computes the number from its data, let rank 0 of each pipeline "
            "broadcast it before the step: `dist.broadcast(count, group_src=0, "
            "group=parallel_state.get_pipeline_model_parallel_group())`",
        ),
    ),
    cluster="""
        NCCL's watchdog ends the job after its timeout with a SendRecv or a batched isend/irecv as
        the last operation, on the stages next to the one that ran fewer micro-batches. No log
        names the number.
    """,
    apart={
        "message-without-partner": "the program sends its messages itself",
        "megatron-stage-tensors-differ": "the messages are as many, and have other sizes",
    },
    references=(
        Reference(
            "Megatron Core: pipeline_parallel package",
            "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/pipeline_parallel.html",
        ),
        Reference(
            "Megatron-LM: the schedules and the shapes of their messages",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/pipeline_parallel/schedules.py",
        ),
    ),
    in_source=False,
)
