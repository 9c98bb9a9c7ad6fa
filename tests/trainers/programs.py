"""Small training programs, as the users of three libraries write them, with places for a fault."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import ddt_notebook as ddt

ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    data = TensorDataset(torch.randn(66, 6), torch.randn(66, 1))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            # in a step
        with torch.no_grad():
            found = [accelerator.gather_for_metrics(model(x)) for x, y in loader]
        total = torch.cat(found).mean()
        accelerator.print("epoch", epoch, total.item())
        # after an epoch


main()
"""

TRAINER = """
import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x=None, labels=None):
        predicted = self.layers(x)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


class Data(torch.utils.data.Dataset):
    def __init__(self, size):
        self.x, self.labels = torch.randn(size, 6), torch.randn(size, 1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, at):
        return {"x": self.x[at], "labels": self.labels[at]}


class Own(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        pass
        # after an epoch


class OwnTrainer(Trainer):
    def compute_loss(self, model, inputs, **kwargs):
        # in a step
        return super().compute_loss(model, inputs, **kwargs)


def main():
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), use_cpu=True, num_train_epochs=2, report_to=[],
        per_device_train_batch_size=8, save_strategy="no", eval_strategy="epoch", disable_tqdm=True,
    )
    trainer = OwnTrainer(
        model=Net(), args=arguments, callbacks=[Own()],
        train_dataset=Data(50), eval_dataset=Data(20),
    )
    trainer.train()
    # at the end


main()
"""

LIGHTNING = """
import logging

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def training_step(self, batch, number):
        x, y = batch
        # in a step
        return nn.functional.mse_loss(self.layers(x), y)

    def validation_step(self, batch, number):
        x, y = batch
        self.log("loss", nn.functional.mse_loss(self.layers(x), y), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(50, 6), torch.randn(50, 1))
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(Net(), DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8))


main()
"""

FABRIC = """
import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    fabric = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    fabric.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(50, 6), torch.randn(50, 1))
    loader = fabric.setup_dataloaders(DataLoader(data, batch_size=8, shuffle=True))
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer = fabric.setup(model, optimizer)
    for epoch in range(2):
        for step, (x, y) in enumerate(loader):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            fabric.backward(loss)
            optimizer.step()
            # in a step


main()
"""


def program(base: str, place: str = "", lines: str = "") -> str:
    """Return a program with these lines at one of its places."""
    if not place:
        return base
    marked = next(line for line in base.splitlines() if line.strip() == f"# {place}")
    depth = marked[: len(marked) - len(marked.lstrip())]
    return base.replace(marked, indent(lines.strip("\n"), depth))


def run(session: ddt.Session, source: str, way: str, folder: Path) -> ddt.RunResult:
    """Run a program in a cell, or as a script in this folder."""
    if way == "cell":
        return session.run(source)
    file = folder / "train.py"
    file.write_text(source)
    return session.run_script(str(file))
