"""Faults of the four trainers in data, seeds and metrics; see `larger_faults`."""

from __future__ import annotations

from .larger_faults import Fault
from .larger_programs import ACCELERATE, FABRIC, LIGHTNING, TRAINER

#: A weighted error of an evaluation, added up on each rank.
_EVALUATION = (
    ACCELERATE
    + """
def evaluate(accelerator, net, loader):
    sums = {"error": 0, "weight": 0}
    for x, y in loader:
        with torch.no_grad():
            weight = (y > 0).float() + 0.5
            sums["error"] += (weight * (net(x) - y).abs()).sum()
            sums["weight"] += weight.sum()
    return sums


accelerator = Accelerator(cpu=True)
net, loader = accelerator.prepare(make_net(), DataLoader(TensorDataset(*make_data(24)), 4))
sums = evaluate(accelerator, net, loader)
"""
)

FAULTS = {
    "accelerate's ranks all save tensors to one file": Fault(
        ACCELERATE
        + """
from safetensors.torch import save_file

accelerator = Accelerator(cpu=True)
net = accelerator.prepare(make_net())
tensors = accelerator.unwrap_model(net).state_dict()
folder = os.path.join(tempfile.gettempdir(), "tensors-" + os.environ["MASTER_PORT"])
os.makedirs(folder, exist_ok=True)
save_file(tensors, os.path.join(folder, "model.safetensors"))
""",
        ("D.1.6",),
        None,
        "save_file(tensors",
        ("checkpoint-written-by-every-rank",),
    ),
    "accelerate divides one rank's sum by the weights of all": Fault(
        _EVALUATION
        + """
sums["weight"] = accelerator.gather(sums["weight"]).sum()
accelerator.print(f"error {(sums['error'] / sums['weight']).item():.5f}")
""",
        ("D.2.4",),
        (0,),
        'accelerator.print(f"error',
        ("metric-not-reduced",),
    ),
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
    "lightning's result of one rank's share is shown": Fault(
        LIGHTNING
        + """
class Model(Base):
    def validation_step(self, batch, number):
        x, y = batch
        error = nn.functional.l1_loss(self.net(x), y)
        self.log("val_error", error)
        self.log("val_square", error**2, sync_dist=True)


run = trainer()
run.fit(Model(), *loaders())
if run.is_global_zero:
    print(f"error {run.callback_metrics['val_error'].item():.5f}")
""",
        ("D.2.4",),
        (0,),
        'print(f"error {run.callback_metrics',
        ("metric-not-reduced",),
    ),
    "trainer's own sampler has an order for each rank": Fault(
        TRAINER
        + """
class Mixed(torch.utils.data.Sampler):
    def __init__(self, size, seed):
        self.size, self.random = size, torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(torch.randperm(self.size, generator=self.random).tolist())


class Mixes(Trainer):
    def _get_train_sampler(self, dataset=None):
        return Mixed(len(self.train_dataset), self.args.seed + self.args.process_index)


run = Mixes(model=Net(), args=arguments(), train_dataset=Rows(64))
run.train()
""",
        ("C.7",),
        (0, 1),
        "def __iter__(self):",
        ("sampler-seeded-by-rank",),
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
    "trainer has another teacher on each rank": Fault(
        TRAINER
        + """
class Distils(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        found = model(**inputs)
        with torch.no_grad():
            wanted = teacher(inputs["x"])
        loss = found["loss"] + nn.functional.mse_loss(found["logits"], wanted)
        return (loss, found) if return_outputs else loss


given = arguments()
torch.manual_seed(20 + given.process_index)
teacher = nn.Linear(6, 1)
Distils(model=Net(), args=given, train_dataset=Rows(48)).train()
""",
        ("D.2.5",),
        (0, 1),
        'wanted = teacher(inputs["x"])',
        ("teacher-differs",),
    ),
    "lightning computes a metric on rank 0 after an epoch": Fault(
        LIGHTNING
        + """
import torchmetrics


class Model(Base):
    def __init__(self):
        super().__init__()
        self.error, self.best = torchmetrics.MeanMetric(), torchmetrics.MinMetric()

    def validation_step(self, batch, number):
        x, y = batch
        self.error(nn.functional.mse_loss(self.net(x), y))
        self.log("val_error", self.error)

    def on_validation_epoch_end(self):
        self.best(self.error.compute())
        if self.trainer.is_global_zero:
            self.log("best", self.best.compute(), sync_dist=True)


trainer().fit(Model(), *loaders())
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        "if self.trainer.is_global_zero:",
        ("collective-under-rank-condition",),
    ),
    "fabric leaves out the second model": Fault(
        FABRIC
        + """
fabric = start()
net, head = nn.Linear(6, 4), nn.Linear(4, 1)
net_optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
head_optimizer = torch.optim.SGD(head.parameters(), lr=0.05)
head, head_optimizer = fabric.setup(head, head_optimizer)
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
for epoch in range(2):
    for x, y in loader:
        net_optimizer.zero_grad()
        head_optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(head(net(x)), y))
        head_optimizer.step()
        net_optimizer.step()
""",
        ("D.2.2",),
        (0, 1),
        "net_optimizer.step()",
        ("model-not-wrapped", "gradients-not-reduced"),
    ),
    "accelerate shuffles a list on each rank before local SGD": Fault(
        ACCELERATE
        + """
import random

from accelerate.local_sgd import LocalSGD

accelerator = Accelerator(cpu=True)
x, y = make_data(48)
rows = list(zip(x, y))
random.Random(os.getpid()).shuffle(rows)
net = make_net()
net, optimizer, loader = accelerator.prepare(
    net, torch.optim.SGD(net.parameters(), lr=0.05), DataLoader(rows, batch_size=4)
)
for epoch in range(2):
    with LocalSGD(accelerator=accelerator, model=net, local_sgd_steps=2, enabled=True) as local:
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
            local.step()
""",
        ("C.7",),
        (0, 1),
        "for x, y in loader:",
        ("split-differs",),
    ),
}

HEALTHY = {
    "accelerate divides the sum of all by the weights of all": _EVALUATION
    + """
sums = {name: accelerator.gather(value).sum() for name, value in sums.items()}
accelerator.print(f"error {(sums['error'] / sums['weight']).item():.5f}")
""",
    "lightning shows results of all ranks, and of training": LIGHTNING
    + """
class Model(Base):
    def validation_step(self, batch, number):
        x, y = batch
        error = nn.functional.l1_loss(self.net(x), y)
        self.log("val_error", error, sync_dist=True)
        self.log("val_square", self.all_gather(error**2).mean())


run = trainer()
run.fit(Model(), *loaders())
if run.is_global_zero:
    print({name: value.item() for name, value in run.callback_metrics.items()})
""",
    "trainer's own sampler has one order": TRAINER
    + """
class Mixed(torch.utils.data.Sampler):
    def __init__(self, size, seed):
        self.size, self.random = size, torch.Generator().manual_seed(seed)

    def __len__(self):
        return self.size

    def __iter__(self):
        return iter(torch.randperm(self.size, generator=self.random).tolist())


class Mixes(Trainer):
    def _get_train_sampler(self, dataset=None):
        return Mixed(len(self.train_dataset), self.args.seed)


run = Mixes(model=Net(), args=arguments(), train_dataset=Rows(61))
run.train()
""",
}
