"""Faults of the four trainers in data, seeds and metrics; see `larger_programs`."""

from __future__ import annotations

from .larger_programs import FABRIC, LIGHTNING, TRAINER, Fault

FAULTS = {
    "trainer draws another part of the data on each rank": Fault(
        TRAINER
        + """
import random

rows = random.SystemRandom().sample(list(Rows(60)), 40)
run = Trainer(model=Net(), args=arguments(), train_dataset=rows)
run.train()
""",
        ("C.7",),
        (0, 1),
        "run.train()",
        ("split-differs",),
    ),
    "lightning averages on rank 0": Fault(
        LIGHTNING
        + """
class Model(Base):
    def validation_step(self, batch, number):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("val_loss", loss, on_step=True, sync_dist=self.global_rank == 0)


trainer().fit(Model(), *loaders())
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        'self.log("val_loss", loss, on_step=True, sync_dist=',
        ("rank-skips-collective",),
    ),
    "fabric seeds by rank": Fault(
        FABRIC
        + """
fabric = start()
L.seed_everything(7 + fabric.global_rank, verbose=False)
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
for x, y in loader:
    optimizer.zero_grad()
    fabric.backward(nn.functional.mse_loss(net(x), y))
    optimizer.step()
""",
        ("C.7",),
        (0, 1),
        "L.seed_everything(7 + ",
        ("sampler-seeded-by-rank",),
    ),
    "a metric that is not synced, beside one that is": Fault(
        FABRIC
        + """
import torchmetrics

fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
train, test = (
    fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data(n, 5)), 4)) for n in (48, 40)
)
mean, error = torchmetrics.MeanMetric(), torchmetrics.MeanSquaredError(sync_on_compute=False)
for x, y in train:
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(net(x), y)
    fabric.backward(loss)
    optimizer.step()
    mean.update(loss.detach())
with torch.no_grad():
    for x, y in test:
        error.update(net(x), y)
loss, mse = mean.compute(), error.compute()
fabric.print(f"loss {loss:.5f} error {mse:.5f}")
""",
        ("D.2.4",),
        (0,),
        'fabric.print(f"loss {loss:.5f}',
        ("metric-not-reduced",),
    ),
}
