"""Simulated GPUs raise the device errors of real ones and compute the same values."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

import ddt_notebook as ddt
from ddt_notebook.host.run_result import RunResult
from ddt_notebook.host.session import Session
from ddt_notebook.views.session_status import StatusView

NET = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(10, 4)
        self.norm = torch.nn.BatchNorm1d(4)
    def forward(self, x):
        return self.norm(self.fc(x))
torch.manual_seed(0)
torch.cuda.set_device(0)
"""
SAME = "Expected all tensors to be on the same device"


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(2, simulate="cuda:2", hang_after=0.5) as started:
        yield started


def run(session: Session, source: str) -> RunResult:
    session.run("model = x = y = None")
    return session.run(NET + dedent(source))


def works(session: Session, source: str) -> dict[int, str]:
    result = run(session, source)
    assert result.ok, {rank: error.message for rank, error in result.errors.items()}
    return result.outputs


def fails(session: Session, source: str) -> str:
    result = run(session, source)
    assert not result.ok
    assert "the GPUs are simulated: devices are checked, the CPU computes" in result.snapshot.notes
    assert all(error.where and error.where.cell for error in result.errors.values())
    return f"{result.errors[0].type}: {result.errors[0].message}"


def test_each_rank_has_its_device_and_it_is_reported_that_it_is_simulated(session: Session) -> None:
    shown = works(
        session,
        "print(device, torch.cuda.is_available(), torch.cuda.device_count(), "
        "torch.cuda.current_device(), torch.cuda.get_device_name())",
    )
    assert shown == {
        0: "cuda:0 True 2 0 simulated GPU 0\n",
        1: "cuda:1 True 2 0 simulated GPU 0\n",
    }
    assert "2 simulated GPUs (computed on the CPU)" in str(StatusView(session.status()))
    assert session.device == "cuda:2 (simulated)"


def test_ddp_trains_and_every_tensor_is_where_it_would_be(session: Session) -> None:
    shown = works(
        session,
        """
        model = DDP(Net().to(device), device_ids=[rank])
        optimizer = torch.optim.Adam(model.parameters())
        for step in range(3):
            y = torch.ones(8, 4, device=device)
            loss = torch.nn.functional.mse_loss(model(torch.randn(8, 10).to(device)), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        assert loss.item() > 0
        states = {v.device for s in optimizer.state.values() for k, v in s.items() if k != "step"}
        print({p.grad.device for p in model.parameters()}, states, loss.device)
        """,
    )
    for rank in (0, 1):
        one = f"device(type='cuda', index={rank})"
        assert shown[rank] == f"{{{one}}} {{{one}}} cuda:{rank}\n"
    view = ddt.placement(session)
    assert "2 simulated GPUs" in str(view).splitlines()[0]
    for placement in view.snapshot.placement:
        model = next(item for item in placement.objects if item.name == "model")
        assert model.wrapper == "DDP"
        assert {t.device for t in model.tensors} == {f"cuda:{placement.rank}"}
    assert not view.flags
    assert not ddt.parity(session).flags
    assert "on the GPU" not in str(ddt.memory(session))


def test_each_backward_pass_counts_once(session: Session) -> None:
    done = run(
        session,
        """
        model = DDP(Net().cuda(rank), device_ids=[rank])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 10).cuda(rank)).square().mean().backward()
            optimizer.step()
        """,
    )
    assert done.ok, done.errors
    assert [one.backwards for one in done.snapshot.training] == [3, 3]


