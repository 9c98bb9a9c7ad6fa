"""Stages of a pipeline of Megatron-core that expect other tensors than their neighbours send."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-stage-tensors-differ",
    title="a stage of a pipeline of Megatron-core expects other tensors than its neighbour sends",
    symptoms=("D.2.4", "D.1.1"),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs on with wrong numbers or ends in an error of the backend or a crash, without
        a word about the pipeline. The stages were configured differently: another pipeline_dtype,
        sequence length or micro-batch size on one of them.
    """,
    why="""
        The receiving stage makes a buffer from its own configuration, before anything arrives:
        sequence length, micro-batch size, hidden size and pipeline_dtype. The message does not
        say what it holds. A backend fills as many bytes as were sent, or writes past the end of
        the buffer.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        dtype = torch.bfloat16 if rank == 0 else torch.float32
        model = make_gpt(pipeline=2, pipeline_dtype=dtype).to(dtype).eval()
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        for step in range(3):
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model, forward_only=True,
                num_microbatches=2, seq_length=16, micro_batch_size=2,
            )
    """,
    fixed="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(pipeline_model_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        dtype = torch.float32
        model = make_gpt(pipeline=2, pipeline_dtype=dtype).to(dtype).eval()
        run_step = get_forward_backward_func()
        data = batches(parallel_state.get_data_parallel_rank())
        for step in range(3):
            losses = run_step(
                forward_step_func=forward_step, data_iterator=data, model=model, forward_only=True,
                num_microbatches=2, seq_length=16, micro_batch_size=2,
            )
    """,
    proof="""
        if parallel_state.is_pipeline_last_stage():
            assert all(one["loss"].isfinite() for one in losses)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}),
    fixes=(
        Advice(
            "fix behavior logic",
            "give all stages one configuration: the same pipeline_dtype, seq_length and "
            "micro_batch_size, from one file or from values that rank 0 broadcasts",
        ),
        Advice(
            "fix distributed API usage",
            "set `variable_seq_lengths=True` if lengths are to differ between "
            "micro-batches: then each message is preceded by its shape",
        ),
    ),
    cluster="""
        With NCCL, a receive that is larger than its message waits until the timeout of the
        watchdog; one that is smaller raises nothing and leaves wrong numbers. It appears when
        stages are started with different arguments, such as --bf16 on some nodes only.
    """,
    apart={
        "message-dtype-differs": "the program sends its messages itself",
        "megatron-micro-batches-differ": "the tensors fit, and there are more or fewer of them",
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
