"""A bucket is never complete in the last step, and nothing reports it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="unused-parameter-in-last-step",
    title="a parameter has no part in the loss of the last step",
    symptoms=("D.2.4", "D.2.5"),
    views=("parity",),
    n=2,
    sees="""
        A single step, or the last one of a loop, passes without any message. The weights of the
        ranks are not equal afterwards; with one more step DDP would have raised an error.
    """,
    why="""
        DDP averages a bucket of gradients when all of its parameters have got theirs. A parameter
        outside of the graph keeps its bucket incomplete, so the whole bucket stays local. DDP
        notices that only at the start of the next forward pass, which never happens.
    """,
    broken="""
        class TwoHeads(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(4, 8)
                self.score = torch.nn.Linear(8, 1)
                self.auxiliary = torch.nn.Linear(8, 2)

            def forward(self, x):
                h = self.body(x).relu()
                return self.score(h), self.auxiliary(h)

        torch.manual_seed(0)
        model = DDP(TwoHeads())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        score, extra = model(torch.randn(16, 4))
        score.square().mean().backward()
        optimizer.step()
    """,
    fixed="""
        class TwoHeads(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.body = torch.nn.Linear(4, 8)
                self.score = torch.nn.Linear(8, 1)
                self.auxiliary = torch.nn.Linear(8, 2)

            def forward(self, x):
                h = self.body(x).relu()
                return self.score(h), self.auxiliary(h)

        torch.manual_seed(0)
        model = DDP(TwoHeads(), find_unused_parameters=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        score, _ = model(torch.randn(16, 4))
        score.square().mean().backward()
        optimizer.step()
    """,
    proof="""
        for parameter in model.parameters():
            copies = [torch.empty_like(parameter) for _ in range(world_size)]
            dist.all_gather(copies, parameter.detach())
            assert all(torch.equal(copy, parameter) for copy in copies)
    """,
    expected=Expected(ranks=(0, 1), lines={0: 18, 1: 18}, confidence="likely"),
    fixes=(
        Advice(
            "fix distributed API usage",
            "pass find_unused_parameters=True to DDP, or static_graph=True where the same ones are "
            "unused in every step",
        ),
        Advice(
            "fix model construction",
            "leave out what is not used, or let it have a part in the loss on every rank",
        ),
        Advice(
            "fix behavior logic",
            "do not drop an output of the model on the way to the loss, nor in the last step",
        ),
    ),
    nccl=("Expected to have finished reduction in the prior iteration before starting a new one",),
    gloo=("Expected to have finished reduction in the prior iteration before starting a new one",),
    cluster="""
        In a longer job the next iteration raises on every rank and names TORCH_DISTRIBUTED_DEBUG.
        Only jobs of one step, and the last step before a checkpoint, show no error.
    """,
    apart={"unused-parameters": "another forward pass follows and DDP raises"},
    references=(
        Reference(
            "Different gradients on the ranks when a declared module is not used",
            "https://github.com/pytorch/pytorch/issues/112152",
        ),
        Reference(
            "DistributedDataParallel: find_unused_parameters",
            "https://docs.pytorch.org/docs/stable/generated/"
            "torch.nn.parallel.DistributedDataParallel.html",
        ),
    ),
    in_source=False,
)
