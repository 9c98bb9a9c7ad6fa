"""Labels of a contrastive loss name the samples of rank 0 on every rank."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="labels-without-offset",
    title="labels of a contrastive loss count from 0 on every rank",
    symptoms=("D.2.4", "D.2.5"),
    n=2,
    sees="""
        A contrastive loss falls slowly or not at all on several ranks, and well on one. No step
        fails, and all ranks hold the same parameters.
    """,
    why="""
        The embeddings of all ranks stand one after the other in the order of the ranks, so those of
        rank r begin at r times the batch size. Labels that count from 0 are right on rank 0 only:
        every other rank pulls its samples towards those of rank 0 and away from their own pairs.
    """,
    broken="""
        torch.manual_seed(rank)
        model = DDP(torch.nn.Linear(6, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def gather(z):
            parts = [torch.empty_like(z) for _ in range(world_size)]
            dist.all_gather(parts, z.detach())
            parts[rank] = z
            return torch.cat(parts)

        for step in range(8):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            keys = gather(b.contiguous())
            labels = torch.arange(8)
            loss = torch.nn.functional.cross_entropy(a @ keys.T, labels)
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
            dist.all_gather(parts, z.detach())
            parts[rank] = z
            return torch.cat(parts)

        for step in range(8):
            x = torch.randn(8, 6)
            a, b = model(torch.cat([x, x + 0.1 * torch.randn(8, 6)])).chunk(2)
            keys = gather(b.contiguous())
            labels = torch.arange(8) + 8 * rank
            loss = torch.nn.functional.cross_entropy(a @ keys.T, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="""
        assert keys.shape[0] == 8 * world_size
        assert torch.equal(keys[labels], b)
    """,
    expected=Expected(ranks=(1,), lines={1: 15}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "add the offset of the rank: `torch.arange(n) + dist.get_rank() * n`",
        ),
        Advice(
            "fix behavior logic",
            "or put the rank's own embeddings first among those of all ranks",
        ),
    ),
    cluster="""
        Retrieval from image to text gets worse with each GPU that is added, while the loss on rank
        0 looks as usual.
    """,
    apart={
        "gathered-without-gradient": "the labels are right, but no gradient reaches what was "
        "gathered",
    },
    references=(
        Reference(
            "torch.distributed.all_gather: tensors in the order of the ranks",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_gather",
        ),
        Reference(
            "Learning Transferable Visual Models From Natural Language Supervision",
            "https://arxiv.org/abs/2103.00020",
        ),
    ),
    in_source=False,
)
