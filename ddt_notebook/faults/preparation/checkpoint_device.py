"""A checkpoint is loaded onto the GPU from which it was saved."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="checkpoint-device",
    title="the checkpoint is loaded onto a device that is not there",
    symptoms=("C.1", "C.5", "D.1.6"),
    views=("placement",),
    sees="""
        torch.load raises `Attempting to deserialize object on CUDA device 2`, or on a CUDA device
        at all, where there are fewer GPUs than on the machine that wrote the file, or none.
    """,
    why="""
        A saved tensor keeps the name of its device, and torch.load puts it back there unless
        map_location says otherwise. A map that counts by the global rank asks for GPUs that a
        machine does not have; with no map at all, every rank loads onto the GPU of the rank that
        saved.
    """,
    setup=SCRATCH,
    n=3,
    options={"simulate": "cuda:2"},
    broken="""
        model = torch.nn.Linear(8, 4).to(device)
        if rank == 0:
            torch.save(model.state_dict(), "last.pt")
        dist.barrier()

        state = torch.load("last.pt", map_location={"cuda:0": f"cuda:{rank}"})
        model.load_state_dict(state)
        model = DDP(model)
    """,
    fixed="""
        model = torch.nn.Linear(8, 4).to(device)
        if rank == 0:
            torch.save(model.state_dict(), "last.pt")
        dist.barrier()

        state = torch.load("last.pt", map_location=device)
        model.load_state_dict(state)
        model = DDP(model)
    """,
    proof="""
        assert state["weight"].device == device
        assert model(torch.ones(2, 8, device=device)).device == device
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 8, 1: 8, 2: 6}),
    fixes=(
        Advice(
            "fix device assignment",
            "load with map_location=device, the device of this rank, or with map_location='cpu' "
            "and let load_state_dict copy",
        ),
        Advice(
            "save single-device model/weights only",
            "move the tensors to the CPU before saving, so that the file names no device",
        ),
    ),
    gloo=("Attempting to deserialize object on CUDA device 2 but torch.cuda.device_count() is 2",),
    nccl=(
        "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False",
    ),
    cluster="""
        Resuming on smaller nodes fails at once. On equal nodes nothing is raised: `nvidia-smi`
        shows one process of every rank on the same GPU, which then runs out of memory first.
    """,
    apart={"device-ordinal": "the program itself names the device, not the file"},
    references=(
        Reference(
            "PyTorch issue 23138: resuming puts a process of every rank on GPU 0",
            "https://github.com/pytorch/pytorch/issues/23138",
        ),
        Reference(
            "torch.load: map_location",
            "https://docs.pytorch.org/docs/stable/generated/torch.load.html",
        ),
    ),
    in_source=False,
)
