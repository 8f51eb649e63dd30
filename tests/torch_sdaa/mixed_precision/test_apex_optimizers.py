"""Fused optimizers: the bits of the plain optimizers, in one launch."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from torch_sdaa.apex import optimizers  # noqa: E402
from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = pytest.mark.torch

SHAPES = [(7, 5), (7,), (3, 2, 3, 3), (), (1, 33)]

PLAIN = {
    "SdaaFusedAdam": torch.optim.Adam,
    "SdaaFusedAdadelta": torch.optim.Adadelta,
    "SdaaFusedSGD": torch.optim.SGD,
    "SdaaFusedLamb": optimizers.Lamb,
}
CONFIGURATIONS: list[tuple[str, dict[str, Any]]] = [
    ("SdaaFusedAdam", {}),
    ("SdaaFusedAdam", {"lr": 0.1, "betas": (0.8, 0.99), "eps": 1e-6, "weight_decay": 0.1}),
    ("SdaaFusedAdam", {"lr": 0.1, "amsgrad": True}),
    ("SdaaFusedAdam", {"lr": 0.1, "maximize": True}),
    ("SdaaFusedAdam", {"lr": torch.tensor(0.1)}),
    ("SdaaFusedAdadelta", {}),
    ("SdaaFusedAdadelta", {"lr": 0.5, "rho": 0.8, "weight_decay": 0.1, "maximize": True}),
    ("SdaaFusedSGD", {"lr": 0.1}),
    ("SdaaFusedSGD", {"lr": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("SdaaFusedSGD", {"lr": 0.1, "momentum": 0.9}),
    ("SdaaFusedSGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
    ("SdaaFusedSGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    ("SdaaFusedLamb", {}),
    ("SdaaFusedLamb", {"lr": 0.1, "betas": (0.8, 0.99), "weight_decay": 0.1}),
    ("SdaaFusedLamb", {"lr": 0.1, "adam": True}),
]


def _params(device: str, dtype: Any = torch.float32) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(device, dtype).requires_grad_() for shape in SHAPES]


def _step(params: list[Any], optimizer: Any, number: int) -> int:
    """Take a step with gradients generated from its number; return the number of launches."""
    generator = torch.Generator().manual_seed(number + 1)
    for k, param in enumerate(params):
        grad = torch.randn(param.shape, generator=generator).to(param.device, param.dtype)
        param.grad = None if k == 1 and number == 0 else grad  # one joins later
    before = C.launches()
    optimizer.step()
    return int(C.launches() - before)


@pytest.mark.parametrize("device", ["cpu", "sdaa:1"])
@pytest.mark.parametrize(("name", "options"), CONFIGURATIONS, ids=str)
def test_a_fused_step_matches_the_plain_optimizer_in_one_launch(
    name: str, options: dict[str, Any], device: str
) -> None:
    ours, plain = _params(device), _params(device)
    fused = getattr(optimizers, name)(ours, **options)
    other = PLAIN[name](plain, **options, **({} if name == "SdaaFusedLamb" else {"foreach": False}))
    launches = [(_step(ours, fused, k), _step(plain, other, k)) for k in range(3)]

    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))
    for a, b in zip(ours, plain, strict=True):
        mine, theirs = fused.state[a], other.state[b]
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
    if device != "cpu":
        assert launches[-1][1] >= len(SHAPES)
        assert launches[-1][0] == (launches[-1][1] if isinstance(options.get("lr"), torch.Tensor) else 1)


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_fused_step_takes_fewer_launches_than_foreach(name: str) -> None:
    """On the device PyTorch's default is an operator on a list of tensors (``foreach``)."""
    ours, plain = _params("sdaa"), _params("sdaa")
    fused, other = getattr(optimizers, name)(ours, lr=0.1), PLAIN[name](plain, lr=0.1)
    launches = [(_step(ours, fused, k), _step(plain, other, k)) for k in range(3)]

    assert launches[-1][0] <= launches[-1][1]
    assert launches[-1][0] == 1


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_half_parameters_and_two_devices(name: str) -> None:
    def trained(kind: Any, **options: Any) -> list[Any]:
        params = [*_params("sdaa:0"), *_params("sdaa:1"), *_params("sdaa:0", torch.float16)]
        optimizer = kind(params, lr=0.01, **options)
        for k in range(2):
            _step(params, optimizer, k)
        return params

    ours = trained(getattr(optimizers, name))
    plain = trained(PLAIN[name], **({} if name == "SdaaFusedLamb" else {"foreach": False}))
    assert all(torch.equal(a, b) for a, b in zip(ours, plain, strict=True))


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_momentum_strides_match_the_plain_optimizer_for_gradients_of_other_strides(decay: float) -> None:
    states = []
    for kind, how in ((optimizers.SdaaFusedSGD, {}), (torch.optim.SGD, {"foreach": False})):
        generator = torch.Generator().manual_seed(0)
        param = torch.randn(2, 3, 4, 4, generator=generator).half().to("sdaa", memory_format=torch.channels_last)
        param.requires_grad_()
        optimizer = kind([param], 0.1, momentum=0.9, nesterov=True, weight_decay=decay, **how)
        for _ in range(4):
            param.grad = torch.randn(2, 3, 4, 4, generator=generator).half().to("sdaa")
            optimizer.step()
        states.append((param, optimizer.state[param]["momentum_buffer"]))
    (ours, buffer), (plain, other) = states

    assert torch.equal(ours, plain)
    assert torch.equal(buffer, other)
    assert buffer.stride() == other.stride()


