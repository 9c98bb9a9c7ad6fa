"""Every rank loads the checkpoint onto the GPU that saved it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-on-one-gpu",
    title="all ranks load a checkpoint onto the GPU of the rank that saved it",
    symptoms=("D.1.6", "D.1.2", "C.5"),
    views=("placement",),
    options={"simulate": "cuda:2"},
    setup=SCRATCH,
    sees="""
        Resuming takes more memory of the first GPU than training from the start did: `nvidia-smi`
        shows a process of every rank there. With a large model, rank 0 runs out of memory.
    """,
    why="""
        A saved tensor keeps the name of its device, and torch.load without map_location puts it
        back there. Rank 0 saved from `cuda:0`, so every rank of the machine loads its copy onto
        `cuda:0`, and it stays as long as the checkpoint is held.
    """,
    broken="""
        torch.cuda.set_device(local_rank)
        model = DDP(torch.nn.Linear(8, 4).to(device), device_ids=[local_rank])
        optimizer = torch.optim.Adam(model.parameters())
        if rank == 0:
            torch.save(model.module.state_dict(), "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt")
        model.module.load_state_dict(checkpoint)
        for step in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 8, device=device)).square().mean().backward()
            optimizer.step()
    """,
    fixed="""
        torch.cuda.set_device(local_rank)
        model = DDP(torch.nn.Linear(8, 4).to(device), device_ids=[local_rank])
        optimizer = torch.optim.Adam(model.parameters())
        if rank == 0:
            torch.save(model.module.state_dict(), "last.pt")
        dist.barrier()

        checkpoint = torch.load("last.pt", map_location=device)
        model.module.load_state_dict(checkpoint)
        for step in range(2):
            optimizer.zero_grad()
            model(torch.randn(4, 8, device=device)).square().mean().backward()
            optimizer.step()
    """,
    proof='assert checkpoint["weight"].device == device',
    expected=Expected(ranks=(1,), lines={1: 8}, confidence="possible"),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "keep no device in the file: save tensors of the CPU, or load with "
            "map_location='cpu' and let load_state_dict copy",
        ),
        Advice(
            "fix device assignment",
            "load with map_location=device, the device of this rank",
        ),
        Advice(
            "fix memory/core setting",
            "delete the checkpoint once it is loaded: it holds a second copy of the model",
        ),
    ),
    nccl=("CUDA out of memory. Tried to allocate",),
    cluster="""
        The first GPU of each machine holds as many extra processes as there are other ranks, some
        hundred megabytes each; the job that trained for days cannot be resumed on the same GPUs.
    """,
    apart={
        "checkpoint-device": "the device does not exist, and loading fails",
        "all-ranks-on-one-gpu": "the models themselves are on one GPU",
    },
    references=(
        Reference(
            "PyTorch issue 23138: resuming puts a process of every rank on GPU 0",
            "https://github.com/pytorch/pytorch/issues/23138",
        ),
        Reference(
            "PyTorch examples issue 1078: the load of the GPUs is unbalanced",
            "https://github.com/pytorch/examples/issues/1078",
        ),
    ),
)