def test_gradients_as_views_and_a_model_on_two_gpus(session: Session) -> None:
    shown = works(
        session,
        """
        class Two(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Linear(3, 3).to("cuda:0")
                self.second = torch.nn.Linear(3, 3).to("cuda:1")
            def forward(self, x):
                return self.second(self.first(x.to("cuda:0")).to("cuda:1"))
        model = DDP(Two())
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 3)).sum().backward()
            optimizer.step()
        print(model.module.first.weight.grad.device, model.module.second.weight.grad.device)
        one = DDP(Net().to(device), device_ids=[rank], gradient_as_bucket_view=True)
        step = torch.optim.SGD(one.parameters(), 0.1)
        for _ in range(3):
            one(torch.randn(8, 10)).sum().backward()
            step.step()
        print(one.module.fc.weight.grad.device == device)
        """,
    )
    assert shown == {0: "cuda:0 cuda:1\nTrue\n", 1: "cuda:0 cuda:1\nTrue\n"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("Net().to(device)(torch.randn(2, 10))", ("mat1", "cpu", "cuda:0", "addmm")),
        ("Net().cuda()(torch.randn(2, 10, device='cpu'))", ("mat1", "cpu", "cuda:0", "addmm")),
        ("DDP(Net())(torch.randn(2, 10).cuda())", ("mat1", "cuda:0", "cpu", "addmm")),
        ("torch.ones(3).cuda(0) + torch.ones(3, device='cuda:1')", ("cuda:0", "cuda:1")),
        ("torch.cat([torch.ones(2).cuda(0), torch.ones(2).cuda(1)])", ("cuda:0", "cuda:1")),
        (
            "torch.nn.functional.cross_entropy(torch.ones(2, 3).cuda(), torch.tensor([0, 1]))",
            ("target", "cpu", "cuda:0", "nll_loss_forward"),
        ),
        (
            "torch.nn.Embedding(4, 2).cuda()(torch.tensor([1]))",
            ("indices", "cpu", "cuda:0", "embedding"),
        ),
    ],
)
def test_tensors_on_different_devices_cannot_meet(
    session: Session, source: str, said: tuple[str, ...]
) -> None:
    """The two messages of PyTorch: of an argument that is elsewhere, and of two devices."""
    if len(said) == 4:
        name, device, others, operation = said
        expected = (
            f"got {name} is on {device}, different from other tensors on {others} "
            f"(when checking argument in method wrapper_CUDA_{operation})"
        )
    else:
        expected = f"found at least two devices, {' and '.join(said)}!"
    assert fails(session, source) == f"RuntimeError: {SAME}, but {expected}"


def test_a_tensor_attribute_is_left_behind(session: Session) -> None:
    source = """
    class Masked(Net):
        def __init__(self):
            super().__init__()
            self.mask = torch.ones(4)
        def forward(self, x):
            return super().forward(x) * self.mask
    model = Masked().to(device)
    model(torch.ones(2, 10, device=device))
    """
    result = run(session, source)
    (finding,) = ddt.diagnose(result).findings
    assert finding.symptom == "D.1.3"
    assert finding.where[0].startswith("cell[")
    flags = [flag.text for flag in ddt.placement(session).flags]
    assert any("model.mask is neither parameter nor buffer" in text for text in flags)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torch.zeros(2, device='cuda:2')", "AcceleratorError: CUDA error: invalid device ordinal"),
        ("Net().to('cuda:5')", "AcceleratorError: CUDA error: invalid device ordinal"),
        ("torch.cuda.set_device(7)", "AcceleratorError: CUDA error: invalid device ordinal"),
        ("torch.ones(2).cuda().numpy()", "TypeError: can't convert cuda:0 device type tensor"),
        (
            "torch.ones(3)[torch.tensor([0]).cuda()]",
            "RuntimeError: indices should be either on cpu or on the same device",
        ),
        (
            "DDP(Net().cuda(), device_ids=[0, 1])",
            "ValueError: device_ids can only be None or contain a single element.",
        ),
        ("torch.cuda.CUDAGraph()", "RuntimeError: torch.cuda.CUDAGraph cannot be simulated"),
        (
            "torch.nn.DataParallel(Net().cuda())",
            "RuntimeError: torch.nn.DataParallel on several GPUs cannot be simulated",
        ),
        (
            "from torch.distributed.fsdp import fully_shard\nfully_shard(Net().cuda())",
            "RuntimeError: fully_shard (FSDP2) cannot be simulated",
        ),
        (
            "torch.multiprocessing.spawn(print, nprocs=3)",
            "RuntimeError: torch.multiprocessing.spawn with nprocs=3 cannot be simulated",
        ),
        (
            "torch.randn(2, device='cuda', generator=torch.Generator())",
            "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
        ),
        (
            "torch.randperm(4, generator=torch.Generator('cuda'))",
            "RuntimeError: Expected a 'cpu' device type for generator but found 'cuda'",
        ),
        (
            "torch.eye(2).to_sparse().cuda()",
            "RuntimeError: a torch.sparse_coo tensor on cuda:0 cannot be simulated",
        ),
    ],
)
def test_what_a_gpu_refuses_is_refused(session: Session, source: str, message: str) -> None:
    assert fails(session, source).startswith(message)


