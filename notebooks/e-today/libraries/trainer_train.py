"""The same fault with the Trainer of transformers."""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def forward(self, x=None, labels=None):
        predicted = self.layers(x)
        return {"loss": nn.functional.mse_loss(predicted, labels), "logits": predicted}


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, number):
        generator = torch.Generator().manual_seed(number)
        x = torch.randn(6, generator=generator)
        return {"x": x, "labels": x.sum().reshape(1)}


arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    use_cpu=True,
    num_train_epochs=2,
    per_device_train_batch_size=8,
    save_strategy="no",
    report_to=[],
    disable_tqdm=True,
)
trainer = Trainer(model=Network(), args=arguments, train_dataset=Samples(), eval_dataset=Samples())
trainer.train()
if trainer.is_world_process_zero():
    print(trainer.evaluate())
