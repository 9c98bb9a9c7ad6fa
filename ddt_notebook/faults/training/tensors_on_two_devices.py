"""One tensor of an operation was left on the CPU."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="tensors-on-two-devices",
    title="two tensors of one operation are on different devices",
    symptoms=("D.1.3",),
    views=("placement",),
    options={"simulate": "cuda:2"},
    sees="""
        `Expected all tensors to be on the same device`, with both devices and, but for
        element-wise operations, the argument that is elsewhere; at the first step or the first
        time that a branch is taken.
    """,
    why="""
        Moving a model moves its parameters and buffers; moving the inputs moves the inputs. What
        the loop makes itself stays where it was made: targets, masks, class weights, a tensor on
        `cuda:0` written into the code of a rank that owns `cuda:1`.
    """,
    broken="""
        model = DDP(torch.nn.Linear(8, 3).to(device), device_ids=[local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = torch.tensor([1.0, 2.0, 4.0])
        for step in range(3):
            x = torch.randn(4, 8, device=device)
            y = torch.randint(0, 3, (4,), device=device)
            loss = torch.nn.functional.cross_entropy(model(x), y, weight=weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        model = DDP(torch.nn.Linear(8, 3).to(device), device_ids=[local_rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        weights = torch.tensor([1.0, 2.0, 4.0], device=device)
        for step in range(3):
            x = torch.randn(4, 8, device=device)
            y = torch.randint(0, 3, (4,), device=device)
            loss = torch.nn.functional.cross_entropy(model(x), y, weight=weights)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert loss.device == device and weights.device == device",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}),
    fixes=(
        Advice(
            "fix device assignment",
            "make or move every tensor of the line to this rank's device: `device=device`, "
            "`.to(device)`; nowhere write `cuda:0`",
        ),
        Advice(
            "fix distributed API usage",
            "call torch.cuda.set_device(local_rank) first, so that `.cuda()` means this rank's "
            "GPU, and pass device_ids=[local_rank] to DDP",
        ),
        Advice(
            "fix dependency installation/version",
            "if the line is in a library: take a version that makes its tensors on the device of "
            "its inputs",
        ),
    ),
    gloo=("Expected all tensors to be on the same device, but got weight is on cpu",),
    nccl=(
        "Expected all tensors to be on the same device, but got weight is on cpu",
        "Expected all tensors to be on the same device, but found at least two devices",
    ),
    cluster="""
        With a `cuda:0` in the code, rank 0 runs and all others fail. With a tensor on the CPU all
        ranks fail alike.
    """,
    apart={
        "device-ordinal": "the device does not exist",
        "device-without-backend": "a collective is called on a device of no backend",
    },
    references=(
        Reference(
            "PyTorch notes: CUDA semantics",
            "https://docs.pytorch.org/docs/stable/notes/cuda.html",
        ),
    ),
    in_source=False,
)
