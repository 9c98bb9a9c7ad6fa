"""A library asks another one for something that the installed version does not have."""

from ddt_notebook.faults.card import Advice, Expected, FaultCard, Reference

CARD = FaultCard(
    id="package-version",
    title="the installed version of a package lacks what is imported from it",
    symptoms=("A.2",),
    sees="""
        `No module named 'torch._six'`, or `cannot import name …` with a path into site-packages:
        the package is installed, but it lacks that part. Often a third package contains the line.
    """,
    why="""
        Versions add and remove names: PyTorch 2.0 removed torch._six, and older releases of
        DeepSpeed, timm or Apex still import it. One of the two packages was upgraded without the
        other.
    """,
    broken="""
        from torch._six import inf

        def clip_by_norm(gradients, limit):
            norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
            scale = limit / norm if norm < inf else 0.0
            return [g * min(scale, 1.0) for g in gradients]

        clipped = clip_by_norm([torch.ones(4), torch.ones(9)], 1.0)
    """,
    fixed="""
        from torch import inf

        def clip_by_norm(gradients, limit):
            norm = torch.linalg.vector_norm(torch.stack([g.norm() for g in gradients]))
            scale = limit / norm if norm < inf else 0.0
            return [g * min(scale, 1.0) for g in gradients]

        clipped = clip_by_norm([torch.ones(4), torch.ones(9)], 1.0)
    """,
    proof="assert abs(torch.cat(clipped).norm().item() - 1.0) < 1e-5",
    expected=Expected(ranks=(0, 1), lines={0: 1, 1: 1}),
    fixes=(
        Advice(
            "fix dependency installation/version",
            "upgrade the package that does the import to a release made for this version of torch",
        ),
        Advice(
            "fix framework installation/version",
            "or install the version of torch for which it was made, in a separate environment",
        ),
        Advice(
            "fix consistency between devices",
            "if only some machines fail, compare `pip list` on them: their environments differ",
        ),
    ),
    gloo=("ModuleNotFoundError: No module named 'torch._six'", "ImportError: cannot import name"),
    nccl=("ModuleNotFoundError: No module named 'torch._six'", "ImportError: cannot import name"),
    cluster="""
        The day after an image was rebuilt without pinned versions, every job ends at its imports.
    """,
    apart={
        "module-not-found": "nothing of the package is found",
        "module-shadowed": "the path in the message leads into your own project",
    },
    references=(
        Reference(
            "DeepSpeed: No module named 'torch._six'",
            "https://github.com/deepspeedai/DeepSpeed/issues/2845",
        ),
        Reference(
            "PyTorch: previous versions",
            "https://pytorch.org/get-started/previous-versions/",
        ),
    ),
)
