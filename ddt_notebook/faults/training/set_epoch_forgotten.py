"""The sampler shuffles each epoch in the same order, because set_epoch is not called."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="set-epoch-forgotten",
    title="the same order of samples in every epoch",
    symptoms=("D.2.5", "D.2.2"),
    views=("partition",),
    sees="""
        Training runs and looks normal, but it converges more slowly or to a worse result than on
        one device. In every epoch the batches are made of the same samples, in the same order.
    """,
    why="""
        All ranks must shuffle alike, or their parts would overlap. So DistributedSampler draws its
        order from its seed and the number of the epoch, and nothing else. That number stays 0
        until set_epoch is called, and so does the order.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(40.0).reshape(40, 1))
        loader = DataLoader(data, batch_size=5, sampler=DistributedSampler(data, shuffle=True))
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        firsts = []
        for epoch in range(3):
            for step, (x,) in enumerate(loader):
                if step == 0:
                    firsts.append(x.flatten().tolist())
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        data = TensorDataset(torch.arange(40.0).reshape(40, 1))
        loader = DataLoader(data, batch_size=5, sampler=DistributedSampler(data, shuffle=True))
        model = DDP(torch.nn.Linear(1, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        firsts = []
        for epoch in range(3):
            loader.sampler.set_epoch(epoch)
            for step, (x,) in enumerate(loader):
                if step == 0:
                    firsts.append(x.flatten().tolist())
                optimizer.zero_grad()
                model(x).mean().backward()
                optimizer.step()
    """,
    proof="assert len({tuple(first) for first in firsts}) == 3",
    expected=Expected(ranks=(0, 1), lines={0: 10, 1: 10}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "call sampler.set_epoch(epoch) before each epoch, before the loop asks the loader for "
            "its first batch",
        ),
        Advice(
            "fix distributed API usage",
            "make sampler and loader once, before the loop over epochs: new ones for each epoch "
            "begin at epoch 0 again",
        ),
        Advice(
            "fix framework installation/version",
            "where a library's trainer drives the loop, use a version that calls set_epoch, also "
            "for batch samplers of your own",
        ),
        Advice(
            "save single-device model/weights only",
            "when a run is resumed from a checkpoint, restore the number of the epoch with it and "
            "pass it to set_epoch, or training repeats the order of the first epochs",
        ),
    ),
    cluster="""
        The loss of each step repeats the pattern of the epoch before: the curve has a saw tooth of
        the length of an epoch. The gap to the run on one device grows with the number of epochs.
    """,
    apart={"no-distributed-sampler": "every rank gets all data, shuffled or not"},
    references=(
        Reference(
            "DistributedSampler can't shuffle the dataset",
            "https://github.com/pytorch/pytorch/issues/31771",
        ),
        Reference(
            "DistributedSampler.set_epoch",
            "https://docs.pytorch.org/docs/stable/data.html"
            "#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
)
