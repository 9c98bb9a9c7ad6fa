"""Programs of the four trainers with more of a project in them, and with a fault.

Each fault has its label: the symptom, the culprit ranks, a part of the user's line, and the causes
that are right.
"""

from __future__ import annotations

from dataclasses import dataclass

from .larger_programs import ACCELERATE, FABRIC, LIGHTNING, TRAINER


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
