"""A contrastive loss uses gathered embeddings, through which no gradient flows."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="gathered-without-gradient",
    title="a loss uses gathered tensors as constants, since all_gather carries no gradient",
    symptoms=("D.2.5",),
    n=2,
    sees="""
        A model with a contrastive loss becomes worse on several ranks than on one with the same
        total batch. No step fails, and all ranks hold the same parameters.
    """,
    why="""
        `all_gather` copies numbers into tensors that know nothing of how the numbers were computed.
        A loss that compares with these tensors gives a gradient to its queries only. Even what the
        rank has computed itself, and has got back from the call, is a constant.
    """,
    broken="""
        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def gather(z):
            parts = [torch.empty_like(z) for _ in range(world_size)]
            dist.all_gather(parts, z)
            return torch.cat(parts)

        for step in range(4):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            keys = gather(b.contiguous())
            loss = torch.nn.functional.cross_entropy(a @ keys.T, torch.arange(8) + 8 * rank)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def gather(z):
            parts = [torch.empty_like(z) for _ in range(world_size)]
            dist.all_gather(parts, z)
            parts[rank] = z
            return torch.cat(parts)

        for step in range(4):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            keys = gather(b.contiguous())
            loss = torch.nn.functional.cross_entropy(a @ keys.T, torch.arange(8) + 8 * rank)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert keys.requires_grad",
    expected=Expected(ranks=(0, 1), lines={0: 7, 1: 7}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "use `torch.distributed.nn.functional.all_gather`, which carries the gradient back to "
            "the rank that computed each part",
        ),
        Advice(
            "fix behavior logic",
            "or put the rank's own tensor back in its place: `parts[rank] = z`; if the gathered "
            "tensors are meant as constants, leave the loss as it is",
        ),
    ),
    cluster="""
        With more ranks, a larger part of each batch comes from other ranks, so the loss gives less
        gradient to the keys.
    """,
    apart={
        "gradients-not-reduced": "the gradients of the ranks' parameters are not averaged",
        "module-called-past-ddp": "the forward pass does not go through DDP",
    },
    in_source=False,
    references=(
        Reference(
            "torch.distributed.all_gather: it fills the tensors that it is given",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",
        ),
    ),
)
