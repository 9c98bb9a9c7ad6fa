"""All ranks use one seed, so dropout drops the same units on every rank."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="same-dropout-masks",
    title="dropout draws the same masks on every rank",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        Nothing fails and the loss falls. Regularisation is weaker than on one device with the same
        global batch: the model overfits earlier, and random augmentations repeat across ranks.
    """,
    why="""
        A seed that is equal on all ranks, set for equal initial weights, also makes every later
        random number equal. With batches of one shape each rank drops the same units in each step,
        so that averaging over ranks does not average over masks.
    """,
    broken="""
        torch.manual_seed(42)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1)
        )
        model = DDP(net)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.arange(96.0).reshape(12, 8).sin()

        for step in range(6):
            x = data[rank * 6 : rank * 6 + 6]
            masks = torch.nn.functional.dropout(torch.ones(8), 0.5)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(42)
        net = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 1)
        )
        model = DDP(net)
        torch.manual_seed(42 + rank)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        data = torch.arange(96.0).reshape(12, 8).sin()

        for step in range(6):
            x = data[rank * 6 : rank * 6 + 6]
            masks = torch.nn.functional.dropout(torch.ones(8), 0.5)
            loss = (model(x) - x.sum(dim=1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        both = [torch.empty(8) for _ in range(world_size)]
        dist.all_gather(both, masks)
        assert not torch.equal(both[0], both[1])
    """,
    expected=Expected(ranks=(0, 1), lines={0: 12, 1: 12}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "set the seed to `seed + rank` after the model is built; DDP makes initial weights "
            "equal by itself",
        ),
    ),
    cluster="""
        A launcher or trainer calls seed_everything(seed) on each process. Only the masks themselves
        show it; another rank improves the result less than expected.
    """,
    apart={"no-distributed-sampler": "the samples are the same, not the random numbers"},
    references=(
        Reference(
            "Equal dropout masks on all devices when one seed is set",
            "https://github.com/huggingface/transformers/issues/31412",
        ),
        Reference(
            "Reproducibility: seeds and random number generators",
            "https://docs.pytorch.org/docs/stable/notes/randomness.html",
        ),
    ),
    in_source=False,
)
