"""Native code accesses memory that it does not own."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="segmentation-fault",
    title="native code crashes a rank",
    symptoms=("D.1.7",),
    views=("stacks",),
    n=3,
    sees="""
        A rank vanishes without a traceback. The launcher reports `exitcode -11` or SIGSEGV, the
        other ranks a closed connection. With faulthandler there is a list of Python lines.
    """,
    why="""
        Compiled code read or wrote an address that it does not own: an extension that was built for
        another version of PyTorch, CUDA or MPI, or a call with arguments of the wrong type. Here
        ctypes does not know that the argument is a pointer and cuts it to 32 bits.
    """,
    broken="""
        import ctypes

        native = ctypes.CDLL(None)
        shard = torch.randn(4, 256)
        if rank == world_size - 1:
            padding = shard[2:]
            native.memset(padding.data_ptr(), 0, padding.numel() * 4)
        dist.all_reduce(shard)
    """,
    fixed="""
        import ctypes

        native = ctypes.CDLL(None)
        native.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        shard = torch.randn(4, 256)
        if rank == world_size - 1:
            padding = shard[2:]
            native.memset(padding.data_ptr(), 0, padding.numel() * 4)
        dist.all_reduce(shard)
    """,
    proof="assert shard.shape == (4, 256) and torch.isfinite(shard).all()",
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={0: 8, 1: 8, 2: 7}),
    fixes=(
        Advice(
            "fix dependency installation/version",
            "match the versions of the native library at the line shown and of torch; run that "
            "line alone on one rank to make sure",
        ),
        Advice(
            "fix framework installation/version",
            "if the innermost line is in torch itself, try the newest release, then the one before",
        ),
        Advice(
            "fix build/install configuration",
            "rebuild the extension against the installed torch, CUDA and compiler; do not mix "
            "packages of pip and conda",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=("Signal 11 (SIGSEGV) received by PID", "exitcode: -11"),
    cluster="""
        torchrun prints the rank with exit code -11 and `traceback: Signal 11 (SIGSEGV)`; the other
        ranks are stopped by it. It comes on all machines with one image, or at random steps.
    """,
    apart={
        "native-abort": "the library detected the error itself and aborted, signal 6",
        "killed-from-outside": "another process sent the signal",
    },
    references=(
        Reference(
            "PyTorch issue 58817: died with SIGSEGV",
            "https://github.com/pytorch/pytorch/issues/58817",
        ),
        Reference(
            "faulthandler: dump the Python traceback",
            "https://docs.python.org/3/library/faulthandler.html",
        ),
    ),
    in_source=False,
)
