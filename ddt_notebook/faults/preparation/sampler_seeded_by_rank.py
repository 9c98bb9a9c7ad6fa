"""Samplers shuffle with another seed on each rank."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="sampler-seeded-by-rank",
    title="samplers that shuffle with another seed on each rank",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    sees="""
        Every rank gets its share, the number of batches is right, and the loss goes down. But in
        each epoch some samples are used by several ranks, and others by none.
    """,
    why="""
        A DistributedSampler shuffles the whole data set and takes every n-th index. The parts fit
        together only if all ranks shuffle alike, so its seed has to be equal on all of them. A seed
        that contains the rank, as is right for augmentations and dropout, breaks that.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        class Trainer:
            def __init__(self, data):
                sampler = DistributedSampler(data, seed=100 + dist.get_rank())
                self.loader = DataLoader(data, batch_size=4, sampler=sampler)
                self.model = DDP(torch.nn.Linear(1, 1))
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

            def train(self):
                seen = torch.zeros(32)
                for (x,) in self.loader:
                    self.optimizer.zero_grad()
                    self.model(x).mean().backward()
                    self.optimizer.step()
                    seen[x.long().flatten()] += 1
                return seen

        def main():
            return Trainer(TensorDataset(torch.arange(32.0).reshape(32, 1))).train()

        seen = main()
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        class Trainer:
            def __init__(self, data):
                sampler = DistributedSampler(data, seed=100)
                self.loader = DataLoader(data, batch_size=4, sampler=sampler)
                self.model = DDP(torch.nn.Linear(1, 1))
                self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

            def train(self):
                seen = torch.zeros(32)
                for (x,) in self.loader:
                    self.optimizer.zero_grad()
                    self.model(x).mean().backward()
                    self.optimizer.step()
                    seen[x.long().flatten()] += 1
                return seen

        def main():
            return Trainer(TensorDataset(torch.arange(32.0).reshape(32, 1))).train()

        seen = main()
    """,
    proof="""
        total = seen.clone()
        dist.all_reduce(total)
        assert total.tolist() == [1.0] * 32
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="certain"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "pass the same seed to the sampler on all ranks; call set_epoch for another order in "
            "each epoch",
        ),
    ),
    cluster="""
        With n ranks a sample is missed by all of them in about 37 % of the epochs, and no log shows
        that. A count of the distinct sample ids of an epoch over all ranks does.
    """,
    apart={
        "sampler-for-wrong-rank": "the sampler takes the part of another rank",
        "split-differs": "the data that is divided differs already",
    },
    references=(
        Reference(
            "DistributedSampler: the seed should be identical across all processes",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
)
