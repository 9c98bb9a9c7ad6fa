"""A built package is for another processor, system or Python."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.environment import ENVIRONMENT

CARD = FaultCard(
    id="wheel-not-supported",
    title="a built package is for another machine or another Python",
    symptoms=("A.1",),
    sees="""
        The installer refuses a file that installs on another machine: "is not a supported wheel on
        this platform". Or it ignores the file silently and starts to build from source.
    """,
    why="""
        The name of a wheel says for which Python, which system and which processor it was built. A
        wheel with compiled code runs nowhere else: a file from an x86 node does not work on an ARM
        node such as Grace, and one for Python 3.9 does not work with 3.12.
    """,
    setup=ENVIRONMENT
    + """
if rank == 0:
    wheel("fastreduce", "0.4", tag="cp39-cp39-manylinux2014_ppc64le")
    wheel("fastreduce", "0.4")
""",
    broken="""
        import subprocess

        package = "wheels/fastreduce-0.4-cp39-cp39-manylinux2014_ppc64le.whl"
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", "--no-index", package],
                check=True,
                capture_output=True,
            )
        dist.barrier()
    """,
    fixed="""
        import subprocess

        package = "fastreduce==0.4"
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", "--no-index", "--find-links=wheels", package],
                check=True,
                capture_output=True,
            )
        dist.barrier()
    """,
    proof="""
        code = "import fastreduce; print(fastreduce.__version__)"
        assert subprocess.check_output([python, "-c", code], text=True).strip() == "0.4"
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 5, 1: 10}),
    fixes=(
        Advice(
            "change hardware",
            "run on the kind of machine for which the package is built, where there is no build of "
            "it for yours",
        ),
        Advice(
            "fix dependency installation/version",
            "install by name and version, not from a file: pip then picks the build for this "
            "machine (`pip debug --verbose` lists what fits)",
        ),
        Advice(
            "fix build/install configuration",
            "build the wheel on a machine of the same kind, with the same Python, as the nodes",
        ),
    ),
    gloo=("is not a supported wheel on this platform",),
    nccl=("is not a supported wheel on this platform",),
    cluster="""
        In a cluster with two kinds of nodes the same start-up script works on one kind and ends on
        the other; the ranks of the first wait in the set-up of the group.
    """,
    apart={
        "requirement-not-met": "no version is found at all, or two packages disagree",
        "shared-library": "the package installs and its library does not load",
    },
    references=(
        Reference(
            "Python packaging: platform compatibility tags",
            "https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/",
        ),
    ),
    in_source=False,
)
