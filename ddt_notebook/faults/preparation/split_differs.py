"""Each rank splits the data into training and validation data differently."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="split-differs",
    title="each rank splits the data into training and validation data differently",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    sees="""
        The validation results are better than those on new data. Each rank holds back as many
        samples as planned, and the samplers divide what is left.
    """,
    why="""
        random_split draws from the random state of its process. If that was not seeded, or with the
        rank, each rank holds back other samples. The samplers then divide different data: some
        samples go to several ranks, others to none, and a sample that one rank holds back for
        validation is training data of another one.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

        torch.manual_seed(7 + rank)

        def main():
            data = TensorDataset(torch.arange(40.0).reshape(40, 1))
            train, test = random_split(data, [32, 8])
            loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train))
            model = DDP(torch.nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            seen = torch.zeros(40)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                seen[x.long().flatten()] += 1
            return seen

        seen = main()
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, random_split

        torch.manual_seed(7 + rank)

        def main():
            data = TensorDataset(torch.arange(40.0).reshape(40, 1))
            train, test = random_split(data, [32, 8], torch.Generator().manual_seed(7))
            loader = DataLoader(train, batch_size=4, sampler=DistributedSampler(train))
            model = DDP(torch.nn.Linear(1, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
            seen = torch.zeros(40)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
                seen[x.long().flatten()] += 1
            return seen

        seen = main()
    """,
    proof="""
        total = seen.clone()
        dist.all_reduce(total)
        assert sorted(total.tolist()) == [0.0] * 8 + [1.0] * 32
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="certain"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give random_split a generator with the same seed on all ranks: "
            "random_split(data, lengths, torch.Generator().manual_seed(0)); likewise what chooses "
            "the indices of a SubsetRandomSampler, such as KFold(shuffle=True, random_state=0)",
        ),
    ),
    cluster="""
        A seed that contains the rank is the usual cause, and fresh processes without a seed do the
        same. With many ranks almost every validation sample is training data of some other rank.
    """,
    apart={
        "sampler-seeded-by-rank": "the split is equal, and the order of its samples differs",
        "shard-overlap": "the parts of the ranks are cut by hand",
    },
    references=(
        Reference(
            "random_split: fix the generator for reproducible results",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.random_split",
        ),
    ),
)
