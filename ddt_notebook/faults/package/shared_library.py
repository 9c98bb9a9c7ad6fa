"""A compiled package does not find the library that it was linked with."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="shared-library",
    title="a shared library is missing or does not fit",
    symptoms=("A.2",),
    sees="""
        An import, or the first use of a library, fails with "cannot open shared object file" or
        with "undefined symbol" and a long mangled name.
    """,
    why="""
        Compiled code names the libraries that it needs, with their version: libcudart.so.10.1,
        libmpi.so.40. The loader searches LD_LIBRARY_PATH and the system's folders, which differ
        between a shell, a job and a container. A package that was built against another version of
        PyTorch finds the library, but the library lacks a symbol.
    """,
    broken="""
        import ctypes

        runtime = ctypes.CDLL("libcudart.so.10.1")
        version = ctypes.c_int()
        runtime.cudaRuntimeGetVersion(ctypes.byref(version))
        toolkit = version.value
    """,
    fixed="""
        toolkit = torch.version.cuda
    """,
    proof="assert (toolkit is not None) == torch.backends.cuda.is_built()",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix dependency installation/version",
            "install the build of the package for this version of torch and of CUDA, or build it "
            "again; for what torch knows itself, ask torch",
        ),
        Advice(
            "fix dependency path",
            "if the library is installed, add its folder to LD_LIBRARY_PATH for every rank (`ldd` "
            "on the file of the package shows what is not found)",
        ),
        Advice(
            "fix framework installation/version",
            "after an upgrade of torch, rebuild its extensions: an undefined symbol that begins "
            "with _ZN2at or _ZN3c10 belongs to torch",
        ),
    ),
    gloo=("cannot open shared object file: No such file or directory",),
    nccl=("libcudart.so", "undefined symbol: _ZN3c10"),
    cluster="""
        It works in an interactive shell, where a module system has set LD_LIBRARY_PATH; in the job,
        or on machines that mpirun reaches by ssh, the variable is empty and all ranks there fail.
    """,
    apart={
        "package-version": "a name of Python is missing, not a library",
        "path-missing": "the file that is missing is one that the program opens itself",
    },
    references=(
        Reference(
            "Horovod and its framework built for different versions of CUDA",
            "https://github.com/horovod/horovod/issues/910",
        ),
        Reference(
            "Linux: how shared objects are found",
            "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        ),
        Reference(
            "torch.utils.cpp_extension",
            "https://docs.pytorch.org/docs/stable/cpp_extension.html",
        ),
    ),
    in_source=False,
)
