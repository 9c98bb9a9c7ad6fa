import pytest

from ddt_notebook.host.errors import SessionError
from ddt_notebook.host.limits import parse_simulated
from ddt_notebook.model import Cell, Snapshot
from ddt_notebook.model.placement import (
    Accelerator,
    PlacedObject,
    RankPlacement,
    TensorPlacement,
)
from ddt_notebook.views.placement import PlacementView


def test_a_number_of_gpus_is_read() -> None:
    assert parse_simulated("cuda:2", "gloo", None) == 2
    assert parse_simulated(None, "nccl", "cuda") == 0


@pytest.mark.parametrize("text", ["cuda", "gpu:2", "cuda:0", "cuda:65", "cuda:-1", "2", ""])
def test_other_device_options_are_refused(text: str) -> None:
    with pytest.raises(SessionError, match=r"cannot be simulated: write cuda:2 for 2 GPUs"):
        parse_simulated(text, "gloo", None)


def test_simulated_and_real_devices_cannot_be_mixed() -> None:
    with pytest.raises(SessionError, match="leave out backend nccl"):
        parse_simulated("cuda:2", "nccl", None)
    with pytest.raises(SessionError, match="leave out device cuda"):
        parse_simulated("cuda:2", "gloo", "cuda")


def placed(rank: int, device: str) -> RankPlacement:
    weight = TensorPlacement(name="w", role="parameter", device=device, dtype="float32", shape=(2,))
    return RankPlacement(
        rank=rank,
        objects=(PlacedObject(name="model", kind="module", type="Net", tensors=(weight,)),),
        accelerators=tuple(
            Accelerator(device=f"cuda:{at}", identity=str(at), simulated=True) for at in range(2)
        ),
    )


def test_the_view_says_that_gpus_are_simulated() -> None:
    snapshot = Snapshot(
        cell=Cell(number=1, source="pass"),
        world_size=2,
        placement=(placed(0, "cuda:0"), placed(1, "cuda:0")),
    )
    view = PlacementView(Snapshot.from_json(snapshot.to_json()))
    assert "2 simulated GPUs" in str(view).splitlines()[0]
    assert "2 simulated GPUs" in view.to_html()
    texts = [flag.text for flag in view.flags]
    assert any("ranks 0 and 1 share one GPU (cuda:0)" in text for text in texts)
    assert "cuda:1 is there, but no rank uses it" in texts
