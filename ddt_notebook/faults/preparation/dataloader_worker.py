"""A process of a DataLoader dies."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="dataloader-worker",
    title="a worker process of a DataLoader fails",
    symptoms=("C.2",),
    views=("stacks",),
    sees="""
        One rank raises `DataLoader worker (pid(s) …) exited unexpectedly`, or an exception that
        was caught in worker process 0. The other ranks wait in their next collective and then
        report a lost connection.
    """,
    why="""
        With num_workers > 0 separate processes make the items. When such a process is killed,
        leaves by os._exit or crashes in a native decoder, its rank gets no batch, and the message
        does not contain the error of the process.
    """,
    broken="""
        import os
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Frames(Dataset):
            def __len__(self):
                return 16
            def __getitem__(self, index):
                if index == 5:
                    os._exit(1)
                return torch.full((3,), float(index))

        frames = Frames()
        sampler = DistributedSampler(frames, shuffle=False)
        loader = DataLoader(frames, batch_size=2, sampler=sampler, num_workers=1)
        model = DDP(torch.nn.Linear(3, 1))
        for batch in loader:
            model(batch).sum().backward()
    """,
    fixed="""
        import os
        from torch.utils.data import DataLoader, Dataset, DistributedSampler

        class Frames(Dataset):
            def __len__(self):
                return 16
            def __getitem__(self, index):
                return torch.full((3,), float(index))

        frames = Frames()
        sampler = DistributedSampler(frames, shuffle=False)
        loader = DataLoader(frames, batch_size=2, sampler=sampler, num_workers=1)
        model = DDP(torch.nn.Linear(3, 1))
        for batch in loader:
            model(batch).sum().backward()
    """,
    proof="assert batch.shape == (2, 3) and model.module.weight.grad is not None",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 17, 1: 16}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "run the loader with num_workers=0 to see the failing item, then mend the data or the "
            "decoder; if the worker was killed, use fewer workers or smaller batches",
        ),
        Advice(
            "fix dependency installation/version",
            "a crash in the decoder: match the version of the library that reads the files (image, "
            "video, HDF5) with its native part, and open files inside the worker",
        ),
        Advice(
            "fix memory/core setting",
            "`killed by signal: Bus error` means that shared memory is full: enlarge /dev/shm "
            "(docker: --shm-size or --ipc=host)",
        ),
    ),
    gloo=("DataLoader worker (pid(s) 4711) exited unexpectedly",),
    nccl=("DataLoader worker (pid 4711) is killed by signal: Killed.",),
    cluster="""
        One node of many loses a worker; its rank ends, and the others stop minutes later with a
        timeout of NCCL. `dmesg` on that node shows whether the kernel killed the worker for memory.
    """,
    apart={
        "dataset-item-fails": "the item is made in the rank itself and its line is shown",
        "out-of-memory": "the rank itself gets no memory",
    },
    references=(
        Reference(
            "PyTorch issue 43455: one node's worker killed, the other nodes hang with NCCL errors",
            "https://github.com/pytorch/pytorch/issues/43455",
        ),
        Reference(
            "torch.utils.data: multi-process data loading",
            "https://docs.pytorch.org/docs/stable/data.html",
        ),
    ),
    in_source=False,
)
