"""The same fault with Lightning."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))

    def training_step(self, batch, number):
        x, y = batch
        self.last = nn.functional.mse_loss(self.layers(x), y)
        return self.last

    def on_train_epoch_end(self):
        if self.trainer.is_global_zero:
            mean = self.all_gather(self.last.detach()).mean()
            print(f"epoch {self.current_epoch}: loss {mean.item():.3f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


lightning.seed_everything(0, verbose=False)
data = TensorDataset(torch.randn(64, 6), torch.randn(64, 1))
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_epochs=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Network(), DataLoader(data, batch_size=8))
