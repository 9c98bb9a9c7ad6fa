"""An operation is not implemented for this kind of tensor."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="not-implemented",
    title="an operation is not implemented for this kind of tensor or backend",
    symptoms=("D.1.10",),
    views=("stacks",),
    sees="""
        A NotImplementedError, `Could not run … with arguments from the … backend`, followed by a
        long list of the kinds of tensors for which it could be run.
    """,
    why="""
        Collectives move plain blocks of memory. A sparse, quantized or nested tensor is made of
        several, and only some operations of some backends know how to send it; the documentation
        lists which.
    """,
    broken="""
        adjacency = torch.zeros(6, 6)
        if rank == 0:
            adjacency[torch.arange(5), torch.arange(1, 6)] = 1.0
        adjacency = adjacency.to_sparse()
        dist.broadcast(adjacency, src=0)
        neighbours = torch.sparse.sum(adjacency, dim=1).to_dense()
    """,
    fixed="""
        adjacency = torch.zeros(6, 6)
        if rank == 0:
            adjacency[torch.arange(5), torch.arange(1, 6)] = 1.0
        dist.broadcast(adjacency, src=0)
        adjacency = adjacency.to_sparse()
        neighbours = torch.sparse.sum(adjacency, dim=1).to_dense()
    """,
    proof="assert neighbours.tolist() == [1, 1, 1, 1, 1, 0]",
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "send what every backend can send, a dense tensor of numbers, and convert on each "
            "rank; or use an operation that is listed for this backend",
        ),
        Advice(
            "fix framework installation/version",
            "look up from which version on torch has the operation for this kind of tensor",
        ),
        Advice(
            "fix dependency installation/version",
            "for an operation of an extension: build it for the device on which it is called",
        ),
    ),
    gloo=("Could not run 'c10d::broadcast_' with arguments from the 'SparseCPU' backend",),
    nccl=("Could not run 'c10d::broadcast_' with arguments from the 'SparseCUDA' backend",),
    cluster="""
        All ranks stop at the same line at the first step; a job on one process never reached it,
        because it has nothing to send.
    """,
    apart={"dtype-not-supported": "the operation exists, and its data type is the problem"},
    references=(
        Reference(
            "torch.distributed: what each backend can do",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
    in_source=False,
)
