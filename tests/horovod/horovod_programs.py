"""Programs of Horovod for two ranks, in the form of its examples, with places for a fault."""

from __future__ import annotations

from tests.trainers.programs import program

HEAD = """
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data.distributed
import horovod.torch as hvd

hvd.init()
torch.manual_seed(42)
# after the start
"""

#: In the form of ``pytorch_mnist.py``: sampler, broadcasts, epochs of training and a test.
MNIST = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, kernel_size=3)
        self.fc = nn.Linear(4 * 3 * 3, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv(x), 2))
        x = F.dropout(x.flatten(1), training=self.training)
        return F.log_softmax(self.fc(x), dim=1)


generator = torch.Generator().manual_seed(1)
images = torch.randn(70, 1, 8, 8, generator=generator)
digits = torch.randint(0, 10, (70,), generator=generator)
data = torch.utils.data.TensorDataset(images, digits)
train_sampler = torch.utils.data.distributed.DistributedSampler(
    data, num_replicas=hvd.size(), rank=hvd.rank()
)
train_loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=train_sampler)
test_sampler = torch.utils.data.distributed.DistributedSampler(
    data, num_replicas=hvd.size(), rank=hvd.rank()
)
test_loader = torch.utils.data.DataLoader(data, batch_size=16, sampler=test_sampler)
model = Net()
# before the optimizer
optimizer = torch.optim.SGD(model.parameters(), lr=0.01 * hvd.size(), momentum=0.5)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), op=hvd.Average
)


def metric_average(value, name):
    return hvd.allreduce(torch.tensor(value), name=name).item()


def train_epoch(epoch):
    model.train()
    train_sampler.set_epoch(epoch)
    for step, (image, digit) in enumerate(train_loader):
        # in a step
        optimizer.zero_grad()
        loss = F.nll_loss(model(image), digit)
        loss.backward()
        optimizer.step()


def test():
    model.eval()
    loss = accuracy = 0.0
    for image, digit in test_loader:
        output = model(image)
        loss += F.nll_loss(output, digit, reduction="sum").item()
        accuracy += output.argmax(1).eq(digit).float().sum().item()
    loss = metric_average(loss / len(test_sampler), "avg_loss")
    accuracy = metric_average(accuracy / len(test_sampler), "avg_accuracy")
    if hvd.rank() == 0:
        print(f"average loss {loss:.4f}, accuracy {accuracy:.2f}")


for epoch in range(2):
    train_epoch(epoch)
    # after an epoch
    test()
# at the end
"""
)

#: In the form of ``pytorch_synthetic_benchmark.py``: one batch of random numbers, compression.
SYNTHETIC = (
    HEAD
    + """
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), compression=hvd.Compression.fp16
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)
data = torch.randn(8, 16)
target = torch.randint(0, 4, (8,))
for iteration in range(10):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(data), target)
    loss.backward()
    optimizer.step()
if hvd.rank() == 0:
    print(f"{loss.item():.3f}")
"""
)

#: An embedding with sparse gradients, which Horovod gathers instead of reducing them.
SPARSE = (
    HEAD
    + """
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8, sparse=True)
        self.out = nn.Linear(8, 5)

    def forward(self, words):
        return self.out(self.embedding(words).mean(1))


model = Words()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
generator = torch.Generator().manual_seed(hvd.rank())
for step in range(4):
    words = torch.randint(0, 20, (4, 3), generator=generator)
    # in a step
    optimizer.zero_grad()
    loss = F.cross_entropy(model(words), words.sum(1) % 5)
    loss.backward()
    optimizer.step()
"""
)

#: In the form of ``pytorch_imagenet_resnet50.py``: sub-batches, warm-up, averaged metrics.
SUB_BATCHES = (
    HEAD
    + """
import math
import tempfile


class Metric:
    def __init__(self, name):
        self.name, self.sum, self.n = name, torch.tensor(0.0), torch.tensor(0.0)

    def update(self, value):
        self.sum += hvd.allreduce(value.detach(), name=self.name)
        self.n += 1

    @property
    def avg(self):
        return self.sum / self.n


generator = torch.Generator().manual_seed(3)
inputs = torch.randn(64, 12, generator=generator)
data = torch.utils.data.TensorDataset(inputs, inputs.sum(1).gt(0).long())
sampler = torch.utils.data.distributed.DistributedSampler(
    data, num_replicas=hvd.size(), rank=hvd.rank()
)
loader = torch.utils.data.DataLoader(data, batch_size=8, sampler=sampler)
resume_from = hvd.broadcast(torch.tensor(0), root_rank=0, name="resume_from_epoch").item()
model = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(
    model.parameters(), lr=0.0125 * 2 * hvd.size(), momentum=0.9, weight_decay=5e-5
)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), backward_passes_per_step=2
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
hvd.broadcast_optimizer_state(optimizer, root_rank=0)


def adjust_learning_rate(epoch, at):
    epoch += (at + 1) / len(loader)
    share = (epoch * (hvd.size() - 1) / 2 + 1) / hvd.size()
    for group in optimizer.param_groups:
        group["lr"] = 0.0125 * hvd.size() * 2 * share


