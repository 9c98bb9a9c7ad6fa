"""A checkpoint without a fitting key is loaded without an error."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.scratch import SCRATCH

CARD = FaultCard(
    id="nothing-loaded",
    title="a checkpoint is loaded with strict=False, and none of its keys fits",
    symptoms=("D.1.6", "C.1", "D.2.5"),
    setup=SCRATCH,
    sees="""
        Nothing is raised. The resumed or fine-tuned model starts with the loss of an untrained one,
        and the test accuracy is that of guessing, though the file is the right one.
    """,
    why="""
        With strict=False load_state_dict skips keys that the model does not know. Saved by the DDP
        wrapper, all keys begin with `module.`, so the bare model knows none of them, and every
        parameter keeps its random value.
    """,
    broken="""
        trained = DDP(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)))
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            trained(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save(trained.state_dict(), "model.pt")
        dist.barrier()

        model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
        model.load_state_dict(torch.load("model.pt"), strict=False)
    """,
    fixed="""
        trained = DDP(torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2)))
        optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            trained(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        if rank == 0:
            torch.save(trained.module.state_dict(), "model.pt")
        dist.barrier()

        model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
        model.load_state_dict(torch.load("model.pt"))
    """,
    proof="assert torch.equal(model[1].weight, trained.module[1].weight)",
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="likely"),
    fixes=(
        Advice(
            "save single-device model/weights only",
            "save the state of the bare model, `ddp.module.state_dict()`, and load it strictly",
        ),
        Advice(
            "fix behavior logic",
            "look at what load_state_dict returns, its missing_keys and unexpected_keys, and use "
            "strict=False only for parts that you can name",
        ),
        Advice(
            "fix distributed API usage",
            "take the prefix off the keys before loading: "
            "torch.nn.modules.utils.consume_prefix_in_state_dict_if_present",
        ),
    ),
    cluster="""
        No log reports it. Resumed jobs show a loss curve that jumps back to its beginning at every
        restart.
    """,
    apart={"state-dict-prefix": "loading is strict and fails"},
    references=(
        Reference(
            "Module.load_state_dict: strict, missing and unexpected keys",
            "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
        ),
        Reference(
            "PyTorch issue 3805: unexpected keys with the prefix of the wrapper",
            "https://github.com/pytorch/pytorch/issues/3805",
        ),
    ),
)
