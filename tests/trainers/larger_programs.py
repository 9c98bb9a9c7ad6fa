"""Healthy programs of the four trainers with more of a project in them."""

from __future__ import annotations

_DATA = """
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


def make_data(size=52, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 6, generator=generator)
    y = x.sum(1, keepdim=True) + 0.1 * torch.randn(size, 1, generator=generator)
    return x, y


def make_net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
"""
ACCELERATE = (
    _DATA
    + """
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, set_seed
"""
)
TRAINER = (
    _DATA
    + """
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments


class Rows(Dataset):
    def __init__(self, size, seed=0):
        self.x, self.y = make_data(size, seed)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        return {"x": self.x[at], "labels": self.y[at]}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = make_net()

    def forward(self, x, labels=None):
        logits = self.layers(x)
        loss = nn.functional.mse_loss(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


def arguments(**more):
    given = dict(
        output_dir=tempfile.mkdtemp(), use_cpu=True, num_train_epochs=2, report_to=[],
        per_device_train_batch_size=8, save_strategy="no", disable_tqdm=True, seed=3,
    )
    return TrainingArguments(**{**given, **more})
"""
)
LIGHTNING = (
    _DATA
    + """
import logging

import lightning as L
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.utilities import rank_zero_only

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Base(L.LightningModule):
    def __init__(self, lr=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = make_net()

    def training_step(self, batch, number):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def loaders(batch_size=4):
    train, val = TensorDataset(*make_data()), TensorDataset(*make_data(20, 5))
    return DataLoader(train, batch_size, shuffle=True), DataLoader(val, batch_size)


def trainer(**more):
    given = dict(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    return L.Trainer(**{**given, **more})
"""
)
FABRIC = (
    _DATA
    + """
import lightning as L
from lightning.fabric import seed_everything


def start():
    fabric = L.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    seed_everything(7, verbose=False)
    return fabric
"""
)

