"""A batch does not fit into memory."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="out-of-memory",
    title="a step needs more memory than the rank has",
    symptoms=("D.1.2",),
    views=("memory",),
    options={"memory": "400M"},
    sees="""
        The forward or backward pass raises that no memory can be allocated, and says how many bytes
        it requested. A smaller model or batch runs. If the whole machine is short of memory, the
        kernel kills the process without an exception.
    """,
    why="""
        A rank holds parameters, gradients, the optimizer's state, DDP's buckets, and for the
        backward pass every activation of its batch. The activations grow with the batch; the others
        exist once on every rank, however many ranks there are.
    """,
    broken="""
        model = DDP(torch.nn.Sequential(
            torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)
        ))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.randn(32768, 256)
        for step in range(2):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        model = DDP(torch.nn.Sequential(
            torch.nn.Linear(256, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)
        ))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        batch = torch.randn(32768, 256)
        parts = batch.split(2048)
        for step in range(2):
            optimizer.zero_grad()
            with model.no_sync():
                for part in parts[:-1]:
                    (model(part).square().mean() / len(parts)).backward()
            (model(parts[-1]).square().mean() / len(parts)).backward()
            optimizer.step()
    """,
    proof="assert all(torch.isfinite(p.grad).all() for p in model.parameters())",
    expected=Expected(ranks=(0, 1), lines={0: 8, 1: 8}),
    fixes=(
        Advice(
            "fix batch size/data partition",
            "make the batch of a rank smaller, or split it and accumulate gradients",
        ),
        Advice(
            "fix memory/core setting",
            "give each rank more memory, or run fewer ranks on the machine; in a session, "
            "%ddt_show memory shows what uses it",
        ),
        Advice(
            "fix dependency installation/version",
            "if it began with an upgrade: compare the memory of the same step under the old and "
            "the new version of torch and of the library that allocates",
        ),
    ),
    gloo=("DefaultCPUAllocator: can't allocate memory: you tried to allocate 268435456 bytes",),
    nccl=("CUDA out of memory. Tried to allocate", "torch.OutOfMemoryError"),
    cluster="""
        The ranks with the longest sequences fail first, and the others report a lost connection or
        a timeout. If the kernel kills the process, its exit code is -9 and `dmesg` names it.
    """,
    apart={
        "loss-keeps-graph": "the first steps fit and memory grows from step to step",
        "killed-from-outside": "a signal ended the process, and no message mentions memory",
    },
    references=(
        Reference(
            "PyTorch FAQ: my model reports out of memory",
            "https://docs.pytorch.org/docs/stable/notes/faq.html",
        ),
    ),
    in_source=False,
)
