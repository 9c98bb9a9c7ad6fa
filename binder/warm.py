"""Check what the image is made of, and compile what a session imports, by running one."""

from __future__ import annotations

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits

import ddt_notebook as ddt

STEP = """
model = DDP(torch.nn.Linear(64, 10))
optimizer = torch.optim.Adam(model.parameters())
model(torch.ones(2, 64)).sum().backward()
optimizer.step()
"""


def main() -> None:
    """Fail if this PyTorch is not a build for CPUs, or if two ranks cannot train."""
    if torch.version.cuda is not None:
        raise SystemExit(f"torch {torch.__version__} is built for CUDA: the image would be huge")
    if not dist.is_gloo_available():
        raise SystemExit(f"torch {torch.__version__} is built without gloo")
    load_digits()
    with ddt.Session(2) as session:
        report = ddt.diagnose(session.run(STEP, trace=True))
    if not report.ok:
        raise SystemExit(str(report))
    print(f"ready: torch {torch.__version__}, {report.checked}")


if __name__ == "__main__":
    main()
