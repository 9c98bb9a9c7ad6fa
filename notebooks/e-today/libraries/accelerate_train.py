"""The same fault with Accelerate."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
accelerator = Accelerator(cpu=True)
data = TensorDataset(torch.randn(64, 6), torch.randn(64, 1))
network = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
model, optimizer, loader = accelerator.prepare(
    network, torch.optim.SGD(network.parameters(), lr=0.05), DataLoader(data, batch_size=8)
)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
    if accelerator.is_main_process:
        mean = accelerator.gather(loss.detach().reshape(1)).mean()
        print(f"epoch {epoch}: loss {mean.item():.3f}")
