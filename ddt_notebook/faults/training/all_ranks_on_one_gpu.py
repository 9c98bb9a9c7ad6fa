"""Every rank trains on the first GPU."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="all-ranks-on-one-gpu",
    title="several ranks train on one GPU while others are idle",
    symptoms=("D.2.2", "D.1.3", "D.1.2"),
    views=("placement", "memory"),
    options={"simulate": "cuda:2"},
    sees="""
        With gloo the job runs, but not faster than on one GPU: `nvidia-smi` shows all processes on
        the first GPU and none on the others. With NCCL it stops with a duplicate GPU.
    """,
    why="""
        `.cuda()` and `"cuda"` mean the current device, which is `cuda:0` in every process until the
        process sets another one. Each rank is a separate process and has to choose its GPU before
        it moves anything.
    """,
    broken="""
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)).cuda()
        model = DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            batch = torch.randn(4, 8).cuda()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.cuda.set_device(local_rank)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 2)).cuda()
        model = DDP(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            batch = torch.randn(4, 8).cuda()
            loss = model(batch).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert loss.device.index == rank",
    expected=Expected(ranks=(0, 1), lines={0: 6, 1: 6}, confidence="likely"),
    fixes=(
        Advice(
            "fix device assignment",
            "call torch.cuda.set_device(local_rank) before anything is moved, or write "
            "`.to(device)` with a device of this rank's own",
        ),
        Advice(
            "fix distributed API usage",
            "start the ranks with torchrun and take LOCAL_RANK from the environment; pass "
            "device_ids=[local_rank] to DDP",
        ),
        Advice(
            "fix memory/core setting",
            "see with `nvidia-smi` that each process has a GPU, and give each only its own with "
            "CUDA_VISIBLE_DEVICES if the program cannot choose",
        ),
    ),
    gloo=(),
    nccl=("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device",),
    cluster="""
        GPU 0 runs out of memory while the others show 0 %. All processes appear under the first GPU
        of each machine, and a step takes as many times longer as there are ranks on it.
    """,
    apart={
        "checkpoint-device": "only what was loaded lies on the first GPU",
        "tensors-on-two-devices": "one operation meets two devices and fails",
    },
    references=(
        Reference(
            "PyTorch examples issue 969: every process allocates memory of GPU 0",
            "https://github.com/pytorch/examples/issues/969",
        ),
        Reference(
            "torch.cuda.set_device",
            "https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_device.html",
        ),
    ),
)