HEALTHY = {
    "accelerate stops by a trigger": ACCELERATE
    + """
def main():
    accelerator = Accelerator(cpu=True)
    set_seed(2)
    loader = DataLoader(TensorDataset(*make_data()), batch_size=4, shuffle=True, drop_last=True)
    model, optimizer, loader = accelerator.prepare(
        net := make_net(), torch.optim.AdamW(net.parameters(), lr=0.01), loader
    )
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if loss.item() < 1.0 + accelerator.process_index:
                accelerator.set_trigger()
            if accelerator.check_trigger():
                break
        accelerator.print("epoch", epoch)


main()
""",
    "accelerate accumulates": ACCELERATE
    + """
def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    net = make_net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=20)
    loader = DataLoader(TensorDataset(*make_data()), batch_size=4, shuffle=True)
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    for epoch in range(2):
        for x, y in loader:
            with accelerator.accumulate(net):
                loss = nn.functional.mse_loss(net(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        torch.save(accelerator.unwrap_model(net).state_dict(), tempfile.mkdtemp() + "/net.pt")


main()
""",
    "accelerate saves and loads its state": ACCELERATE
    + """
def main():
    folder = os.path.join(tempfile.gettempdir(), "accelerate-state-" + os.environ["MASTER_PORT"])
    accelerator = Accelerator(cpu=True)
    with accelerator.local_main_process_first():
        data = TensorDataset(*make_data())
    net = make_net()
    net, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), DataLoader(data, 4)
    )
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
        accelerator.save_state(folder)
        accelerator.wait_for_everyone()
    accelerator.load_state(folder)
    accelerator.wait_for_everyone()
    accelerator.print("loaded")


main()
""",
    "accelerate gathers metrics": ACCELERATE
    + """
def main():
    accelerator = Accelerator(cpu=True)
    net = make_net()
    net, optimizer, train, test = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
        DataLoader(TensorDataset(*make_data(21, 5)), 4),
    )
    for epoch in range(2):
        net.train()
        for x, y in train:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
        net.eval()
        errors = []
        for x, y in test:
            with torch.no_grad():
                predicted = net(x)
            predicted, wanted = accelerator.gather_for_metrics((predicted, y))
            errors.append((predicted - wanted).abs())
        found = torch.cat(errors)
        accelerator.print(f"epoch {epoch}: error {found.mean().item():.4f} of {len(found)}")


main()
""",
    "accelerate trains on folds": ACCELERATE
    + """
def main():
    accelerator = Accelerator(cpu=True)
    x, y = make_data(60)
    scores = []
    for fold in range(3):
        held = torch.arange(60) % 3 == fold
        net = make_net()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
        train = DataLoader(TensorDataset(x[~held], y[~held]), 4, shuffle=True)
        test = DataLoader(TensorDataset(x[held], y[held]), 4)
        net, optimizer, train, test = accelerator.prepare(net, optimizer, train, test)
        for a, b in train:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(a), b))
            optimizer.step()
        with torch.no_grad():
            losses = [accelerator.gather(nn.functional.mse_loss(net(a), b)) for a, b in test]
        scores.append(torch.cat(losses).mean().item())
    accelerator.print("scores", scores)


main()
""",
    "trainer stops early": TRAINER
    + """
def errors(found):
    return {"error": float(abs(found.predictions - found.label_ids).mean())}


run = Trainer(
    model=Net(),
    args=arguments(
        num_train_epochs=4, eval_strategy="epoch", save_strategy="epoch", learning_rate=0.01,
        load_best_model_at_end=True, metric_for_best_model="error", greater_is_better=False,
    ),
    train_dataset=Rows(50), eval_dataset=Rows(21, 5), compute_metrics=errors,
    callbacks=[EarlyStoppingCallback(1)],
)
run.train()
print(run.evaluate())
""",
    "trainer's callback prints": TRAINER
    + """
class Say(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if state.is_world_process_zero:
            print(state.global_step, logs)

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 3 == 0:
            control.should_log = True


run = Trainer(model=Net(), args=arguments(), train_dataset=Rows(50), callbacks=[Say()])
run.train()
run.save_model()
if run.is_world_process_zero():
    print(sorted(os.listdir(run.args.output_dir)))
""",
    "trainer accumulates": TRAINER
    + """
class Weighted(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        found = model(**inputs)
        weights = torch.linspace(0.5, 1.5, len(inputs["labels"])).unsqueeze(1)
        loss = (weights * (found["logits"] - inputs["labels"]) ** 2).mean()
        return (loss, found) if return_outputs else loss


run = Weighted(
    model=Net(),
    args=arguments(
        gradient_accumulation_steps=2, max_steps=6, lr_scheduler_type="cosine", warmup_steps=2,
        max_grad_norm=0.5, weight_decay=0.01,
    ),
    train_dataset=Rows(70),
)
run.train()
""",
    "trainer reads a stream": TRAINER
    + """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        x, y = make_data(64)
        for at in range(64):
            yield {"x": x[at], "labels": y[at]}


run = Trainer(model=Net(), args=arguments(max_steps=3), train_dataset=Stream())
run.train()
""",
    "trainer resumes": TRAINER
    + """
folder = os.path.join(tempfile.gettempdir(), "trainer-resumes-" + os.environ["MASTER_PORT"])
given = dict(save_strategy="steps", save_steps=2, output_dir=folder, save_total_limit=2)
Trainer(model=Net(), args=arguments(max_steps=4, **given), train_dataset=Rows(50)).train()
again = Trainer(model=Net(), args=arguments(max_steps=6, **given), train_dataset=Rows(50))
again.train(resume_from_checkpoint=True)
print(again.predict(Rows(9, 5)).metrics)
""",
    "lightning keeps the best": LIGHTNING
    + """
class Model(Base):
    def validation_step(self, batch, number):
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self.net(x), y), sync_dist=True)


folder = os.path.join(tempfile.gettempdir(), "lightning-best-" + os.environ["MASTER_PORT"])
run = trainer(
    max_epochs=3, enable_checkpointing=True, default_root_dir=folder,
    callbacks=[EarlyStopping("val_loss", patience=1), ModelCheckpoint(folder, monitor="val_loss")],
)
run.fit(Model(), *loaders())
""",
    "lightning's data module": LIGHTNING
    + """
class Data(L.LightningDataModule):
    def prepare_data(self):
        make_data()

    def setup(self, stage):
        self.train, self.test = TensorDataset(*make_data()), TensorDataset(*make_data(24, 5))

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=4, shuffle=True)

    def test_dataloader(self):
        return DataLoader(self.test, batch_size=4)


class Model(Base):
    def test_step(self, batch, number):
        x, y = batch
        self.log("test_loss", nn.functional.mse_loss(self.net(x), y), sync_dist=True)


model, data, run = Model(), Data(), trainer()
run.fit(model, data)
run.test(model, data, verbose=False)
""",
    "lightning trains two networks": LIGHTNING
    + """
class Pair(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        torch.manual_seed(4)
        self.maker, self.judge = nn.Linear(3, 6), nn.Linear(6, 1)

    def training_step(self, batch, number):
        x, _ = batch
        first, second = self.optimizers()
        made = self.maker(torch.randn(len(x), 3))
        self.toggle_optimizer(first)
        loss = nn.functional.softplus(-self.judge(made)).mean()
        self.manual_backward(loss)
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        real = nn.functional.softplus(-self.judge(x)).mean()
        fake = nn.functional.softplus(self.judge(made.detach())).mean()
        self.manual_backward(real + fake)
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)

    def configure_optimizers(self):
        return [
            torch.optim.Adam(self.maker.parameters(), lr=1e-3),
            torch.optim.Adam(self.judge.parameters(), lr=1e-3),
        ]


trainer(strategy="ddp_find_unused_parameters_true").fit(Pair(), loaders()[0])
""",
    "lightning accumulates": LIGHTNING
    + """
class Model(Base):
    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }


trainer(accumulate_grad_batches=2, gradient_clip_val=0.5).fit(Model(), loaders()[0])
""",
    "lightning gathers predictions": LIGHTNING
    + """
class Model(Base):
    def on_validation_epoch_start(self):
        self.found = []

    def validation_step(self, batch, number):
        x, y = batch
        self.found.append((self.net(x) - y).abs())

    def on_validation_epoch_end(self):
        every = self.all_gather(torch.cat(self.found)).flatten()
        self.say(every.mean().item())

    @rank_zero_only
    def say(self, error):
        print("error", error)


trainer().fit(Model(), *loaders())
""",
    "fabric saves and loads": FABRIC
    + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
file = os.path.join(tempfile.gettempdir(), "fabric-" + os.environ["MASTER_PORT"] + ".ckpt")
state = {"net": net, "optimizer": optimizer, "step": 0}
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(net(x), y))
        optimizer.step()
        state["step"] += 1
    fabric.save(file, state)
