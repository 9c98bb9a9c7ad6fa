"""Ranks of a context-parallel group of Megatron-core that all compute the whole sequence."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.megatron import NEEDS, OPTIONS, SETUP

CARD = FaultCard(
    id="megatron-sequence-undivided",
    title="the ranks of a context-parallel group of Megatron-core compute the same sequence",
    symptoms=("C.7",),
    options=OPTIONS,
    needs=NEEDS,
    setup=SETUP,
    sees="""
        Training runs, and the loss is that of one rank. A step takes no less time and memory than
        without context parallelism, and attention counts every key once for each rank.
    """,
    why="""
        Context parallelism divides a sequence: every rank of the group computes some of its
        tokens, and attention gets the keys and values of the others. Megatron-core leaves it to
        the program to cut each batch. Without that, every rank computes all of it.
    """,
    broken="""
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(context_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt()
        del model.module.decoder.layers[:]  # their attention would need Transformer Engine
        optimizer = make_optimizer(model)
        data = batches(1234 + parallel_state.get_data_parallel_rank())

        def get_batch():
            text = next(data)
            return {"tokens": text[:, :-1].contiguous(), "labels": text[:, 1:].contiguous()}

        for step in range(3):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            batch = get_batch()
            positions = torch.arange(batch["tokens"].size(1), device=device).expand(2, -1)
            loss = model(batch["tokens"], positions, None, labels=batch["labels"]).mean()
            loss.backward()
            finalize_model_grads([model])
            optimizer.step()
    """,
    fixed="""
        from megatron.core.utils import get_batch_on_this_cp_rank

        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(context_parallel_size=2)
        tensor_parallel.model_parallel_cuda_manual_seed(1234, force_reset_rng=True)
        torch.manual_seed(1234)
        model = make_gpt()
        del model.module.decoder.layers[:]  # their attention would need Transformer Engine
        optimizer = make_optimizer(model)
        data = batches(1234 + parallel_state.get_data_parallel_rank())

        def get_batch():
            text = next(data)
            batch = {"tokens": text[:, :-1].contiguous(), "labels": text[:, 1:].contiguous()}
            batch["positions"] = torch.arange(16, device=device).repeat(2, 1)
            return get_batch_on_this_cp_rank(batch)

        for step in range(3):
            optimizer.zero_grad()
            model.zero_grad_buffer()
            batch = get_batch()
            loss = model(batch["tokens"], batch["positions"], None, labels=batch["labels"]).mean()
            loss.backward()
            finalize_model_grads([model])
            optimizer.step()
    """,
    proof="""
        own = batch["labels"].contiguous()
        both = [torch.empty_like(own) for _ in range(world_size)]
        dist.all_gather(both, own)
        assert own.shape == (2, 8) and not torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 19, 1: 19}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "cut each batch, with its positions and its mask of the loss, before the forward pass: "
            "`batch = get_batch_on_this_cp_rank(batch)` of `megatron.core.utils`",
        ),
        Advice(
            "fix behavior logic",
            "average losses over the tokens of all ranks of the group, since each has only its own",
        ),
    ),
    cluster="""
        Nothing fails, on any backend. The memory of activations does not fall when the group grows.
    """,
    apart={
        "megatron-data-undivided": "data-parallel replicas read the same batches",
        "megatron-tokens-differ": "the ranks of the group read different batches before the cut",
    },
    references=(
        Reference(
            "Megatron Core: context_parallel package",
            "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/context_parallel.html",
        ),
        Reference(
            "Megatron-LM: utils.py, get_batch_on_this_cp_rank",
            "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/utils.py",
        ),
    ),
    in_source=False,
)