for epoch in range(resume_from, 2):
    sampler.set_epoch(epoch)
    model.train()
    train_loss = Metric("train_loss")
    for at, (x, y) in enumerate(loader):
        adjust_learning_rate(epoch, at)
        optimizer.zero_grad()
        for i in range(0, len(x), 4):
            loss = F.cross_entropy(model(x[i : i + 4]), y[i : i + 4])
            train_loss.update(loss)
            loss.div_(math.ceil(len(x) / 4))
            loss.backward()
        optimizer.step()
    if hvd.rank() == 0:
        folder = tempfile.mkdtemp()
        torch.save({"model": model.state_dict()}, os.path.join(folder, f"{epoch}.pth"))
        print(f"{train_loss.avg.item():.3f}")
"""
)

#: Ranks have other numbers of batches, ``hvd.join()`` ends each rank's share, and the last rank to
#: do so has made all steps.
JOINS = (
    HEAD
    + """
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
for epoch in range(2):
    for x in torch.randn(3 + 2 * hvd.rank(), 4, 6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    last = hvd.join()
    hvd.broadcast_parameters(model.state_dict(), root_rank=last)
    print(epoch, last)
"""
)

#: Uneven results are gathered, objects exchanged; gradients in two groups, clipped.
GATHERS = (
    HEAD
    + """
model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=model.named_parameters(), num_groups=2
)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
torch.manual_seed(7 + hvd.rank())
for step in range(4):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    with optimizer.skip_synchronize():
        optimizer.step()
model.eval()
found = hvd.allgather(model(torch.randn(3 + hvd.rank(), 6)).detach(), name="predictions")
names = hvd.allgather_object(f"rank {hvd.rank()}")
settings = {"seed": 7} if hvd.rank() == 0 else None
settings = hvd.broadcast_object(settings, root_rank=0, name="settings")
splits = torch.tensor([1, 3], dtype=torch.int32)
parts, sizes = hvd.alltoall(torch.arange(4.0), splits=splits, name="parts")
print(found.shape, names, settings, parts.shape)
"""
)

#: Two pairs of ranks would train a model each; here each set has one rank.
PROCESS_SETS = """
import horovod.torch as hvd

own = [hvd.ProcessSet([0]), hvd.ProcessSet([1])]
hvd.init(process_sets=own)
total = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="all")
alone = hvd.allreduce(torch.ones(3), op=hvd.Sum, name="own", process_set=own[hvd.rank()])
print(total.sum().item(), alone.sum().item())
hvd.barrier()
hvd.shutdown()
"""
#: A program, the symptom, the culprits, and a line that the finding has to name.
FAULTS = {
    "one rank tests": (
        program(MNIST, "after an epoch", "if hvd.rank() < 1:\n    test()").replace(
            "    test()\n# at the end", "# at the end"
        ),
        "D.2.1",
        [1],
        "if hvd.rank() < 1:",
    ),
    "names differ": (
        program(MNIST, "at the end", 'hvd.allreduce(torch.ones(1), name=f"loss of {hvd.rank()}")'),
        "D.2.1",
        [0, 1],
        'hvd.allreduce(torch.ones(1), name=f"loss of {hvd.rank()}")',
    ),
    "shapes differ": (
        program(MNIST, "before the optimizer", "model.fc = nn.Linear(36, 10 + hvd.rank())"),
        "D.1.1",
        [0, 1],
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
    ),
    "types differ": (
        program(
            MNIST,
            "at the end",
            "score = torch.zeros(3, dtype=torch.float64 if hvd.rank() else torch.float32)\n"
            'hvd.allreduce(score, name="score")',
        ),
        "D.1.1",
        [0, 1],
        'hvd.allreduce(score, name="score")',
    ),
    "fewer steps": (
        program(MNIST, "in a step", "if step == 4 - hvd.rank():\n    break").replace(
            "    test()\n# at the end", "# at the end"
        ),
        "D.2.1",
        [1],
        "if step == 4 - hvd.rank():",
    ),
    "one rank joins": (
        program(
            MNIST,
            "at the end",
            "writer = object() if hvd.rank() == 0 else None\nif writer:\n    hvd.join()",
        ),
        "D.2.1",
        [1],
        "if writer:",
    ),
    "the same data": (
        program(
            MNIST,
            "before the optimizer",
            "train_loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)",
        ),
        "D.2.2",
        [0, 1],
        "for step, (image, digit) in enumerate(train_loader):",
    ),
    "a sparse step is skipped": (
        program(SPARSE, "in a step", "if hvd.rank() == 1 and step == 2:\n    continue"),
        "D.2.1",
        [1],
        "if hvd.rank() == 1 and step == 2:",
    ),
    "opposite order": (
        program(
            MNIST,
            "at the end",
            'for name in ("loss", "accuracy") if hvd.rank() else ("accuracy", "loss"):\n'
            "    metric_average(1.0, name)",
        ),
        "D.2.1",
        [0, 1],
        "return hvd.allreduce(torch.tensor(value), name=name).item()",
    ),
    "a rank raises": (
        program(
            MNIST, "in a step", 'if hvd.rank() == 1 and step == 2:\n    raise ValueError("bad")'
        ),
        "D.1.11",
        [1],
        'raise ValueError("bad")',
    ),
    "a rank dies": (
        program(MNIST, "in a step", "if hvd.rank() == 1 and step == 2:\n    os._exit(3)"),
        "D.1.11",
        [1],
        "loss.backward()",
    ),
}
