"""Parity of real ranks that were made to differ in known ways."""

from __future__ import annotations

from textwrap import dedent

import ddt_notebook as ddt
from ddt_notebook.views.parity import ParityView

from .conftest import Ranks

SETUP = """
torch.manual_seed(0)
raw = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.BatchNorm1d(4))
"""
TRAIN = """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
torch.manual_seed(rank)
model(torch.randn(8, 10)).square().sum().backward()
optimizer.step()
"""


def view(ranks: Ranks, source: str, n: int = 2) -> ParityView:
    session = ranks.session(n)
    session.restart()
    result = session.run(SETUP + dedent(source))
    assert result.ok, result.errors
    return ddt.parity(result)


def test_ddp_keeps_ranks_equal_but_for_its_buffers(ranks: Ranks) -> None:
    shown = view(ranks, f"model = DDP(raw)\n{TRAIN}", n=4)
    (flag,) = shown.flags
    assert flag.kind == "hint"
    assert "2 buffers of model differ" in flag.text
    frame = shown.to_frame()
    equal = frame[frame.role.isin(["parameter", "gradient", "state", "setting"])].equal
    assert len(equal)
    assert equal.all()


def test_without_ddp_parameters_gradients_and_state_differ(ranks: Ranks) -> None:
    shown = view(ranks, f"model, raw = raw, None\n{TRAIN}")
    texts = [flag.text for flag in shown.flags]
    assert any("parameters of model differ" in t and "not wrapped in DDP" in t for t in texts)
    assert any("gradients of model differ" in t for t in texts)
    assert any("entries of the state of optimizer differ" in t for t in texts)


def test_the_element_that_differs_is_named_with_its_values(ranks: Ranks) -> None:
    source = """
    model = DDP(raw)
    with torch.no_grad():
        raw[0].weight.fill_(1.5)
        if rank == 2:
            raw[0].weight[3, 7] = 2.0
            raw[0].weight[1, 2] = 1.0
    """
    shown = view(ranks, source, n=4)
    (flag,) = shown.flags
    assert flag.kind == "error"
    assert flag.text == (
        "model.0.weight: element [1, 2] is 1.5 on rank 0, but 1 on rank 2 "
        "(2 of 40 elements differ, by up to 0.5)"
    )
    (difference,) = shown.snapshot.parity[2].differences
    assert (difference.first, difference.count, difference.largest) == ((1, 2), 2, 0.5)
    assert (difference.reference, difference.here, difference.there) == (0, "1", "1.5")
    assert not ranks.session(4).pool.directory.joinpath("parity0").exists()


def test_settings_types_and_missing_state_differ(ranks: Ranks) -> None:
    source = """
    model = DDP(raw)
    other = torch.nn.Linear(2, 2).to(torch.float64 if rank else torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (rank + 1), momentum=0.9)
    model(torch.randn(8, 10)).sum().backward()
    if rank == 0:
        optimizer.step()
    model.train(rank == 0)
    """
    texts = [flag.text for flag in view(ranks, source).flags]
    assert "optimizer.lr[0]: 0.1 on rank 0, 0.2 on rank 1" in texts
    assert "model.training: True on rank 0, False on rank 1" in texts
    assert any("other.weight: float32 2×2 on rank 0, float64 2×2 on rank 1" in t for t in texts)
    assert any("exists on rank 0, but not on rank 1" in t for t in texts)


def test_nan_is_not_shown_as_a_distance(ranks: Ranks) -> None:
    source = """
    x = torch.nn.Module()
    x.w = torch.nn.Parameter(torch.ones(5))
    if rank:
        x.w.data[2] = float("nan")
    """
    shown = view(ranks, source)
    (difference,) = shown.snapshot.parity[1].differences
    assert (difference.first, difference.largest, difference.here) == ((2,), None, "nan")
    (flag,) = shown.flags
    assert flag.text.startswith("x.w: element [2] is 1 on rank 0, but nan on rank 1 ")
    assert "some are not finite" in flag.text


def test_fingerprints_differ_for_any_change_and_any_order(ranks: Ranks) -> None:
    session = ranks.session(2)
    session.restart()
    source = """
    from ddt_notebook.rank.probes.fingerprints import fingerprint
    x = torch.arange(100_003, dtype=torch.float32)
    known = {fingerprint(x), fingerprint(x.flip(0)), fingerprint(x[1:]), fingerprint(x.double())}
    for at in (0, 1, 65_536, 100_001, 100_002):
        y = x.clone()
        y[at] += 1
        known.add(fingerprint(y))
    assert len(known) == 9
    grid = x[:100_000].reshape(100, 1000)
    assert fingerprint(grid.t()) == fingerprint(grid.t().contiguous()) != fingerprint(grid)
    assert fingerprint(x[3:].bfloat16()) == fingerprint(x.bfloat16()[3:])
    for kind in (torch.bool, torch.uint8, torch.complex64, torch.float16, torch.int64):
        ones = torch.ones(7).to(kind)
        assert fingerprint(ones) == fingerprint(ones.clone()) != fingerprint(ones[:6])
    fingerprint(torch.empty(0))
    """
    result = session.run(dedent(source))
    assert result.ok, result.errors


def test_equal_parameters_that_are_nan_are_flagged(ranks: Ranks) -> None:
    fill = """
    model = DDP(raw)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(float("nan"))
    """
    (flag,) = view(ranks, fill).flags
    assert flag.kind == "warning"
    assert flag.text.startswith("4 parameters of model hold nan on every rank")
    (flag,) = view(ranks, "model = DDP(raw)\nraw[0].bias.data[1] = float('inf')").flags
    assert flag.text.startswith("model.0.bias holds inf on every rank")


def test_nan_that_is_allowed_is_not_flagged(ranks: Ranks) -> None:
    masked = """
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.large = torch.nn.Parameter(torch.full((9,), 60000.0, dtype=torch.float16))
            self.tiny = torch.nn.Parameter(torch.ones(4).to(torch.float8_e4m3fn), False)
            self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))
    model = Masked()
    model.large.grad = torch.full((9,), float("nan"), dtype=torch.float16)  # a scaler skips it
    """
    assert not view(ranks, masked).flags
