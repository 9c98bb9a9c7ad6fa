"""A package is built from source with options that do not fit the machine."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.environment import ENVIRONMENT

_PROJECT = """
[build-system]
requires = []
build-backend = "build"
backend-path = ["."]
"""
_BUILD = r"""
import os, zipfile

def build_wheel(folder, config=None, metadata=None):
    operations = os.environ.get("FASTREDUCE_OPERATIONS", "GLOO")
    if operations == "NCCL" and "NCCL_HOME" not in os.environ:
        raise SystemExit("fatal error: nccl.h: No such file or directory")
    name, info = "fastreduce-0.4-py3-none-any.whl", "fastreduce-0.4.dist-info"
    facts = {
        "METADATA": ["Metadata-Version: 2.1", "Name: fastreduce", "Version: 0.4"],
        "WHEEL": ["Wheel-Version: 1.0", "Root-Is-Purelib: true", "Tag: py3-none-any"],
        "RECORD": [],
    }
    with zipfile.ZipFile(os.path.join(folder, name), "w") as package:
        package.writestr("fastreduce.py", f"operations = {operations!r}")
        for file, lines in facts.items():
            package.writestr(f"{info}/{file}", "\n".join(lines))
    return name
"""

CARD = FaultCard(
    id="build-failed",
    title="a package does not build from source as it was configured",
    symptoms=("A.1",),
    sees="""
        A compiler or a build script prints hundreds of lines. The last ones say "Failed building
        wheel" or "subprocess-exited-with-error"; the first error is far above.
    """,
    why="""
        Horovod, DeepSpeed, Apex and the like compile parts of themselves during the installation.
        Environment variables choose the parts, such as NCCL, MPI or CUDA operations. If a requested
        part lacks its headers or libraries, the build ends.
    """,
    setup=ENVIRONMENT
    + f"""
if rank == 0:
    os.mkdir("fastreduce")
    with open("fastreduce/pyproject.toml", "w") as file:
        file.write({_PROJECT!r})
    with open("fastreduce/build.py", "w") as file:
        file.write({_BUILD!r})
""",
    broken="""
        import os
        import subprocess

        options = {"FASTREDUCE_OPERATIONS": "NCCL"}
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", "--no-index", "./fastreduce"],
                env={**os.environ, **options},
                check=True,
                capture_output=True,
                text=True,
            )
        dist.barrier()
    """,
    fixed="""
        import os
        import subprocess

        options = {"FASTREDUCE_OPERATIONS": "GLOO"}
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", "--no-index", "./fastreduce"],
                env={**os.environ, **options},
                check=True,
                capture_output=True,
                text=True,
            )
        dist.barrier()
    """,
    proof="""
        code = "import fastreduce; print(fastreduce.operations)"
        assert subprocess.check_output([python, "-c", code], text=True).strip() == "GLOO"
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 6, 1: 13}),
    fixes=(
        Advice(
            "fix build/install configuration",
            "read the first error of the build, not the last line; switch off the part that this "
            "machine lacks, or say where it is (for Horovod HOROVOD_GPU_OPERATIONS and "
            "HOROVOD_NCCL_HOME)",
        ),
        Advice(
            "fix dependency installation/version",
            "install the development files of the library that is missing, in the version that the "
            "package asks for; or take a built wheel",
        ),
        Advice(
            "fix dependency path",
            "if the library is there, put its headers and libraries on the paths of the compiler "
            "(CPATH, LIBRARY_PATH)",
        ),
    ),
    gloo=("error: subprocess-exited-with-error", "ERROR: Failed building wheel for"),
    nccl=("ERROR: Failed building wheel for", "fatal error: nccl.h: No such file or directory"),
    cluster="""
        The image builds on a developer's machine and fails on the build server, which has no CUDA
        toolkit; or it is built there without NCCL, and the job runs over Gloo, many times slower.
    """,
    apart={
        "toolchain-missing": "the compiler itself is not found",
        "requirement-not-met": "pip finds no version at all",
    },
    references=(
        Reference(
            "Horovod: nccl.h is not found during the build",
            "https://github.com/horovod/horovod/issues/3924",
        ),
        Reference(
            "Horovod: the options of its build",
            "https://horovod.readthedocs.io/en/stable/install_include.html",
        ),
        Reference("A study of faults in distributed training", "https://arxiv.org/abs/2112.06222"),
    ),
    in_source=False,
)