@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"SdaaFusedLamb"}))
def test_checkpoints_are_interchangeable_with_the_plain_optimizer(name: str) -> None:
    plain = _params("sdaa")
    first = PLAIN[name](plain, lr=0.1, foreach=False)
    _step(plain, first, 0)
    ours = [p.detach().clone().requires_grad_() for p in plain]
    fused = getattr(optimizers, name)(ours, lr=0.1)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    fused.load_state_dict(torch.load(file, weights_only=True))
    back = [p.detach().clone().requires_grad_() for p in plain]
    again = PLAIN[name](back, lr=0.1, foreach=False)
    again.load_state_dict(copy.deepcopy(fused.state_dict()))
    for params, optimizer in ((plain, first), (ours, fused), (back, again)):
        _step(params, optimizer, 1)

    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(plain, ours, back, strict=True))


def test_sparse_gradients() -> None:
    def trained(kind: Any) -> Any:
        table = torch.arange(12.0, device="sdaa").reshape(4, 3).requires_grad_()
        optimizer = kind([table], lr=0.1)
        nn.functional.embedding(torch.tensor([1, 1, 3], device="sdaa"), table, sparse=True).sum().backward()
        optimizer.step()
        return table

    assert torch.equal(trained(optimizers.SdaaFusedSGD), trained(torch.optim.SGD))
    for kind in (optimizers.SdaaFusedAdam, optimizers.SdaaFusedAdadelta, optimizers.SdaaFusedLamb):
        with pytest.raises(RuntimeError, match="sparse gradients"):
            trained(kind)


def test_a_closure_and_a_scheduler() -> None:
    weight = torch.ones(3, device="sdaa", requires_grad=True)
    optimizer = optimizers.SdaaFusedSGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = weight.sum()
        loss.backward()
        return loss

    losses = []
    for _ in range(2):
        losses.append(optimizer.step(closure).item())
        scheduler.step()
    assert losses == [3.0, 0.0]
    assert weight.tolist() == [-0.5] * 3


def test_the_gradient_scaler_skips_its_steps() -> None:
    weight = torch.ones(3, device="sdaa", requires_grad=True)
    optimizer, scaler = optimizers.SdaaFusedAdam([weight], lr=1.0), torch.amp.GradScaler("sdaa", init_scale=8.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()

    assert weight.tolist() == [1.0] * 3
    assert scaler.get_scale() == 4.0


def test_a_fused_optimizer_launch_has_a_cost() -> None:
    params = _params("sdaa")
    optimizer = optimizers.SdaaFusedAdam(params, lr=0.1)
    _step(params, optimizer, 1)
    found = {op: seconds for (op, *_), _, seconds, _ in C.signatures()}

    assert found["sdaa::fused_adam_"] > 0
    assert "sdaa::fused_adam_" not in torch.sdaa.time_summary().partition("rough")[2]


def test_the_names_of_the_guides_are_the_same_classes() -> None:
    for name in PLAIN:
        assert getattr(optimizers, name.replace("Sdaa", "Npu")) is getattr(optimizers, name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizers.Lamb([torch.ones(1)], lr=-1.0), r"lr=-1.0 must be 0 or more"),
        (lambda: optimizers.Lamb([torch.ones(1)], betas=(0.9, 1.0)), r"betas=\(0.9, 1.0\) must lie in"),
        (lambda: optimizers.SdaaFusedAdam([torch.ones(1)], lr=-1.0), "Invalid learning rate"),
    ],
)
def test_a_wrong_number(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("name", ["FusedAdam", "FusedSGD", "FusedLAMB"])
def test_a_cuda_kernel_is_an_error_with_a_replacement(name: str) -> None:
    with pytest.raises(ImportError, match=f"optimizers.{name}, .*: use SdaaFused"):
        getattr(optimizers, name)
    with pytest.raises(AttributeError, match="it has Lamb, NpuFusedAdadelta"):
        optimizers.FusedAdagard  # noqa: B018


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_autograd_detects_written_parameters(name: str) -> None:
    weight = torch.ones(3, device="sdaa", requires_grad=True)
    weight.grad = torch.ones_like(weight)
    loss = (weight * weight).sum()
    getattr(optimizers, name)([weight], lr=0.1).step()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
