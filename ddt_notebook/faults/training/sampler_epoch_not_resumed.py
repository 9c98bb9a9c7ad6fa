"""After training was resumed, the sampler begins again at its first epoch."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="sampler-epoch-not-resumed",
    title="after training was resumed, the sampler begins again at its first epoch",
    symptoms=("D.2.5",),
    sees="""
        A job that was resumed shows the samples in the order that it showed at its very beginning.
        The curve of the loss has a kink where it was resumed, and repeated restarts train on the
        same orders again and again.
    """,
    why="""
        A DistributedSampler makes its order from its seed and the number of the epoch, and keeps
        no state of its own. Model and optimizer come from the checkpoint, but the loop counts from
        0, so set_epoch gets the numbers of epochs that are over.
    """,
    setup=SCRATCH
    + """
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

def make():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(32, 4))
    sampler = DistributedSampler(data)
    model = DDP(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return model, optimizer, sampler, DataLoader(data, batch_size=4, sampler=sampler)

model, optimizer, sampler, loader = make()
for epoch in range(3):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
states = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
if rank == 0:
    torch.save(states | {"epoch": epoch}, "last.pt")
dist.barrier()
""",
    broken="""
        model, optimizer, sampler, loader = make()
        checkpoint = torch.load("last.pt")
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
    """,
    fixed="""
        model, optimizer, sampler, loader = make()
        checkpoint = torch.load("last.pt")
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
        for epoch in range(start, start + 2):
            sampler.set_epoch(epoch)
            for (x,) in loader:
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
    """,
    proof="assert sampler.epoch == 4",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "save the number of the epoch, and let the loop go on after it: "
            "`for epoch in range(checkpoint['epoch'] + 1, epochs)` with sampler.set_epoch(epoch)",
        ),
    ),
    cluster="""
        Jobs on clusters with a time limit resume often. If each of them lasts for two epochs, the
        model sees two orders of the data for ever.
    """,
    apart={
        "set-epoch-forgotten": "set_epoch is never called, so that all epochs are alike",
        "resumed-without-state": "the optimizer's own state is missing",
    },
    references=(
        Reference(
            "torch.utils.data.distributed.DistributedSampler: set_epoch",
            "https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.distributed.DistributedSampler",
        ),
    ),
    in_source=False,
)
