"""A native library aborts the process."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="native-abort",
    title="a native library aborts the process of a rank",
    symptoms=("D.1.7",),
    views=("stacks",),
    sees="""
        A rank ends with SIGABRT, exit code -6. On its error output stands one line of a library,
        such as `free(): invalid pointer` or `terminate called after throwing`, and no traceback.
    """,
    why="""
        Compiled code detected an error, such as a damaged heap, a failed assertion or an uncaught
        C++ exception, and called abort. The usual reason is that one process loads two libraries,
        each with its own allocator or C++ runtime.
    """,
    broken="""
        import ctypes

        native = ctypes.CDLL(None)
        native.free.argtypes = [ctypes.c_void_p]
        totals = torch.arange(64.0)
        dist.all_reduce(totals)
        if rank == 0:
            native.free(totals.data_ptr() + 8)
        dist.barrier()
    """,
    fixed="""
        totals = torch.arange(64.0)
        dist.all_reduce(totals)
        if rank == 0:
            totals = totals.clone()
        dist.barrier()
    """,
    proof="assert totals[1].item() == world_size",
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 8, 1: 9}),
    fixes=(
        Advice(
            "fix dependency installation/version",
            "read what the library printed before it aborted; match its version with torch, and "
            "leave memory to the library that allocated it",
        ),
        Advice(
            "fix build/install configuration",
            "build all extensions with one compiler and one C++ ABI (`torch.compiled_with_cxx11_abi"
            "()`), and load one OpenMP and one allocator only",
        ),
        Advice(
            "fix framework installation/version",
            "if torch or NCCL printed the line, try a release in which that assertion is fixed",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=("Signal 6 (SIGABRT) received by PID", "terminate called after throwing an instance of"),
    cluster="""
        torchrun reports exit code -6 for one rank. With NCCL the watchdog also aborts on purpose
        after a timeout, so look first whether the log shows a timeout before the abort.
    """,
    apart={
        "segmentation-fault": "the processor stopped the program, signal 11",
        "dtype-differs": "gloo aborts because two ranks sent different types",
    },
    references=(
        Reference(
            "torch.distributed: NCCL's watchdog and TORCH_NCCL_ASYNC_ERROR_HANDLING",
            "https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html",
        ),
        Reference(
            "PyTorch issue 10344: segmentation fault while training, heap corrupted",
            "https://github.com/pytorch/pytorch/issues/10344",
        ),
    ),
    in_source=False,
)
