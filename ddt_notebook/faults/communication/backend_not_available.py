"""NCCL is asked for where it cannot run."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="backend-not-available",
    title="a backend is asked for that this build or machine does not have",
    symptoms=("B.1", "A.1"),
    options={"group": False},
    setup="""
        import os

        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    """,
    sees="""
        "Distributed package doesn't have NCCL built in", or "ProcessGroupNCCL is only supported
        with GPUs, no GPUs found", on every rank at once.
    """,
    why="""
        NCCL is part of the CUDA builds of PyTorch for Linux, and it needs a GPU. The CPU build,
        which pip installs on machines without one, macOS and Windows do not have it. No build that
        can be downloaded contains MPI; to use it, compile PyTorch on a machine that has MPI.
    """,
    broken="""
        dist.init_process_group(backend="nccl")
        model = DDP(torch.nn.Linear(4, 1))
        model(torch.ones(2, 4)).sum().backward()
    """,
    fixed="""
        dist.init_process_group(backend="nccl" if device.type == "cuda" else "gloo")
        model = DDP(torch.nn.Linear(4, 1).to(device))
        model(torch.ones(2, 4, device=device)).sum().backward()
    """,
    proof="assert model.module.weight.grad is not None",
    expected=Expected(ranks=(0, 1), lines={0: 1, 1: 1}),
    fixes=(
        Advice(
            "fix communication configuration",
            "use the gloo backend on CPU; choose by device: nccl for cuda, gloo for cpu",
        ),
        Advice(
            "fix dependency installation/version",
            "if there is a GPU, check the driver and NCCL: `nvidia-smi` must list the GPU, and "
            "torch.cuda.nccl.version() must return a version",
        ),
        Advice(
            "fix framework installation/version",
            "install the CUDA build of torch in place of the CPU build (torch.version.cuda is None "
            "in that)",
        ),
        Advice(
            "change hardware",
            "nccl needs NVIDIA GPUs: run on nodes that have them",
        ),
        Advice(
            "fix build/install configuration",
            "for the mpi backend build PyTorch from source where MPI is installed",
        ),
    ),
    gloo=(),
    nccl=(
        "Distributed package doesn't have NCCL built in",
        "ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
    ),
    cluster="""
        A job that lands on a node without a visible GPU (a wrong partition, no --gpus in the
        request, an empty CUDA_VISIBLE_DEVICES) fails at once, and the other nodes wait for it.
    """,
    apart={
        "backend-unknown": "no build of torch has a backend of that name",
        "no-cuda": "the group was formed and a tensor is to go to a GPU",
    },
    references=(
        Reference(
            "NCCL asked for where it is not built in",
            "https://github.com/pytorch/pytorch/issues/159742",
        ),
        Reference(
            "torch.distributed: backends that come with PyTorch",
            "https://docs.pytorch.org/docs/stable/distributed.html#backends-that-come-with-pytorch",
        ),
    ),
)
