"""The gradient scaler: its scale, skipped steps, and weights, compared with the CPU's scaler."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

pytestmark = pytest.mark.torch

INF, NAN = float("inf"), float("nan")
SCALER = {"init_scale": 64.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 2}
Optimizers = Callable[[Any], Any]


def _net(device: str) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).to(device)


def _batches(bad: dict[int, float], steps: int) -> Iterator[Any]:
    generator = torch.Generator().manual_seed(1)
    for step in range(steps):
        x = torch.randn(4, 5, generator=generator)
        if step in bad:
            x[1, 2] = bad[step]
        yield x


def _trained(
    device: str, make: Optimizers, bad: dict[int, float], clip: float | None = None, accumulate: int = 1
) -> tuple[list[Any], list[float]]:
    """Return a training's last weights, and the scale after every step."""
    model = _net(device)
    optimizer, scaler = make(model.parameters()), torch.amp.GradScaler(device, **SCALER)
    scales = []
    for step, x in enumerate(_batches(bad, 8)):
        scaler.scale(model(x.to(device)).square().mean()).backward()
        if (step + 1) % accumulate:
            continue
        if clip is not None:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
    return [p.detach().cpu() for p in model.parameters()], scales


OPTIMIZERS: dict[str, Optimizers] = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    # with momentum PyTorch's fused form goes on from memory it never wrote where the first step is skipped
    "sgd fused": lambda p: torch.optim.SGD(p, 0.1, fused=True),
    "adam foreach": lambda p: torch.optim.Adam(p, 0.1, foreach=True),
    "adam fused": lambda p: torch.optim.Adam(p, 0.1, fused=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "adagrad fused": lambda p: torch.optim.Adagrad(p, 0.1, fused=True),
}


@pytest.mark.parametrize("bad", [{}, {0: INF}, {3: NAN, 4: -INF}], ids=str)
@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_scale_and_weights_are_those_of_the_cpus_scaler(name: str, bad: dict[int, float]) -> None:
    here, there = (_trained(device, OPTIMIZERS[name], bad) for device in ("sdaa:1", "cpu"))

    assert here[1] == there[1]
    assert all(torch.equal(a, b) for a, b in zip(here[0], there[0], strict=True))


@pytest.mark.parametrize("name", ["sgd", "adam fused"])
def test_clipping_between(name: str) -> None:
    here, there = (_trained(device, OPTIMIZERS[name], {2: INF}, clip=0.01) for device in ("sdaa", "cpu"))

    assert here[1] == there[1]
    assert all(torch.equal(a, b) for a, b in zip(here[0], there[0], strict=True))


def test_accumulating_over_steps() -> None:
    here, there = (_trained(device, OPTIMIZERS["sgd"], {5: INF}, accumulate=2) for device in ("sdaa", "cpu"))

    assert here[1] == there[1] == [64.0, 256.0, 64.0, 64.0]
    assert all(torch.equal(a, b) for a, b in zip(here[0], there[0], strict=True))


def test_growth_and_backoff() -> None:
    _, scales = _trained("sdaa", OPTIMIZERS["sgd"], {2: INF, 3: NAN})

    assert scales == [64, 256, 64, 16, 16, 64, 64, 256]


@pytest.mark.parametrize("how", [{}, {"foreach": True}, {"fused": True}], ids=str)
def test_a_step_that_overflows_changes_neither_weights_nor_state(how: dict[str, bool]) -> None:
    model = _net("sdaa")
    optimizer, scaler = torch.optim.Adam(model.parameters(), 0.1, **how), torch.sdaa.amp.GradScaler(init_scale=8.0)

    def step(x: Any) -> None:
        optimizer.zero_grad()
        scaler.scale(model(x).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    x = torch.ones(2, 5, device="sdaa")
    step(x)
    before = [p.detach().clone() for p in model.parameters()]
    moments = [s["exp_avg"].clone() for s in optimizer.state.values()]
    model[0].weight.register_hook(lambda grad: grad * INF)
    step(x)

    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert all(torch.equal(a, s["exp_avg"]) for a, s in zip(moments, optimizer.state.values(), strict=True))
    assert [float(s["step"]) for s in optimizer.state.values()] == [1.0] * 4
    assert scaler.get_scale() == 4.0


def test_several_optimizers_of_which_one_overflows() -> None:
    models = [_net("sdaa"), _net("sdaa")]
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in models]
    scaler = torch.amp.GradScaler("sdaa", init_scale=8.0)
    before = [[p.detach().clone() for p in model.parameters()] for model in models]
    x = torch.ones(2, 5, device="sdaa")
    scaler.scale(models[0](x).sum()).backward()
    scaler.scale(models[1](x * INF).sum()).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    same = [
        all(torch.equal(a, b) for a, b in zip(old, m.parameters(), strict=True))
        for old, m in zip(before, models, strict=True)
    ]

    assert same == [False, True]
    assert scaler.get_scale() == 4.0


