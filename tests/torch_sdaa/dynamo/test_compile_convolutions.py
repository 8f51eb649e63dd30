"""Gradients of compiled convolutions: each form compared with float64, and the choice of the form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

torch = pytest.importorskip("torch")

import torch_sdaa  # noqa: E402, F401 -- makes the device

nn = torch.nn
pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("compiles_anew")]

WAYS: dict[str, tuple[Any, tuple[int, ...], set[str]]] = {
    "few places, one sample": (lambda: nn.Conv2d(3, 4, 3, padding=1), (1, 3, 9, 8), {"ConvTranspose", "Gemm"}),
    "few places, samples": (lambda: nn.Conv2d(3, 4, 3, padding=1), (3, 3, 9, 8), {"ConvTranspose", "Gemm"}),
    "few places, stride": (lambda: nn.Conv2d(3, 4, (3, 2), (2, 3), 1), (2, 3, 9, 8), {"ConvTranspose", "Gemm"}),
    "few places, dilation": (lambda: nn.Conv1d(3, 4, 5, 2, 3, dilation=2), (2, 3, 19), {"ConvTranspose", "Gemm"}),
    "many places": (lambda: nn.Conv2d(3, 4, 5, 2, 1), (2, 3, 9, 8), {"ConvTranspose", "Conv"}),
    "much convolved": (lambda: nn.Conv2d(3, 4, (3, 2), padding=1), (2, 3, 24, 25), {"Conv", "Gemm"}),
    "much, dilated": (lambda: nn.Conv2d(3, 4, 3, padding=2, dilation=2), (2, 3, 24, 25), {"Conv", "Gemm"}),
    "much, padding beyond the kernel": (
        lambda: nn.Conv2d(3, 4, 2, padding=2),
        (2, 3, 24, 25),
        {"ConvTranspose", "Gemm"},
    ),
    "one place, small images": (lambda: nn.Conv2d(3, 4, 1), (3, 3, 5, 6), {"ConvTranspose", "Gemm"}),
    "one place, large images": (lambda: nn.Conv2d(3, 4, 1), (2, 3, 24, 25), {"Conv", "MatMul"}),
    "one channel": (lambda: nn.Conv2d(1, 1, 3, padding=1), (2, 1, 24, 25), {"Conv", "Gemm"}),
    "groups": (lambda: nn.Conv2d(4, 6, 3, padding=1, groups=2), (2, 4, 9, 8), {"ConvTranspose", "MatMul"}),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1), (2, 3, 9, 8), {"Conv", "Gemm"}),
    "volumes": (lambda: nn.Conv3d(2, 3, (1, 3, 3), padding=(0, 1, 1)), (2, 2, 9, 9, 9), {"Conv", "Gemm"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_float64(way: str, tmp_path: Path) -> None:
    build, shape, operators = WAYS[way]
    torch.manual_seed(2)
    layer = nn.Sequential(build(), nn.Tanh())
    x = torch.randn(shape)
    exact, wide = layer.double(), x.double().requires_grad_()
    exact(wide).square().sum().backward()
    expected = [wide.grad, *(p.grad.clone() for p in exact.parameters())]

    own, given = layer.float().to("sdaa"), x.to("sdaa").requires_grad_()
    own.zero_grad()
    torch.compile(own, backend="sdaa", options={"keep": str(tmp_path)})(given).square().sum().backward()
    for found, value in zip([given.grad, *(p.grad for p in own.parameters())], expected, strict=True):
        torch.testing.assert_close(found.cpu().double(), value, rtol=1e-5, atol=1e-5 * value.abs().max().item())

    (model,) = tmp_path.glob("backward*.onnx")
    kinds = {"Conv", "ConvTranspose", "Gemm", "MatMul"}
    assert {node.op_type for node in onnx.load(model).graph.node} & kinds == operators


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("last", [nn.Tanh, nn.Flatten, lambda: nn.MaxPool2d(2)])
def test_layouts_are_those_of_the_uncompiled_device(given: bool, weights: bool, last: Any) -> None:
    layouts = {True: torch.channels_last, False: torch.contiguous_format}
    torch.manual_seed(3)
    plain = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 4, 1), last()).sdaa()
    plain = plain.to(memory_format=layouts[weights])
    compiled = torch.compile(plain, backend="sdaa")
    found = []
    for model in (plain, compiled):
        x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).sdaa()
        x = x.contiguous(memory_format=layouts[given]).requires_grad_()
        made = model(x)
        made.square().sum().backward()
        with torch.no_grad():
            alone = model(x)
        found.append([made, alone, x.grad, *(p.grad.clone() for p in plain.parameters())])
        plain.zero_grad()
    assert [each.stride() for each in found[1][:3]] == [each.stride() for each in found[0][:3]]
    for ours, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("size", [1, 3])
def test_layouts_of_volumes_are_those_of_the_cpu(size: int) -> None:
    found = []
    for device in ("cpu", "sdaa"):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv3d(4, 6, 3, padding=1), nn.ReLU(), nn.Conv3d(6, 5, size)).to(device)
        net = net.to(memory_format=torch.channels_last_3d)
        x = torch.randn(2, 4, 5, 6, 7).to(device, memory_format=torch.channels_last_3d).requires_grad_()
        made = (torch.compile(net, backend="sdaa") if device == "sdaa" else net)(x)
        made.square().sum().backward()
        found.append((made.stride(), x.grad.stride()))
    assert found[0] == found[1]
