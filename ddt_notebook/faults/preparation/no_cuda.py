"""The program asks for a GPU that is not available."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="no-cuda",
    title="the program asks for a GPU, and this PyTorch cannot use one",
    symptoms=("C.5", "D.1.3"),
    sees="""
        The first `.cuda()` or `.to("cuda")` raises: Torch is not compiled with CUDA enabled, or no
        NVIDIA driver was found, or no CUDA GPUs are available.
    """,
    why="""
        Three things have to be there: a build of PyTorch with CUDA, a driver that is new enough
        for it, and a GPU that the process may see. A wheel for the CPU lacks the first, a laptop
        the others, and an empty CUDA_VISIBLE_DEVICES hides what is there.
    """,
    setup="""
        import os
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    """,
    broken="""
        device = torch.device("cuda", local_rank)
        model = torch.nn.Linear(8, 2).to(device)
        model = DDP(model, device_ids=[local_rank])
        for step in range(3):
            batch = torch.randn(4, 8, device=device)
            model(batch).square().mean().backward()
    """,
    fixed="""
        use_gpu = torch.cuda.is_available()
        device = torch.device("cuda", local_rank) if use_gpu else torch.device("cpu")
        model = torch.nn.Linear(8, 2).to(device)
        model = DDP(model, device_ids=[local_rank] if use_gpu else None)
        for step in range(3):
            batch = torch.randn(4, 8, device=device)
            model(batch).square().mean().backward()
    """,
    proof="assert model.module.weight.grad is not None",
    expected=Expected(ranks=(0, 1), lines={0: 2, 1: 2}),
    fixes=(
        Advice(
            "fix device assignment",
            "use the device of the session (`device`), which is there on every rank, or choose "
            "it by torch.cuda.is_available()",
        ),
        Advice(
            "fix framework installation/version",
            "where there is a GPU: install a build of torch with CUDA, of a version that the "
            "driver supports (`nvidia-smi` shows it)",
        ),
        Advice(
            "fix dependency installation/version",
            "update the driver if it does not support torch.version.cuda",
        ),
    ),
    gloo=("Torch not compiled with CUDA enabled", "Found no NVIDIA driver on your system"),
    nccl=("No CUDA GPUs are available", "The NVIDIA driver on your system is too old"),
    cluster="""
        All ranks of a node fail alike, those of other nodes run until they wait for the failed
        ranks: one node has another image, another driver, or its scheduler granted no GPU.
    """,
    apart={
        "device-ordinal": "GPUs are there, but fewer than the program asks for",
        "device-ids-on-cpu": "the model was never moved",
    },
    references=(
        Reference("torch.cuda", "https://docs.pytorch.org/docs/stable/cuda.html"),
        Reference("Install PyTorch", "https://pytorch.org/get-started/locally/"),
    ),
    in_source=False,
)