def test_parameters_on_two_devices() -> None:
    layers = [nn.Linear(3, 3).to("sdaa:0"), nn.Linear(3, 3).to("sdaa:1")]
    optimizer = torch.optim.SGD([p for layer in layers for p in layer.parameters()], 0.1)
    scaler = torch.amp.GradScaler("sdaa", init_scale=8.0)

    def step(x: Any) -> float:
        optimizer.zero_grad()
        scaler.scale(layers[1](layers[0](x).to("sdaa:1")).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        return scaler.get_scale()

    assert step(torch.ones(2, 3, device="sdaa:0")) == 8.0
    assert step(torch.full((2, 3), INF, device="sdaa:0")) == 4.0


def test_a_static_scale_is_constant_and_still_skips() -> None:
    model = _net("sdaa")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.sdaa.amp.GradScaler(init_scale=128.0, growth_interval=1, dynamic=False)
    seen = []
    for x in _batches({1: INF}, 4):
        before = model[0].weight.detach().clone()
        optimizer.zero_grad()
        scaler.scale(model(x.sdaa()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((scaler.get_scale(), torch.equal(before, model[0].weight)))

    assert seen == [(128.0, False), (128.0, True), (128.0, False), (128.0, False)]
    scaler.update(2.0)
    assert scaler.get_scale() == 2.0


def test_its_state_is_saved_and_loaded() -> None:
    model = _net("sdaa")
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("sdaa", **SCALER)
    for x in _batches({1: INF}, 3):
        optimizer.zero_grad()
        scaler.scale(model(x.sdaa()).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    file = io.BytesIO()
    torch.save(scaler.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    other = torch.amp.GradScaler("sdaa")
    other.load_state_dict(state)

    assert state["scale"] == 16.0
    assert state["_growth_tracker"] == 1
    assert other.state_dict() == scaler.state_dict()


def test_a_disabled_scaler_has_no_effect() -> None:
    model = _net("sdaa")
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("sdaa", enabled=False)
    loss = model(torch.ones(1, 5, device="sdaa")).sum()
    assert scaler.scale(loss) is loss
    loss.backward()
    scaler.step(optimizer)
    scaler.update()

    assert scaler.get_scale() == 1.0
    assert scaler.state_dict() == {}


def test_wrong_use() -> None:
    model = _net("sdaa")
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("sdaa")
    scaler.scale(model(torch.ones(1, 5, device="sdaa")).sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(RuntimeError, match=r"unscale_\(\) has already been called"):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"step\(\) has already been called"):
        scaler.step(optimizer)
    half = nn.Linear(2, 2).sdaa().half()
    optimizer = torch.optim.SGD(half.parameters(), 0.1)
    scaler.scale(half(torch.ones(1, 2, device="sdaa", dtype=torch.float16)).sum()).backward()
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients"):
        scaler.step(optimizer)


def test_in_strict_mode() -> None:
    model = nn.Linear(4, 4).sdaa()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler("sdaa", init_scale=64.0)
    torch.sdaa.set_strict(True)
    try:
        with torch.autocast("sdaa"):
            loss = model(torch.ones(2, 4, device="sdaa")).float().sum()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        assert torch.sdaa.is_strict()
    finally:
        torch.sdaa.set_strict(False)
    assert scaler.get_scale() == 64.0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_training_with_and_without_autocast_agree(dtype: Any) -> None:
    def losses(enabled: bool) -> list[float]:
        model = _net("sdaa")
        optimizer, scaler = torch.optim.Adam(model.parameters(), 0.05), torch.amp.GradScaler("sdaa", enabled=enabled)
        found = []
        for x in _batches({}, 12):
            optimizer.zero_grad()
            with torch.autocast("sdaa", dtype=dtype, enabled=enabled):
                loss = nn.functional.mse_loss(model(x.sdaa()), x.sdaa()[:, :3])
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            found.append(loss.item())
        return found

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lowered, single = losses(True), losses(False)

    assert lowered == pytest.approx(single, rel=0.05)
    assert lowered != single
