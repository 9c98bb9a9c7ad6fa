"""A data type that the backend cannot reduce."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="dtype-not-supported",
    title="a collective gets a data type that the backend does not implement",
    symptoms=("D.1.10",),
    views=("stacks",),
    sees="""
        `Invalid scalar type` and nothing else, raised inside a collective on all ranks. The same
        tensor can be added, printed and saved.
    """,
    why="""
        A backend reduces numbers itself and knows a list of types. Gloo has no int16 and no
        float8, NCCL no complex numbers and no int16: the operations of PyTorch have far
        more types than those of the network.
    """,
    broken="""
        predictions = torch.randint(0, 5, (64,), generator=torch.Generator().manual_seed(rank))
        histogram = torch.bincount(predictions, minlength=5).to(torch.int16)
        dist.all_reduce(histogram)
        if rank == 0:
            print("predictions of each class:", histogram.tolist())
    """,
    fixed="""
        predictions = torch.randint(0, 5, (64,), generator=torch.Generator().manual_seed(rank))
        histogram = torch.bincount(predictions, minlength=5).to(torch.int32)
        dist.all_reduce(histogram)
        if rank == 0:
            print("predictions of each class:", histogram.tolist())
    """,
    proof="assert histogram.sum().item() == 64 * world_size",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix distributed API usage",
            "cast to a dtype that the backend reduces, such as int32 or float32, and back "
            "afterwards",
        ),
        Advice(
            "fix framework installation/version",
            "take a version of torch whose backend knows the type: bfloat16 came later than "
            "float16, float8 later still",
        ),
    ),
    gloo=("Invalid scalar type",),
    nccl=("Input tensor data type is not supported for NCCL process group", "Unconvertible NCCL"),
    cluster="""
        All ranks fail alike at their first use of the type, often when a model is quantized or its
        metrics are packed to save memory.
    """,
    apart={
        "dtype-differs": "each type is known, but the ranks use different ones",
        "not-implemented": "the whole operation is missing",
    },
    references=(
        Reference(
            "torch.distributed: backends",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
)
