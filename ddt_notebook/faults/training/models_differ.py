"""Ranks build different models."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="models-differ",
    title="the ranks build models of different sizes",
    symptoms=("D.1.5",),
    views=("stacks",),
    sees="""
        The constructor of DDP raises on some ranks that a parameter does not match the sizes of
        the same parameter in process 0. Rank 0 itself reports only a lost connection.
    """,
    why="""
        DDP compares the parameters of each rank with those of rank 0 before it copies them. The
        models differ because their sizes were computed from something that each rank has for
        itself: its part of the data, its environment, its version of a library.
    """,
    broken="""
        texts = [["the", "cat", "sat"], ["the", "dog", "ran", "off"]][rank]
        vocabulary = {word: index for index, word in enumerate(sorted(set(texts)))}

        model = DDP(torch.nn.Sequential(
            torch.nn.Embedding(len(vocabulary), 8), torch.nn.Linear(8, 2)
        ))
        tokens = torch.tensor([vocabulary[word] for word in texts])
        model(tokens).square().mean().backward()
    """,
    fixed="""
        texts = [["the", "cat", "sat"], ["the", "dog", "ran", "off"]][rank]
        parts = [None] * world_size
        dist.all_gather_object(parts, texts)
        words = sorted({word for part in parts for word in part})
        vocabulary = {word: index for index, word in enumerate(words)}

        model = DDP(torch.nn.Sequential(
            torch.nn.Embedding(len(vocabulary), 8), torch.nn.Linear(8, 2)
        ))
        tokens = torch.tensor([vocabulary[word] for word in texts])
        model(tokens).square().mean().backward()
    """,
    proof="assert len(vocabulary) == 6 and model.module[1].weight.grad is not None",
    expected=Expected(ranks=(1,), waiting=(0,), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix model construction",
            "build the same model, in the same order, on every rank, from sizes that all share; "
            "gather what must be known of all parts first",
        ),
        Advice(
            "fix batch size/data partition",
            "compute vocabulary and classes from the whole data before it is divided",
        ),
        Advice(
            "fix framework installation/version",
            "install one version of torch and of the model's library on all machines: a model that "
            "is built by name may differ between versions",
        ),
    ),
    gloo=("appears not to match sizes of the same param in process 0",),
    nccl=("appears not to match sizes of the same param in process 0",),
    cluster="""
        The ranks that raise are those whose model differs from that of rank 0; if rank 0 differs
        from all, all others raise. The rest of the log reports only closed connections.
    """,
    apart={
        "state-dict-shape": "the model differs from a file",
        "submodules-in-another-order": "all sizes agree, and nothing is raised",
    },
    references=(
        Reference(
            "DDP notes: construction compares and broadcasts the parameters",
            "https://docs.pytorch.org/docs/stable/notes/ddp.html",
        ),
    ),
    in_source=False,
)
