"""DDP on gloo crashes under a debug level."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="debug-level-detail",
    title="DDP on gloo crashes under the debug level DETAIL",
    symptoms=("D.1.7",),
    sees="""
        Debugging was switched on to find another fault, and now all ranks vanish with a
        segmentation fault as soon as a model is wrapped. Without DDP the same level works.
    """,
    why="""
        With the level DETAIL each process group is put into a wrapper that compares the ranks'
        calls. The constructor of DDP reads the properties of that group and, where it wraps gloo,
        reads memory that holds something else. It happens in torch 2.13 and 2.14.
    """,
    broken="""
        dist.set_debug_level(dist.DebugLevel.DETAIL)
        group = dist.new_group()
        model = DDP(torch.nn.Linear(8, 2), process_group=group)
        model(torch.randn(4, 8)).square().mean().backward()
    """,
    fixed="""
        dist.set_debug_level(dist.DebugLevel.INFO)
        group = dist.new_group()
        model = DDP(torch.nn.Linear(8, 2), process_group=group)
        model(torch.randn(4, 8)).square().mean().backward()
    """,
    proof="assert model.module.weight.grad is not None",
    expected=Expected(ranks=(0, 1), lines={0: 3, 1: 3}, confidence="likely"),
    fixes=(
        Advice(
            "fix framework installation/version",
            "use TORCH_DISTRIBUTED_DEBUG=INFO with DDP on gloo, which also names unused "
            "parameters; DETAIL needs NCCL, or a release of torch in which it is fixed",
        ),
        Advice(
            "fix communication configuration",
            "to compare collectives in detail, make a separate group under DETAIL and leave DDP on "
            "the default one",
        ),
    ),
    gloo=("Connection closed by peer",),
    nccl=(),
    cluster="""
        torchrun reports exit code -11 for all ranks in the first second. In jobs on CPUs the
        variable is often inherited from the shell of whoever debugged last.
    """,
    apart={"segmentation-fault": "other native code crashes, with any debug level"},
    references=(
        Reference(
            "torch.distributed: TORCH_DISTRIBUTED_DEBUG",
            "https://docs.pytorch.org/docs/stable/distributed.html",
        ),
    ),
)