def test_what_a_gpu_allows_is_allowed(session: Session) -> None:
    works(
        session,
        """
        import copy, io
        x = torch.ones(3, device="cuda")
        assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and x.to("cuda:0") is x
        assert (x * torch.tensor(2.0)).device == x.device
        assert torch.ones(3)[torch.tensor([0])].device.type == "cpu"
        assert x[torch.tensor([0])].is_cuda and x.new_tensor([1.0]).is_cuda
        assert torch.nn.functional.one_hot(torch.arange(3).cuda()).is_cuda
        assert torch.tensor([1.0], device="cuda:1").device == torch.device("cuda:1")
        assert x.cpu().numpy().sum() == 3 and (x > 0).all().item()
        assert copy.deepcopy(x).is_cuda and torch.zeros(3).copy_(x).is_cpu
        leaf = torch.ones(3, requires_grad=True)
        (leaf.cuda() * 2).sum().backward()
        assert leaf.grad.is_cpu and leaf.grad.tolist() == [2, 2, 2]
        with torch.device("cuda:1"):
            assert torch.nn.Linear(2, 2).weight.device.index == 1
        with torch.cuda.device(1):
            assert torch.zeros(2, device="cuda").device.index == 1
        attention = torch.nn.MultiheadAttention(8, 2).cuda()
        batch = torch.ones(2, 3, 8).cuda()
        assert attention(batch, batch, batch)[0].is_cuda
        scores = torch.randn(5, 2, 4, device=device).log_softmax(2)
        lengths = torch.tensor([5, 5]), torch.tensor([3, 3])
        labels = torch.ones(2, 3, dtype=torch.long, device=device)
        assert torch.nn.functional.ctc_loss(scores, labels, *lengths).is_cuda
        """,
    )


def test_a_convolution_checks_devices(session: Session) -> None:
    said = "RuntimeError: Input type (torch.%s) and weight type (torch.%s) should be the same"
    source = "torch.nn.Conv2d(1, 1, 1).{}(torch.ones(1, 1, 2, 2).{})"
    there = fails(session, source.format("cuda()", "cpu()"))
    assert there == said % ("FloatTensor", "cuda.FloatTensor")
    here = fails(session, source.format("cpu()", "cuda()"))
    assert here == said % ("cuda.FloatTensor", "FloatTensor")
    other = fails(session, source.format("cuda(0)", "cuda(1)"))
    assert "'input' to have the same device as tensor for argument #2 'weight'" in other
    works(session, source.format("cuda(1)", "cuda(1)"))


def test_scripted_functions_make_tensors(session: Session) -> None:
    source = """
    def one(scale: float):
        return scale * torch.tensor(1.0) + torch.as_tensor(2.0)
    assert torch.jit.script(one)(3.0) == 5.0
    """
    works(session, source)


def test_a_number_divides_in_place_within_a_traced_module(session: Session) -> None:
    source = """
    class Cooled(Net):
        def forward(self, x):
            x = super().forward(x)
            x /= 0.07
            return x
    Cooled().to(device)(torch.ones(2, 10, device=device)).sum().backward()
    """
    assert session.run(NET + dedent(source), trace=True).ok


def test_what_a_function_held_says_nothing_about_its_gpu(session: Session) -> None:
    session.restart()
    source = """
    def main():
        torch.cuda.set_device(rank)
        model = DDP(torch.nn.Linear(2, 2).cuda())
        model(data.cuda()).sum().backward()
    data = torch.ones(3, 2)
    main()
    """
    works(session, source)
    assert not ddt.placement(session).flags


