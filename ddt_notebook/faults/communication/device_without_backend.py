"""The group has no backend for the device of a tensor."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="device-without-backend",
    title="the group has no backend for the device of the tensor",
    symptoms=("B.3", "D.1.3"),
    options={"group": False},
    sees="""
        The group forms without a message, and the first collective fails: "No backend type
        associated with device type cpu". Other collectives, on tensors of the other device, work.
    """,
    why="""
        A group holds one backend for each kind of device. "nccl" alone, or "cuda:gloo", serves
        tensors on GPUs only: a metric that was computed on the CPU, or an object that is gathered,
        then finds none.
    """,
    broken="""
        dist.init_process_group("cuda:gloo")

        correct, seen = 7 + rank, 10
        accuracy = torch.tensor([correct / seen])
        dist.all_reduce(accuracy)
        accuracy /= world_size
    """,
    fixed="""
        dist.init_process_group("cpu:gloo,cuda:gloo")

        correct, seen = 7 + rank, 10
        accuracy = torch.tensor([correct / seen])
        dist.all_reduce(accuracy)
        accuracy /= world_size
    """,
    proof="assert abs(accuracy.item() - 0.75) < 1e-6",
    expected=Expected(ranks=(0, 1), lines={0: 5, 1: 5}),
    fixes=(
        Advice(
            "fix communication configuration",
            "form the group with a backend for each device that you use: `cpu:gloo,cuda:nccl`",
        ),
        Advice(
            "fix device assignment",
            "or move the tensor to the device that the backend serves, before {op}",
        ),
        Advice(
            "fix dependency installation/version",
            "a backend from another package is available only after the package was imported: "
            "`dist.get_backend_config()` shows which devices have a backend",
        ),
    ),
    gloo=("No backend type associated with device type cpu",),
    nccl=("No backend type associated with device type cpu",),
    cluster="""
        Training runs for an epoch over NCCL, and the first evaluation, which reduces a tensor on
        the CPU, ends the job on all ranks.
    """,
    apart={
        "backend-not-available": "the group cannot be formed at all",
        "tensors-on-two-devices": "two tensors of one operation are on different devices",
    },
    references=(
        Reference(
            "A length on the CPU, broadcast over NCCL",
            "https://github.com/mistralai/mistral-inference/issues/252",
        ),
        Reference(
            "torch.distributed: init_process_group, a backend for each device",
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.init_process_group",
        ),
    ),
)
