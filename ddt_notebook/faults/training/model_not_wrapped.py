"""Every rank trains a separate copy of the model."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="model-not-wrapped",
    title="the model is not wrapped in DDP",
    symptoms=("D.2.2", "D.2.5"),
    views=("placement", "parity"),
    n=2,
    sees="""
        The job runs on all processes and the loss falls, but it ends no better than one process
        alone, and each rank saves other weights. Twice the hardware gives no better result.
    """,
    why="""
        Starting several processes does not make training parallel. Only the wrapper registers the
        hooks that average gradients in the backward pass; without it each process uses the
        gradients of its share of the data, and the copies differ after the first step.
    """,
    broken="""
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
    """,
    fixed="""
        from torch.utils.data import DataLoader, TensorDataset
        from torch.utils.data.distributed import DistributedSampler

        torch.manual_seed(0)
        data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
        sampler = DistributedSampler(data)
        loader = DataLoader(data, batch_size=8, sampler=sampler)
        model = DDP(torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        for epoch in range(2):
            sampler.set_epoch(epoch)
            for x, y in loader:
                optimizer.zero_grad()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
    """,
    proof="""
        for parameter in model.parameters():
            copies = [torch.empty_like(parameter) for _ in range(world_size)]
            dist.all_gather(copies, parameter.detach())
            assert all(torch.equal(copy, parameter) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 17, 1: 17}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "wrap the model in DistributedDataParallel, call the wrapped one in training, and give "
            "its parameters to the optimizer",
        ),
        Advice(
            "fix device assignment",
            "on GPUs, move the model to the device of its LOCAL_RANK first, then wrap it",
        ),
        Advice(
            "fix dependency installation/version",
            "if world_size is 1 in every process, the launcher (torchrun, mpirun) belongs to "
            "another installation: install both from one place",
        ),
    ),
    cluster="""
        All GPUs are busy and NCCL is silent: no collective in the profile, no line in the log with
        NCCL_DEBUG=INFO after initialisation. Throughput scales perfectly, which is itself a sign;
        checkpoints of two ranks differ.
    """,
    apart={
        "module-called-past-ddp": "the wrapper exists, but is not what is called",
        "no-distributed-sampler": "gradients are averaged, but of the same samples",
    },
    references=(
        Reference(
            "DistributedDataParallel: what the wrapper does",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
        Reference(
            "Gradients that are not reduced after a DDP model was moved between devices",
            "https://github.com/pytorch/pytorch/issues/104336",
        ),
    ),
)