def test_a_gpu_may_be_given_by_its_number(session: Session) -> None:
    works(
        session,
        """
        here = torch.device("cuda", rank)
        assert torch.device(rank) == here
        assert Net().to(rank).fc.weight.device == Net().cuda(rank).fc.weight.device == here
        assert torch.ones(2).to(rank).device == torch.ones(2).to(device=rank).device == here
        made = [
            torch.ones(2, device=rank), torch.randn(2, device=rank), torch.arange(3, device=rank),
            torch.tensor([1.0], device=rank), torch.zeros_like(torch.ones(2), device=rank),
            torch.ones(2).new_zeros(3, device=rank), torch.nn.Linear(2, 2, device=rank).weight,
        ]
        assert {one.device for one in made} == {here}
        for default in (rank, "cuda", "cpu"):
            torch.set_default_device(default)
            kinds = {torch.ones(1).device.type, torch.tensor([1.0]).device.type}
            assert kinds == {"cpu" if default == "cpu" else "cuda"}, (default, kinds)
            assert torch.nn.BatchNorm1d(2).weight.device.type in kinds
        torch.set_default_device(None)
        assert not torch.tensor([1.0]).is_cuda
        torch.cuda.set_device(rank)
        assert torch.ones(2).cuda().device == here
        torch.cuda.set_device(0)
        assert torch.ones(2).cuda().type() == "torch.cuda.FloatTensor"
        assert torch.ones(2).type(torch.cuda.DoubleTensor).dtype == torch.float64
        made = torch.cuda.FloatTensor([1.0, 2.0])
        assert made.is_cuda and made.tolist() == [1, 2]
        assert isinstance(made, torch.cuda.FloatTensor)
        assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.zeros(1).is_cuda and torch.zeros(1).dtype == torch.float64
        torch.set_default_tensor_type(torch.FloatTensor)
        assert torch.zeros(1).is_cpu and torch.zeros(1).dtype == torch.float32
        """,
    )


def test_streams_events_generators_and_properties(session: Session) -> None:
    works(
        session,
        """
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        with torch.cuda.stream(side):
            assert torch.cuda.current_stream() is side
            x = torch.ones(2, device="cuda")
            x.record_stream(side)
        assert torch.cuda.current_stream() is torch.cuda.default_stream() is not side
        end.record()
        torch.cuda.synchronize()
        assert side.query() and begin.elapsed_time(end) >= 0
        drawn = [
            torch.randn(3, device="cuda", generator=torch.Generator("cuda").manual_seed(seed))
            for seed in (1, 1, 2)
        ]
        assert drawn[0].is_cuda and drawn[0].equal(drawn[1]) and not drawn[0].equal(drawn[2])
        assert isinstance(None, torch.cuda.CUDAGraph | None)  # as libraries annotate it
        assert torch.Generator(device).device == device and torch.Generator().device.type == "cpu"
        assert isinstance(torch.default_generator, torch.Generator)
        assert torch.cuda.get_device_properties(rank).name == f"simulated GPU {rank}"
        assert torch.cuda.get_device_properties(0).total_memory > 0
        assert torch.cuda.get_device_properties(0).uuid == ""
        torch.cuda.set_per_process_memory_fraction(0.5)
        torch.cuda.reset_max_memory_allocated()
        torch.cuda.default_generators[0].manual_seed(1)
        alone = torch.nn.DataParallel(torch.nn.Linear(2, 1).cuda(), device_ids=[0])
        assert alone(torch.ones(3, 2)).device == torch.device("cuda:0")
        state = torch.cuda.get_rng_state()
        first = torch.rand(2, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.rand(2, device="cuda").equal(first)
        """,
    )


def test_autocast_computes_in_the_type_that_it_would_on_a_gpu(session: Session) -> None:
    works(
        session,
        """
        layer = torch.nn.Linear(4, 2).to(device)
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        x = torch.ones(3, 4, device=device)
        with torch.autocast("cuda"):
            assert layer(x).dtype == torch.float16
            with torch.autocast("cuda", enabled=False):
                assert layer(x).dtype == torch.float32
            loss = torch.nn.functional.mse_loss(layer(x).float(), torch.zeros(3, 2).to(device))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert layer(x).dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
        scaler.scale(loss / 2).backward()
        scaler.step(optimizer)
        scaler.update()
        assert layer.weight.grad.is_cuda and torch.cuda.nccl.version() < (2, 10)
        """,
    )


def test_tensors_are_gathered_and_scattered_whatever_their_shape(session: Session) -> None:
    works(
        session,
        """
        mine = torch.full((1, 2), float(rank), device=device)
        every = torch.empty(4, device=device)
        dist.all_gather_into_tensor(every, mine)
        assert every.is_cuda and every.tolist() == [0, 0, 1, 1]
        half = torch.empty(1, 2, device=device)
        dist.reduce_scatter_tensor(half, every)
        assert half.tolist() == [[2.0 * rank] * 2]
        """,
    )


