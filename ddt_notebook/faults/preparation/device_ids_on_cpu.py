"""device_ids for a model that is on the CPU."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="device-ids-on-cpu",
    title="device_ids names a GPU for a model that is on the CPU",
    symptoms=("C.5",),
    views=("stacks",),
    sees="""
        Every rank raises a ValueError when it wraps the model: device_ids and output_device only
        work with modules on a GPU, and it lists the devices on which the parameters are.
    """,
    why="""
        device_ids says onto which GPU DDP moves the inputs. If the parameters are on the CPU,
        because the model was never moved or because there is no GPU, the two contradict each
        other, and DDP refuses instead of guessing.
    """,
    broken="""
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        model = DDP(model, device_ids=[local_rank], output_device=local_rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
    """,
    fixed="""
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        model = model.to(device)
        on_gpu = device.type == "cuda"
        model = DDP(model, device_ids=[local_rank] if on_gpu else None)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8, device=device)).square().mean().backward()
            optimizer.step()
    """,
    proof="assert all(p.grad is not None for p in model.parameters())",
    expected=Expected(ranks=(0, 1), lines={0: 2, 1: 2}),
    fixes=(
        Advice(
            "fix device assignment",
            "leave device_ids out for a model on the CPU; for one GPU per rank move the model "
            "first: `model.to(device)`, then `device_ids=[local_rank]`",
        ),
        Advice(
            "fix distributed API usage",
            "give device_ids at most one device; a model that spans several takes none",
        ),
    ),
    gloo=("DistributedDataParallel device_ids and output_device arguments only work with",),
    nccl=("DistributedDataParallel device_ids and output_device arguments only work with",),
    cluster="""
        All ranks stop at the same line before the first step. It often appears when a script
        written for GPUs is tried out on a laptop or on a login node.
    """,
    apart={"no-cuda": "moving to a GPU fails before DDP is reached"},
    references=(
        Reference(
            "DistributedDataParallel: device_ids and output_device",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
)
