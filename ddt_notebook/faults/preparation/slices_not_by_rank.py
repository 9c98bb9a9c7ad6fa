"""Each rank cuts its data from the same part of a tensor."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="slices-not-by-rank",
    title="each rank cuts the same slices from the data",
    symptoms=("C.7", "D.2.2"),
    sees="""
        Training is as fast as planned, and with more ranks the model gets worse. The number of
        samples for each rank is right, and the loss is the same number on all ranks.
    """,
    why="""
        The slice has the right length, and its beginning does not depend on the rank. So every rank
        trains on the first part of the data, and the rest is used by nobody. Averaged gradients of
        equal batches are those of a single rank.
    """,
    broken="""
        def main():
            generator = torch.Generator().manual_seed(0)
            data = torch.randn(64, 4, generator=generator)
            per_rank = len(data) // world_size
            mine = data[:per_rank]
            model = DDP(torch.nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            seen = []
            for at in range(0, per_rank, 8):
                batch = mine[at:at + 8]
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                seen += batch[:, 0].tolist()
            return seen

        seen = main()
    """,
    fixed="""
        def main():
            generator = torch.Generator().manual_seed(0)
            data = torch.randn(64, 4, generator=generator)
            per_rank = len(data) // world_size
            mine = data[rank * per_rank:(rank + 1) * per_rank]
            model = DDP(torch.nn.Linear(4, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            seen = []
            for at in range(0, per_rank, 8):
                batch = mine[at:at + 8]
                optimizer.zero_grad()
                model(batch).square().mean().backward()
                optimizer.step()
                seen += batch[:, 0].tolist()
            return seen

        seen = main()
    """,
    proof="""
        every = [None] * world_size
        dist.all_gather_object(every, seen)
        assert len({value for part in every for value in part}) == 64
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "let the slice begin at the rank's own place: "
            "`data[rank * per_rank:(rank + 1) * per_rank]`, or `data[rank::world_size]`",
        ),
    ),
    cluster="""
        The more ranks there are, the smaller the part that all of them train on: with 64 ranks, a
        64th of the data. Throughput and utilisation look right.
    """,
    apart={
        "no-distributed-sampler": "a loader gives each rank all of the data",
        "shard-overlap": "the parts are different and overlap",
    },
    references=(
        Reference(
            "DistributedDataParallel: inputs are to be divided among the processes by the user",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