def test_a_divided_sequence_trains_through_asynchronous_collectives(session: Session) -> None:
    """Their results, and the gradients through them, are tensors without storage."""
    shown = works(
        session,
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, parallel

        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        whole = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        whole.load_state_dict(model.state_dict())
        mesh = init_device_mesh("cuda", (world_size,))
        parts = {
            "0": parallel.ColwiseParallel(input_layouts=Shard(0)),
            "2": parallel.RowwiseParallel(output_layouts=Shard(0)),
        }
        model = parallel.parallelize_module(model.to("cuda"), mesh, parts)
        x = torch.randn(8, 6)
        y = model(x.chunk(world_size)[rank].to("cuda"))
        y.sum().backward()
        whole(x).sum().backward()
        mine, wanted = model[2].weight.grad.full_tensor(), whole[2].weight.grad
        print(torch.allclose(mine.cpu(), wanted, atol=1e-5))
        """,
    )
    assert {text.strip() for text in shown.values()} == {"True"}


def test_synchronized_batch_norm_is_that_of_the_whole_batch(session: Session) -> None:
    works(
        session,
        """
        torch.manual_seed(0)
        whole, wanted = torch.randn(12, 3, 5), torch.randn(12, 3, 5)
        alone = torch.nn.BatchNorm1d(3)
        torch.nn.init.normal_(alone.weight)
        synced = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.BatchNorm1d(3))
        synced.load_state_dict(alone.state_dict())
        synced = DDP(synced.to(rank), device_ids=[rank])
        mine = slice(0, 4) if rank == 0 else slice(4, 12)  # uneven shares
        inputs = whole[mine].to(rank).requires_grad_()
        (synced(inputs) * wanted[mine].to(rank)).sum().backward()
        reference = whole.clone().requires_grad_()
        (alone(reference) * wanted).sum().backward()
        close = torch.testing.assert_close
        close(inputs.grad.cpu(), reference.grad[mine], rtol=1e-4, atol=1e-5)
        close(2 * synced.module.weight.grad.cpu(), alone.weight.grad, rtol=1e-4, atol=1e-5)
        close(2 * synced.module.bias.grad.cpu(), alone.bias.grad, rtol=1e-4, atol=1e-5)
        close(synced.module.running_mean.cpu(), alone.running_mean)
        close(synced.module.running_var.cpu(), alone.running_var)
        assert synced.module.running_var.device == inputs.device
        """,
    )


SCRIPT = """
import os
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel as DDP

def main(rank, world_size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "{port}"
    assert dist.is_nccl_available()
    dist.init_process_group("nccl", rank=rank, world_size=world_size,
                            device_id=torch.device("cuda", rank))
    torch.cuda.set_device(rank)
    half = dist.new_group([0, 1], backend="nccl")
    model = DDP(torch.nn.Linear(4, 2).to(rank), device_ids=[rank], process_group=half)
    loss = model(torch.randn(3, 4).to(rank)).sum()
    loss.backward()
    print("trained on", loss.device)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, args=(torch.cuda.device_count(),), nprocs=torch.cuda.device_count())
