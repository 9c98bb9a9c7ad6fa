"""Ranks of Horovod that read the same part of the data, or all of it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="horovod-data-undivided",
    title="the ranks of Horovod read the same data",
    symptoms=("C.7", "D.2.2"),
    views=("partition",),
    options={"framework": "horovod"},
    sees="""
        Training runs, an epoch takes as long as with one process, or a part of the data is never
        used. The model is no better than one that was trained by one rank.
    """,
    why="""
        Horovod averages gradients and leaves the data to the program. A DistributedSampler does
        not know its ranks: without arguments it asks a process group of torch, which there is
        none of, and with another number than that of the rank, such as the one of the node,
        several ranks get one part.
    """,
    broken="""
        import horovod.torch as hvd
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        hvd.init()
        data = TensorDataset(torch.arange(32.0).reshape(32, 1))
        sampler = DistributedSampler(
            data, num_replicas=hvd.size(), rank=hvd.cross_rank(), shuffle=False
        )
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        seen = torch.zeros(32)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    fixed="""
        import horovod.torch as hvd
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        hvd.init()
        data = TensorDataset(torch.arange(32.0).reshape(32, 1))
        sampler = DistributedSampler(
            data, num_replicas=hvd.size(), rank=hvd.rank(), shuffle=False
        )
        loader = DataLoader(data, batch_size=4, sampler=sampler)
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        seen = torch.zeros(32)
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).mean().backward()
            optimizer.step()
            seen[x.long().flatten()] += 1
    """,
    proof="""
        assert hvd.allreduce(seen, op=hvd.Sum).tolist() == [1.0] * 32
    """,
    expected=Expected(ranks=(1,), lines={1: 15}, confidence="likely"),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "give the loader `sampler=DistributedSampler(data, num_replicas=hvd.size(), "
            "rank=hvd.rank())`, and call sampler.set_epoch(epoch) before each epoch",
        ),
        Advice(
            "fix device assignment",
            "take hvd.rank(), which counts all ranks: hvd.local_rank() counts those of a node, and "
            "hvd.cross_rank() the nodes",
        ),
    ),
    cluster="""
        Ranks of one node that give their local rank repeat the data of every other node. Logs look
        healthy; a count of the distinct samples of an epoch shows it.
    """,
    apart={
        "horovod-steps-differ": "the parts are of other lengths, and ranks wait at their end",
        "horovod-not-broadcast": "the models and not the data differ",
    },
    references=(
        Reference(
            "Horovod: an example with a DistributedSampler for each rank",
            "https://github.com/horovod/horovod/blob/master/examples/pytorch/pytorch_mnist.py",
        ),
    ),
    in_source=False,
)
