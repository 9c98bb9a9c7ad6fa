"""A step uses a graph that the backward pass of the step before has freed."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="graph-freed",
    title="a step goes backward through the graph of the step before",
    symptoms=("D.1.4",),
    views=("stacks",),
    sees="""
        The first step works; the second raises in backward that it would go through the graph a
        second time, and proposes retain_graph=True, which makes every step slower than the last.
    """,
    why="""
        backward frees what the graph has stored. A tensor that is carried from one step into the
        next, a hidden state, a running target, a loss of the step before, brings the old graph
        along, and the new backward pass runs into it.
    """,
    broken="""
        model = DDP(torch.nn.GRU(4, 8, batch_first=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = torch.zeros(1, 2, 8)
        for step in range(4):
            chunk = torch.randn(2, 5, 4)
            output, state = model(chunk, state)
            loss = output.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    fixed="""
        model = DDP(torch.nn.GRU(4, 8, batch_first=True))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        state = torch.zeros(1, 2, 8)
        for step in range(4):
            chunk = torch.randn(2, 5, 4)
            output, state = model(chunk, state.detach())
            loss = output.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    proof="assert step == 3 and torch.isfinite(loss)",
    expected=Expected(ranks=(0, 1), lines={0: 9, 1: 9}),
    fixes=(
        Advice(
            "fix model construction",
            "build a new graph in each step: detach what is carried over (`state.detach()`)",
        ),
        Advice(
            "fix distributed API usage",
            "call backward once for the sum of the losses, not once for each",
        ),
    ),
    gloo=("Trying to backward through the graph a second time",),
    nccl=("Trying to backward through the graph a second time",),
    cluster="""
        All ranks fail alike in the second step, with one rank as with many. The fault has nothing
        to do with distribution, as a run on a single rank shows.
    """,
    apart={
        "parameter-ready-twice": "DDP complains, not autograd",
        "inplace-change": "a stored tensor was changed, not freed",
    },
    references=(
        Reference(
            "torch.Tensor.backward: retain_graph",
            "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
        ),
        Reference(
            "PyTorch notes: autograd mechanics",
            "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        ),
    ),
    in_source=False,
)