"""


def test_a_script_for_gpus_and_nccl_runs_as_it_is(session: Session, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    script = tmp_path / "train.py"
    script.write_text(SCRIPT.format(port=port))
    run = session.run_script(script)
    assert run.ok, {rank: error.message for rank, error in run.errors.items()}
    assert [run.outputs[rank].strip() for rank in (0, 1)] == [
        "trained on cuda:0",
        "trained on cuda:1",
    ]
    assert sum("nccl is mapped to gloo" in note for note in run.snapshot.notes) == 1
    assert any("spawn" in note for note in run.snapshot.notes)
    assert not ddt.diagnose(run).findings
    works(session, "dist.all_reduce(torch.ones(2, device=rank))")


def test_a_group_of_nccl_takes_no_tensor_on_the_cpu(session: Session) -> None:
    works(
        session,
        """
        here, there = torch.ones(2), torch.ones(2, device=device)
        only_gpus = dist.new_group(backend="nccl")
        dist.all_reduce(there, group=only_gpus)
        try:
            dist.all_reduce(here, group=only_gpus)
        except RuntimeError as error:
            assert str(error) == "No backend type associated with device type cpu"
        else:
            raise AssertionError("NCCL has carried a tensor on the CPU")
        for backend in ("gloo", "cpu:gloo,cuda:nccl", None):
            for tensor in (here, there):
                dist.all_reduce(tensor, group=dist.new_group(backend=backend))
        objects = [None] * world_size
        dist.all_gather_object(objects, rank, group=only_gpus)
        assert objects == [0, 1]
        """,
    )


def test_checkpoints_remember_devices(session: Session) -> None:
    source = """
    import io
    file = io.BytesIO()
    torch.save({"x": torch.ones(2).cuda(1)}, file)
    def load(**options):
        return torch.load(io.BytesIO(file.getvalue()), **options)["x"].device
    print(load(), load(map_location="cpu"), load(map_location={"cuda:1": "cuda:0"}))
    """
    assert works(session, source)[1] == "cuda:1 cpu cuda:0\n"
    message = fails(session, source + "load(map_location='cuda:4')")
    assert "Attempting to deserialize object on CUDA device 4" in message


def test_the_record_of_a_tensor_on_a_gpu_passes_the_simulation(session: Session) -> None:
    """It equals that on the CPU, and no function of torch that makes it is simulated."""
    shown = works(
        session,
        """
        from ddt_notebook.rank.probes.fingerprints import projection, sketches
        from ddt_notebook.rank.probes.simulated import InsideCalls, SimulatedGPUs, UNSIMULATED

        tensors = [torch.randn(300), torch.randn(5000, 3).t(), torch.arange(9).bfloat16()]
        on_gpu = [tensor.cuda() for tensor in tensors]
        simulated, kept = [], []
        for kind, name in (
            (InsideCalls, "__torch_function__"), (SimulatedGPUs, "__torch_dispatch__")
        ):
            kept.append((kind, name, getattr(kind, name)))
            def counting(self, func, *rest, of=getattr(kind, name)):
                simulated.append(func)
                return of(self, func, *rest)
            setattr(kind, name, counting)
        with UNSIMULATED:
            found = sketches(on_gpu), [projection(one) for one in on_gpu]
        count = len(simulated)
        on_gpu[0] + 1
        for kind, name, original in kept:
            setattr(kind, name, original)
        expected = sketches(tensors), [projection(one) for one in tensors]
        print(count, len(simulated) > 0, found == expected, *{str(one.device) for one in on_gpu})
        """,
    )
    assert shown == {0: "0 True True cuda:0\n", 1: "0 True True cuda:0\n"}


def test_collectives_and_hangs_are_real(session: Session) -> None:
    shown = works(
        session,
        """
        x = torch.full((2,), rank + 1.0, device=device)
        dist.all_reduce(x)
        y = [torch.zeros(2).to(device) for _ in range(2)]
        dist.all_gather(y, torch.full((2,), float(rank)).to(device))
        dist.broadcast(x, 0)
        print(x.tolist(), [part.tolist() for part in y], x.device)
        """,
    )
    assert shown[1] == "[3.0, 3.0] [[0.0, 0.0], [1.0, 1.0]] cuda:1\n"
    hung = run(session, "if rank == 0: dist.all_reduce(torch.ones(2).cuda())")
    assert hung.snapshot.outcome == "hung"
    assert ddt.diagnose(hung).findings[0].ranks == [1]
    works(session, "dist.all_reduce(torch.ones(2).cuda())")


def test_every_rank_on_the_first_gpu_is_flagged(session: Session) -> None:
    session.restart()
    works(session, "model = DDP(Net().cuda())")
    texts = [flag.text for flag in ddt.placement(session).flags]
    assert any("ranks 0 and 1 share one GPU (cuda:0)" in text for text in texts)
    assert any("cuda:1 is there, but no rank uses it" in text for text in texts)


def test_a_tensor_that_is_a_plain_attribute_is_named(session: Session) -> None:
    source = """
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(4, 4)
            self.scale = 2 * torch.ones(4)
        def forward(self, x):
            return self.linear(x) * self.scale
    model = DDP(Scaled().to(device))
    model(torch.randn(2, 4, device=device))
    """
    (finding,) = ddt.diagnose(run(session, source)).findings
    assert (finding.symptom, finding.cause) == ("D.1.3", "tensor-attribute-not-registered")
    assert any("self.scale = 2 * torch.ones(4)" in fact for fact in finding.evidence)
