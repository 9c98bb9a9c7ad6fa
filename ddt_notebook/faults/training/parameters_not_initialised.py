"""Parameters get memory without values, and nobody initialises them before training."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="parameters-not-initialised",
    title="parameters that were materialised are never initialised",
    symptoms=("D.2.5",),
    n=2,
    sees="""
        The loss is nan, huge or constant from the first step on, and another value in each run. A
        smaller model may train as it should, because its memory happened to hold zeros.
    """,
    why="""
        A model that is built on the meta device has shapes, but no values. `to_empty` gives its
        parameters memory and leaves in it what was there before: the initial values have to be
        written afterwards, by the `reset_parameters` of every layer or from a checkpoint. DDP
        copies the memory of rank 0 to all, and FSDP trains that of each rank. A `reset_parameters`
        of the user's own that leaves out some of its layers has the same effect on those.
    """,
    broken="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))
                self.head = torch.nn.Linear(64, 1)
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).relu()
                return self.head(x)
            def reset_parameters(self):
                self.head.reset_parameters()

        earlier = [torch.full((64, 64), 1e38) for _ in range(50)]
        earlier = earlier[::2]
        with torch.device("meta"):
            net = Net()
        net.to_empty(device="cpu")
        net.reset_parameters()
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            loss = model(torch.randn(8, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(3))
                self.head = torch.nn.Linear(64, 1)
            def forward(self, x):
                for layer in self.layers:
                    x = layer(x).relu()
                return self.head(x)
            def reset_parameters(self):
                for layer in [*self.layers, self.head]:
                    layer.reset_parameters()

        earlier = [torch.full((64, 64), 1e38) for _ in range(50)]
        earlier = earlier[::2]
        with torch.device("meta"):
            net = Net()
        net.to_empty(device="cpu")
        net.reset_parameters()
        model = DDP(net)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for step in range(4):
            loss = model(torch.randn(8, 64)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert loss.isfinite()
        assert all(parameter.abs().max() < 1 for parameter in model.parameters())
    """,
    expected=Expected(ranks=(0,), lines={0: 17}, confidence="likely"),
    fixes=(
        Advice(
            "fix model construction",
            "initialise every layer after `to_empty`: `for m in model.modules(): if hasattr(m, "
            "'reset_parameters'): m.reset_parameters()`, before the model is wrapped",
        ),
        Advice(
            "fix model construction",
            "or load the values, with `load_state_dict`, before the first step",
        ),
    ),
    cluster="""
        Look for the meta device, `to_empty`, `skip_init` and `init_empty_weights` in the code that
        builds the model, and print the largest absolute value of each parameter before the first
        step.
    """,
    apart={
        "loss-not-finite": "every parameter has an initial value, and a formula overflows",
        "nothing-loaded": "the parameters have initial values, but not those of the checkpoint",
    },
    references=(
        Reference(
            "torch.nn.Module.to_empty",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
        ),
    ),
    in_source=False,
)
