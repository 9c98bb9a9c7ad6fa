"""A metric of one rank's share of the data is taken for that of all."""

from __future__ import annotations

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="metric-not-reduced",
    title="a metric of one rank's share of the data is taken for that of all",
    symptoms=("D.2.4",),
    n=2,
    sees="""
        The accuracy that is logged differs from the one that a single process measures on the
        same weights, and it jumps more from epoch to epoch.
    """,
    why="""
        The evaluation data is divided among the ranks, so each counts the hits in its own part.
        Rank 0 prints its own counts, which are those of a sample of the data set. DDP averages
        gradients, and nothing else.
    """,
    broken="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        x = torch.arange(20.0).reshape(20, 1)
        y = (x.flatten() % 4 > 1).long()
        data = TensorDataset(x, y)
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))

        def evaluate(model, loader):
            correct, total = 0, 0
            for inputs, labels in loader:
                correct += (model(inputs) == labels).sum().item()
                total += len(labels)
            return correct / total

        accuracy = evaluate(lambda inputs: (inputs.flatten() % 2).long(), loader)
        if rank == 0:
            print(f"test accuracy {accuracy:.3f}")
    """,
    fixed="""
        from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

        x = torch.arange(20.0).reshape(20, 1)
        y = (x.flatten() % 4 > 1).long()
        data = TensorDataset(x, y)
        loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))

        def evaluate(model, loader):
            counts = torch.zeros(2)
            for inputs, labels in loader:
                counts[0] += (model(inputs) == labels).sum()
                counts[1] += len(labels)
            dist.all_reduce(counts)
            return (counts[0] / counts[1]).item()

        accuracy = evaluate(lambda inputs: (inputs.flatten() % 2).long(), loader)
        if rank == 0:
            print(f"test accuracy {accuracy:.3f}")
    """,
    proof="assert accuracy == 0.5",
    expected=Expected(ranks=(0,), lines={0: 17}, confidence="likely"),
    fixes=(
        Advice(
            "fix behavior logic",
            "add up the counts of all ranks with all_reduce first, then divide",
        ),
        Advice(
            "fix distributed API usage",
            "gather the predictions of all ranks for metrics that are not sums, or evaluate the "
            "whole data set on one rank",
        ),
    ),
    cluster="""
        Curves depend on the number of GPUs, and the checkpoint that is called the best is the best
        for one part of the data. With hundreds of ranks that part is tiny.
    """,
    apart={
        "reduce-read-on-wrong-rank": "the value is reduced and read on the wrong rank",
        "local-loss-as-global": "a rank shows its loss, which may be intended as an estimate",
    },
    references=(
        Reference(
            "An often copied training script that does not combine its validation results",
            "https://github.com/pytorch/examples/issues/905",
        ),
        Reference(
            "Gathering what each process has measured",
            "https://github.com/Lightning-AI/pytorch-lightning/issues/243",
        ),
    ),
)
