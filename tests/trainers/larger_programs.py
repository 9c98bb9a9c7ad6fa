"""Programs of the four trainers with more of a project in them: healthy ones, and others.

Each fault has its label: the symptom, the culprit ranks, a part of the user's line, and the causes
that are right.
"""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Fault:
    """A program with a fault, and what is right about it.

    Attributes
    ----------
    symptoms
        Codes of which one is right.
    ranks
        The culprits; None if any may be.
    line
        A part of the line that has to change.
    causes
        Cards of which one is right.
    """

    source: str
    symptoms: tuple[str, ...]
    ranks: tuple[int, ...] | None
    line: str
    causes: tuple[str, ...]


_LOCAL = ("collective-under-local-condition",)
_BY_RANK = ("collective-under-rank-condition",)

FAULTS = {
    "accelerate stops by each rank's loss": Fault(
        ACCELERATE
        + """
class Patience:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def seen(self, loss):
        if loss < self.best:
            self.best, self.bad = loss, 0
        else:
            self.bad += 1
        return self.bad >= self.patience


def main():
    accelerator = Accelerator(cpu=True)
    set_seed(2)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.001),
        DataLoader(TensorDataset(*make_data(64)), 4, shuffle=True),
    )
    patience = Patience(2)
    for epoch in range(3):
        for x, y in loader:
            loss = nn.functional.mse_loss(net(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if patience.seen(loss.item()):
                accelerator.print("no progress")
                break


main()
""",
        ("D.2.1", "D.1.1"),
        None,
        "if patience.seen(loss.item()):",
        (*_LOCAL, "uneven-iterations"),
    ),
    "accelerate saves on the main process": Fault(
        ACCELERATE
        + """
def main():
    project = ProjectConfiguration(tempfile.mkdtemp(), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
    )
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
        if accelerator.is_main_process:
            accelerator.save_state()


main()
""",
        ("D.2.1", "D.1.1"),
        None,
        "if accelerator.is_main_process:",
        _BY_RANK,
    ),
    "accelerate accumulates differently": Fault(
        ACCELERATE
        + """
def main():
    steps = 3 if os.environ["LOCAL_RANK"] == "0" else 1
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
    )
    for x, y in loader:
        with accelerator.accumulate(net):
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
            optimizer.zero_grad()
    accelerator.wait_for_everyone()


main()
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        "accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)",
        ("trainer-arguments-differ",),
    ),
    "accelerate trains what it unwrapped": Fault(
        ACCELERATE
        + """
def main():
    accelerator = Accelerator(cpu=True)
    net = make_net()
    net, optimizer, loader = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
    )
    plain = accelerator.unwrap_model(net)
    for x, y in loader:
        optimizer.zero_grad()
        predicted = plain(x)
        accelerator.backward(nn.functional.mse_loss(predicted, y))
        optimizer.step()


main()
""",
        ("D.2.2",),
        (0, 1),
        "predicted = plain(x)",
        ("module-called-past-ddp",),
    ),
    "accelerate prints one rank's error": Fault(
        ACCELERATE
        + """
def main():
    accelerator = Accelerator(cpu=True)
    net = make_net()
    net, optimizer, train, test = accelerator.prepare(
        net,
        torch.optim.SGD(net.parameters(), lr=0.05),
        DataLoader(TensorDataset(*make_data()), 4, shuffle=True),
        DataLoader(TensorDataset(*make_data(40, 5)), 4),
    )
    for epoch in range(2):
        for x, y in train:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.mse_loss(net(x), y))
            optimizer.step()
        error, count = 0.0, 0
        with torch.no_grad():
            for x, y in test:
                error += (net(x) - y).abs().sum().item()
                count += len(y)
        if accelerator.is_main_process:
            print(f"epoch {epoch}: mean error {error / count:.4f}")


main()
""",
        ("D.2.4",),
        (0,),
        'print(f"epoch {epoch}: mean error',
        ("metric-not-reduced",),
    ),
    "trainer stops by each rank's metric": Fault(
        TRAINER
        + """
class Own(Trainer):
    def evaluate(self, *args, **kwargs):
        x, y = make_data(20, 5 + self.args.process_index)
        with torch.no_grad():
            error = nn.functional.mse_loss(self.model.layers(x), y).item()
        if self.args.process_index == 1:
            error += 0.1 * self.state.epoch ** 2
        metrics = {"eval_error": error}
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics


run = Own(
    model=Net(),
    args=arguments(
        num_train_epochs=6, eval_strategy="epoch", save_strategy="epoch", learning_rate=1e-4,
        load_best_model_at_end=True, metric_for_best_model="error", greater_is_better=False,
    ),
    train_dataset=Rows(50), eval_dataset=Rows(20, 5), callbacks=[EarlyStoppingCallback(1)],
)
run.train()
""",
        ("D.2.1", "D.1.1"),
        None,
        "run.train()",
        (*_LOCAL, "uneven-iterations", "different-collectives", "rank-skips-collective"),
    ),
    "trainer's loss leaves the model out": Fault(
        TRAINER
        + """
