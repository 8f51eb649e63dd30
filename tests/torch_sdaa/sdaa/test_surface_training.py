"""Calls of training scripts: mixed precision, optimizers, loading and saving, workers."""

from __future__ import annotations

import copy
import io
import warnings
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from torch_sdaa.patches.messages import _device_in  # noqa: E402

pytestmark = pytest.mark.torch


def _net() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))


def _trained(device: str, make: Any, steps: int = 3) -> list[Any]:
    model = _net().to(device)
    optimizer = make(model.parameters())
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(6, 4, generator=generator).to(device)).square().mean().backward()
        optimizer.step()
    return [each.detach().cpu() for each in model.parameters()]


@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": True}, {}])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adagrad])
def test_an_optimizer_steps_as_on_the_cpu(kind: Any, how: dict[str, bool]) -> None:
    here, there = (_trained(device, lambda p: kind(p, lr=0.1, **how)) for device in ("sdaa:2", "cpu"))

    assert all(torch.equal(a, b) for a, b in zip(here, there, strict=True))


def test_autocast_has_cudas_lists() -> None:
    x = torch.ones(2, 4, device="sdaa")
    with torch.sdaa.amp.autocast():
        product = x @ x.t()
        dtypes = [each.dtype for each in (product, product.softmax(-1), torch.cat([product, x[:, :2]]))]
    with torch.autocast("sdaa", dtype=torch.bfloat16):
        assert (x @ x.t()).dtype == torch.bfloat16
    with torch.sdaa.amp.autocast(enabled=False):
        assert (x @ x.t()).dtype == torch.float32

    assert dtypes == [torch.float16, torch.float32, torch.float32]
    assert not torch.sdaa.amp.amp_definitely_not_available()


def test_the_scaler_skips_a_step_that_overflows() -> None:
    model = nn.Linear(2, 2, bias=False).sdaa()
    weight, scaler = model.weight.detach().clone(), torch.sdaa.amp.GradScaler(init_scale=4.0)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    scaler.scale(model(torch.full((1, 2), float("inf"), device="sdaa")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert isinstance(scaler, torch.amp.GradScaler)
    assert torch.equal(model.weight, weight)
    assert scaler.get_scale() == 2.0


def test_a_custom_function_under_autocast() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.sdaa.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @torch.sdaa.amp.custom_bwd
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * 2

    x = torch.ones(2, device="sdaa", dtype=torch.float16, requires_grad=True)
    with torch.sdaa.amp.autocast():
        y = Double.apply(x)
    y.sum().backward()

    assert y.dtype == torch.float32
    assert x.grad.tolist() == [2, 2]


@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(
    ("map_location", "device"),
    [
        (None, "sdaa:3"),
        ("cpu", "cpu"),
        ("sdaa", "sdaa:0"),
        ("sdaa:1", "sdaa:1"),
        (torch.device("sdaa", 2), "sdaa:2"),
        ({"sdaa:3": "sdaa:1"}, "sdaa:1"),
        (lambda storage, place: storage, "cpu"),
    ],
)
def test_a_checkpoint_is_loaded_to_a_device(map_location: Any, device: str, weights_only: bool) -> None:
    model = _net().sdaa(3)
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "x": torch.ones(2, device="sdaa:3")[1:]}, file)
    file.seek(0)
    loaded = torch.load(file, map_location=map_location, weights_only=weights_only)

    assert {str(each.device) for each in [loaded["x"], *loaded["model"].values()]} == {device}
    assert all(
        torch.equal(a.cpu(), b.cpu())
        for a, b in zip(loaded["model"].values(), model.state_dict().values(), strict=True)
    )


def test_an_optimizers_state_is_loaded_onto_the_device() -> None:
    model = _net().sdaa(1)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 4, device="sdaa:1")).sum().backward()
    optimizer.step()
    other = torch.optim.Adam(copy.deepcopy(model).parameters())
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, map_location="cpu"))

    assert {each["exp_avg"].device for each in other.state.values()} == {torch.device("sdaa:1")}


class _Numbers(torch.utils.data.Dataset[Any]):
    def __init__(self, device: str) -> None:
        self.device = device

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([float(index)], device=self.device)


def test_workers_make_batches_on_the_cpu() -> None:
    loader = torch.utils.data.DataLoader(_Numbers("cpu"), 4, num_workers=2, pin_memory=True)
    batches = [(batch.is_pinned(), batch.to("sdaa:1", non_blocking=True).sum().item()) for batch in loader]

    assert batches == [(True, 6.0), (True, 22.0)]


def test_a_forked_worker_that_uses_the_device_is_an_error() -> None:
    torch.ones(1, device="sdaa")
    loader = torch.utils.data.DataLoader(_Numbers("sdaa"), 4, num_workers=1, multiprocessing_context="fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a process with threads
        with pytest.raises(RuntimeError, match=r"in a forked process.*'spawn'.*in the parent"):
            next(iter(loader))


@pytest.mark.slow
@pytest.mark.long
def test_a_workers_batch_on_the_device_is_an_error_in_the_parent() -> None:
    """A spawned worker may compute on a device; it must return host tensors, or its parent waits."""
    loader = torch.utils.data.DataLoader(
        _Numbers("sdaa"), 4, num_workers=1, multiprocessing_context="spawn", timeout=100
    )
    with pytest.raises(RuntimeError, match=r"batch on sdaa:0.*CPU tensors.*parent"):
        next(iter(loader))


def test_a_batch_on_the_device_is_found_in_containers() -> None:
    x = torch.ones(1, device="sdaa:1")
    for batch in (x, (torch.ones(1), x), [{"x": [x]}]):
        assert _device_in(batch) == x.device
    assert _device_in({"x": torch.ones(1), "y": ["text", 3, None]}) is None
