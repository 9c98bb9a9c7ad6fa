"""A GPU with a number that does not exist."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="device-ordinal",
    title="a rank takes a GPU with a number that the machine does not have",
    symptoms=("C.5", "D.1.3"),
    n=3,
    options={"simulate": "cuda:2"},
    sees="""
        The ranks with high numbers raise `CUDA error: invalid device ordinal` as soon as they
        choose their GPU; those with low numbers go on and wait for them.
    """,
    why="""
        GPUs are counted from 0 on every machine. The global rank goes on counting over all
        machines, so from the second node on it is larger than any GPU there. The same happens
        when more ranks are started than there are GPUs.
    """,
    broken="""
        torch.cuda.set_device(rank)
        model = torch.nn.Linear(8, 2).cuda()
        model = DDP(model, device_ids=[rank])
        for step in range(3):
            batch = torch.randn(4, 8).cuda()
            model(batch).square().mean().backward()
    """,
    fixed="""
        own = local_rank % torch.cuda.device_count()
        torch.cuda.set_device(own)
        model = torch.nn.Linear(8, 2).cuda()
        model = DDP(model, device_ids=[own])
        for step in range(3):
            batch = torch.randn(4, 8).cuda()
            model(batch).square().mean().backward()
    """,
    proof="""
        assert next(model.parameters()).device.index == rank % 2
        assert model.module.weight.grad is not None
    """,
    expected=Expected(ranks=(2,), waiting=(0, 1), lines={2: 1, 0: 3, 1: 3}),
    fixes=(
        Advice(
            "fix device assignment",
            "set the device from LOCAL_RANK, one for each rank, and start no more ranks on a "
            "machine than it has GPUs",
        ),
        Advice(
            "fix dependency installation/version",
            "if `nvidia-smi` shows more GPUs than torch.cuda.device_count(): match the driver "
            "with torch's version of CUDA, and look at CUDA_VISIBLE_DEVICES",
        ),
        Advice(
            "fix distributed API usage",
            "start the ranks with torchrun --nproc-per-node=<number of GPUs>, which sets "
            "LOCAL_RANK",
        ),
    ),
    gloo=("CUDA error: invalid device ordinal",),
    nccl=(
        "CUDA error: invalid device ordinal",
        "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device",
    ),
    cluster="""
        On one machine all is well; on two, every rank of the second fails at once. With one rank
        too many on a machine, NCCL reports a duplicate GPU instead if ranks share one.
    """,
    apart={"no-cuda": "no GPU at all can be used"},
    references=(
        Reference(
            "torchrun: LOCAL_RANK and the device of a rank",
            "https://docs.pytorch.org/docs/stable/elastic/run.html",
        ),
    ),
    in_source=False,
)