class Filtered(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **kwargs):
        labels = inputs["labels"]
        if labels.abs().mean() > 2.6:
            loss = torch.zeros((), requires_grad=True)
            return (loss, None) if return_outputs else loss
        return super().compute_loss(model, inputs, return_outputs, **kwargs)


run = Filtered(model=Net(), args=arguments(num_train_epochs=3), train_dataset=Rows(96))
run.train()
""",
        ("D.2.1", "D.1.1"),
        None,
        "if labels.abs().mean() > 2.6:",
        (*_LOCAL, "different-collectives", "uneven-iterations"),
    ),
    "trainer's steps differ": Fault(
        TRAINER
        + """
rank = int(os.environ["RANK"])
budget = 7 if rank == 0 else 5
run = Trainer(model=Net(), args=arguments(max_steps=budget), train_dataset=Rows(120))
run.train()
print("done")
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        "run.train()",
        ("trainer-arguments-differ",),
    ),
    "trainer's own share is shown before a prediction": Fault(
        TRAINER
        + """
run = Trainer(model=Net(), args=arguments(), train_dataset=Rows(50), eval_dataset=Rows(40, 5))
run.train()
near = seen = 0
for batch in run.get_eval_dataloader():
    with torch.no_grad():
        found = run.model.layers(batch["x"])
    near += ((found - batch["labels"]).abs() < 1.5).sum().item()
    seen += len(found)
if run.is_world_process_zero():
    print(f"near {near / seen:.4f}")
print(len(run.predict(Rows(9, 6)).predictions))
""",
        ("D.2.4",),
        (0,),
        'print(f"near {near / seen:.4f}")',
        ("metric-not-reduced",),
    ),
    "lightning gathers on rank 0": Fault(
        LIGHTNING
        + """
class Model(Base):
    def on_validation_epoch_start(self):
        self.found = []

    def validation_step(self, batch, number):
        x, y = batch
        self.found.append((self.net(x) - y).abs())

    def on_validation_epoch_end(self):
        if self.trainer.is_global_zero:
            every = self.all_gather(torch.cat(self.found))
            print("error", every.mean().item())


trainer().fit(Model(), *loaders())
""",
        ("D.2.1", "D.1.1"),
        None,
        "if self.trainer.is_global_zero:",
        _BY_RANK,
    ),
    "lightning logs some losses": Fault(
        LIGHTNING
        + """
class Model(Base):
    def validation_step(self, batch, number):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        if self.global_rank == 1 and loss > 0:
            self.log("large_loss", loss, sync_dist=True)


trainer().fit(Model(), *loaders())
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        'self.log("large_loss", loss, sync_dist=True)',
        ("rank-skips-collective",),
    ),
    "lightning's limits differ": Fault(
        LIGHTNING
        + """
limit = 6 if os.environ["RANK"] == "0" else 4
run = trainer(limit_train_batches=limit)
run.fit(Base(), loaders()[0])
""",
        ("D.2.1", "D.1.1"),
        (0, 1),
        "run.fit(Base(), loaders()[0])",
        ("trainer-arguments-differ",),
    ),
    "fabric saves on rank 0": Fault(
        FABRIC
        + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data()), 4, shuffle=True))
folder = tempfile.mkdtemp()
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(net(x), y))
        optimizer.step()
    if fabric.is_global_zero:
        fabric.save(folder + "/last.ckpt", {"net": net, "epoch": epoch})
""",
        ("D.2.1", "D.1.1"),
        None,
        "if fabric.is_global_zero:",
        _BY_RANK,
    ),
    "fabric skips a bad batch": Fault(
        FABRIC
        + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
x, y = make_data()
x[10] = float("nan")
loader = fabric.setup_dataloaders(DataLoader(TensorDataset(x, y), 4))
for epoch in range(2):
    for a, b in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(a), b)
        if not torch.isfinite(loss):
            continue
        fabric.backward(loss)
        optimizer.step()
""",
        ("D.2.1", "D.1.1"),
        None,
        "if not torch.isfinite(loss):",
        (*_LOCAL, "uneven-iterations", "different-collectives"),
    ),
    "fabric divides the sum of all by its own count": Fault(
        FABRIC
        + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
test = fabric.setup_dataloaders(DataLoader(TensorDataset(*make_data(40, 5)), 4))
total = seen = 0
with torch.no_grad():
    for x, y in test:
        total += (net(x) - y).abs().sum().item()
        seen += len(y)
total = fabric.all_gather(total).sum() / seen
fabric.print(f"error {total:.4f}")
""",
        ("D.2.4",),
        (0,),
        "total = fabric.all_gather(total).sum() / seen",
        ("sum-over-own-count",),
    ),
    "fabric reads the same data": Fault(
        FABRIC
        + """
fabric = start()
net = make_net()
net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), lr=0.05))
loader = DataLoader(TensorDataset(*make_data()), 4, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        fabric.backward(nn.functional.mse_loss(net(x), y))
        optimizer.step()
fabric.print("done")
""",
        ("D.2.2", "C.7"),
        None,
        "for x, y in loader:",
        ("no-distributed-sampler",),
    ),
}
