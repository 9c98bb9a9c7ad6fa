"""A contrastive loss compares samples only with those of the same rank."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="negatives-of-one-rank",
    title="a contrastive loss sees only the samples of its own rank",
    symptoms=("D.2.4", "D.2.5"),
    n=2,
    sees="""
        Nothing fails, and the loss is even lower than on one device. With the same global batch,
        representations get worse with each rank that is added.
    """,
    why="""
        A contrastive loss is not a sum over samples: each sample is compared with all others of the
        batch. On several ranks each loss sees the samples of its own rank, so the number of
        negatives falls with the number of ranks. Averaging gradients does not bring them back.
    """,
    broken="""
        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(6):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            scores = a @ b.T / 0.1
            loss = torch.nn.functional.cross_entropy(scores, torch.arange(8))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        import torch.distributed.nn.functional

        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        for step in range(6):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            keys = torch.cat(dist.nn.functional.all_gather(b.contiguous()))
            scores = a @ keys.T / 0.1
            labels = torch.arange(8) + 8 * rank
            loss = torch.nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert scores.shape == (8, 8 * world_size)",
    expected=Expected(ranks=(0, 1), lines={0: 11, 1: 11}, confidence="possible"),
    fixes=(
        Advice(
            "fix behavior logic",
            "gather the embeddings of all ranks with `torch.distributed.nn.functional.all_gather`, "
            "and offset the labels by the rank times the batch size",
        ),
        Advice(
            "fix behavior logic",
            "if the ranks' own negatives are enough, make the batch of each rank larger",
        ),
    ),
    cluster="""
        Only retrieval or a linear probe shows it, and only beside a run with other numbers of
        devices.
    """,
    apart={
        "gathered-without-gradient": "samples of all ranks are compared, without their gradient",
        "labels-without-offset": "samples of all ranks are compared, with labels of rank 0",
    },
    references=(
        Reference(
            "torch.distributed: autograd-enabled communication primitives",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
        Reference(
            "A Simple Framework for Contrastive Learning of Visual Representations",
            "https://arxiv.org/abs/2002.05709",
        ),
    ),
    in_source=False,
)
