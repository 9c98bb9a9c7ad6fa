"""An extension has to be compiled on a machine without the compiler for it."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="toolchain-missing",
    title="an extension is to be compiled, and the compiler is not found",
    symptoms=("A.1",),
    setup="""
        from torch.utils import cpp_extension

        cpp_extension.CUDA_HOME = None  # a machine without the CUDA toolkit
    """,
    sees="""
        A build, or the first use of a fused optimizer or kernel that compiles itself, ends with
        "CUDA_HOME environment variable is not set" or with a compiler that is "not found".
    """,
    why="""
        A wheel of PyTorch brings the CUDA libraries that it runs with, but no nvcc and no headers.
        Code that compiles an extension needs the whole toolkit of the same CUDA version, found by
        CUDA_HOME or by nvcc on the PATH, and a C++ compiler beside it.
    """,
    broken="""
        from torch.utils.cpp_extension import CUDAExtension

        model = torch.nn.Linear(8, 8)
        kernel = CUDAExtension(name="fused_adam", sources=["csrc/fused_adam.cu"])
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    """,
    fixed="""
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)

        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    """,
    proof="""
        assert optimizer.defaults["fused"]
        assert all(state["step"] == 1 for state in optimizer.state.values())
    """,
    expected=Expected(ranks=(0, 1), lines={0: 4, 1: 4}),
    fixes=(
        Advice(
            "fix dependency path",
            "install the CUDA toolkit of the version that torch.version.cuda names, and point "
            "CUDA_HOME at it on every node where the extension is built",
        ),
        Advice(
            "fix build/install configuration",
            "avoid the extension: install a built wheel, or use what torch itself has, such as "
            "`fused=True` in its optimizers",
        ),
        Advice(
            "fix dependency installation/version",
            "install what else the build calls: ninja, and a C++ compiler that this nvcc supports",
        ),
        Advice(
            "change hardware",
            "the extension needs a GPU: choose nodes that have one, or the CPU path",
        ),
    ),
    gloo=("CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",),
    nccl=(
        "CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        "Ninja is required to load C++ extensions",
    ),
    cluster="""
        The login node has the toolkit and the compute nodes have the driver alone: the build works
        by hand and fails in the job. Extensions that compile at first use fail on all ranks.
    """,
    apart={"build-failed": "the compiler runs and refuses the source or its options"},
    references=(
        Reference(
            "CUDA_HOME is not set though a toolkit is installed",
            "https://github.com/pytorch/extension-cpp/issues/26",
        ),
        Reference(
            "torch.utils.cpp_extension: what the build of an extension needs",
            "https://docs.pytorch.org/docs/stable/cpp_extension.html",
        ),
    ),
    in_source=False,
)
