"""Ranks of a sequence-parallel group read different samples."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

_MODEL = """
        import deepspeed
        import torch
        from deepspeed.runtime.sequence_parallel import parallel_state_sp
        from deepspeed.sequence.layer import DistributedAttention
        from torch.utils.data import DataLoader, DistributedSampler

        deepspeed.init_distributed("gloo")


        class OwnHeads(torch.nn.Module):
            def forward(self, q, k, v):
                q, k, v = (one.transpose(1, 2) for one in (q, k, v))
                mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                return mixed.transpose(1, 2)


        class Reader(torch.nn.Module):
            def __init__(self, group):
                super().__init__()
                self.embed, self.last = torch.nn.Embedding(20, 16), torch.nn.Linear(16, 20)
                self.attention = DistributedAttention(
                    OwnHeads(), group, scatter_idx=2, gather_idx=1
                )

            def forward(self, tokens):
                x = self.embed(tokens).reshape(*tokens.shape, 2, 8)
                return self.last(self.attention(x, x, x, 0).reshape(*tokens.shape, 16))


        def make_engine(size):
            parallel_state_sp.initialize_sequence_parallel(size)
            torch.manual_seed(0)
            model = Reader(parallel_state_sp.get_sequence_parallel_group())
            config = {
                "train_micro_batch_size_per_gpu": 2,
                "optimizer": {"type": "Adam", "params": {"lr": 1e-3, "torch_adam": True}},
                "zero_optimization": {"stage": 1},
            }
            return deepspeed.initialize(
                model=model,
                model_parameters=model.parameters(),
                config=config,
                mpu=parallel_state_sp,
            )[0]


        documents = torch.randint(20, (16, 9), generator=torch.Generator().manual_seed(3))
"""
_LOOP = """
        loader = DataLoader(documents, batch_size=2, sampler=sampler)
        part = slice(4 * (rank % size), 4 * (rank % size + 1))
        for batch in loader:
            logits = engine(batch[:, :-1][:, part])
            labels = batch[:, 1:][:, part]
            loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 20), labels.reshape(-1))
            engine.backward(loss)
            engine.step()
"""

CARD = FaultCard(
    id="deepspeed-sequences-read-apart",
    title="ranks that attend to parts of the same sequences read different samples",
    symptoms=("D.2.2",),
    views=("partition",),
    needs=("deepspeed",),
    sees="""
        Training runs to its end, and the loss is worse than without sequence parallelism, although
        the model and the data are the same.
    """,
    why="""
        With DeepSpeed-Ulysses, the ranks of a sequence-parallel group exchange queries, keys and
        values, so that each attends to whole sequences with some of the heads. Each rank takes its
        part of a sequence from the batch that it has read. A DistributedSampler that divides the
        data among all ranks gives ranks of a group different samples: a sequence then consists of
        parts of several.
    """,
    setup=_MODEL,
    broken="""
        size = 2
        engine = make_engine(size)
        sampler = DistributedSampler(documents, seed=1)
"""
    + _LOOP,
    fixed="""
        size = 2
        engine = make_engine(size)
        groups, group = world_size // size, rank // size
        sampler = DistributedSampler(documents, num_replicas=groups, rank=group, seed=1)
"""
    + _LOOP,
    proof="""
        assert (groups, group, len(loader)) == (1, 0, 8)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "divide the data among the sequence-parallel groups: DistributedSampler with "
            "num_replicas = world size // size of a group, and rank = rank // size; or give the "
            "loader to DeepSpeed's UlyssesSPDataLoaderAdapter, which shares the batches of a group",
        ),
    ),
    cluster="""
        Print a sum of the whole batch that each rank reads in its first steps: it has to be equal
        in each sequence-parallel group.
    """,
    apart={
        "deepspeed-stages-read-apart": "stages of a pipeline read different batches",
        "no-distributed-sampler": "ranks of data parallelism read the same samples",
    },
    references=(
        Reference(
            "DeepSpeed-Ulysses: sequence parallelism",
            "https://www.deepspeed.ai/tutorials/ds-sequence/",
        ),
    ),
    in_source=False,
)