fabric.load(file, state)
fabric.print("steps", state["step"])
""",
    "fabric accumulates": FABRIC
    + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.AdamW(net.parameters(), lr=0.01))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
for number, (x, y) in enumerate(loader):
    accumulating = number % 3 != 2
    with fabric.no_backward_sync(net, enabled=accumulating):
        fabric.backward(nn.functional.mse_loss(net(x), y) / 3)
    if not accumulating:
        fabric.clip_gradients(net, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
""",
    "fabric reduces its metrics": FABRIC
    + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
train, test = fabric.setup_dataloaders(
    DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
    DataLoader(TensorDataset(*make_data(20, 5)), 4),
)
for epoch in range(2):
    net.train()
    for x, y in train:
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(net(x), y))
        optimizer.step()
    net.eval()
    total = torch.zeros(2)
    with torch.no_grad():
        for x, y in test:
            total += torch.tensor([(net(x) - y).abs().sum().item(), len(y)])
    total = fabric.all_reduce(total, reduce_op="sum")
    if fabric.is_global_zero:
        print("epoch", epoch, "error", (total[0] / total[1]).item())
""",
    "fabric trains on folds": FABRIC
    + """
fabric = start()
x, y = make_data(60)
for fold in range(2):
    held = torch.arange(60) % 2 == fold
    net = make_net()
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
    loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x[~held], y[~held]), 5))
    for a, b in loader:
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(net(a), b))
        optimizer.step()
    fabric.barrier()
""",
    "fabric stops together": FABRIC
    + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.1))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
for epoch in range(4):
    losses = []
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(x), y)
        fabric.backward(loss)
        optimizer.step()
        losses.append(loss.detach())
    mean = fabric.all_reduce(torch.stack(losses).mean(), reduce_op="mean")
    if mean.item() < 2.0:
        break
""",
}
