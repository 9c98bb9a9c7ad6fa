"""No version of a package fits the others: the installation stops."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference
from ddt_notebook.faults.environment import ENVIRONMENT

CARD = FaultCard(
    id="requirement-not-met",
    title="a package asks for a version of another one that is not available",
    symptoms=("A.1",),
    sees="""
        The installation ends with "Could not find a version that satisfies the requirement" and a
        list of versions in which the wanted one does not occur, or with "conflicting dependencies".
    """,
    why="""
        A release states which versions of other packages it was made for. A library for
        distributed training that is older or newer than the installed PyTorch names one that the
        index does not offer for this Python, or that contradicts what another package asks for.
    """,
    setup=ENVIRONMENT
    + """
if rank == 0:
    wheel("fastreduce", "0.3", needs=["torch<1.5"])
    wheel("fastreduce", "0.4")
""",
    broken="""
        import subprocess

        options = ["--no-index", "--find-links=wheels"]
        requirements = ["fastreduce==0.3"]
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", *options, *requirements],
                check=True,
                capture_output=True,
                text=True,
            )
        dist.barrier()
    """,
    fixed="""
        import subprocess

        options = ["--no-index", "--find-links=wheels"]
        requirements = ["fastreduce>=0.4"]
        if local_rank == 0:
            subprocess.run(
                [python, "-m", "pip", "install", *options, *requirements],
                check=True,
                capture_output=True,
                text=True,
            )
        dist.barrier()
    """,
    proof="""
        code = "import fastreduce; print(fastreduce.__version__)"
        assert subprocess.check_output([python, "-c", code], text=True).strip() == "0.4"
    """,
    expected=Expected(ranks=(0,), waiting=(1,), lines={0: 6, 1: 12}),
    fixes=(
        Advice(
            "fix dependency installation/version",
            "install the release of the package that was made for your version of torch (its "
            "release notes say which), and pin both in one requirements file",
        ),
        Advice(
            "fix framework installation/version",
            "install the version of torch that the package asks for, in a separate environment",
        ),
    ),
    gloo=(
        "ERROR: Could not find a version that satisfies the requirement",
        "ERROR: No matching distribution found for",
    ),
    nccl=("ERROR: No matching distribution found for",),
    cluster="""
        The image of the job does not build, or a node whose image is older than the others ends in
        its start-up script while the other nodes wait for it.
    """,
    apart={
        "build-failed": "the right version is found, and turning its source into a package fails",
        "wheel-not-supported": "the file was built for another machine or Python",
    },
    references=(
        Reference(
            "pip: dependency resolution",
            "https://pip.pypa.io/en/stable/topics/dependency-resolution/",
        ),
        Reference(
            "PyTorch: previous versions and what they need",
            "https://pytorch.org/get-started/previous-versions/",
        ),
    ),
    in_source=False,
)
