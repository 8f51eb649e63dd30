# ruff: noqa: E402 - what is imported later needs what importorskip looks for
"""Random weights keep activations in the range of float16."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from utils.export.networks.random_weights import BIAS, RESIDUAL_SCALE, lift, seeded

pytestmark = pytest.mark.torch


class BasicBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 3, padding=1)
        self.bn2 = torch.nn.BatchNorm2d(3)
        self.downsample = torch.nn.Sequential(torch.nn.Conv2d(3, 3, 1), torch.nn.BatchNorm2d(3))

    def forward(self, x: Any) -> Any:
        return self.downsample(x) + self.bn2(self.conv(x))


def deep(norm: bool) -> Any:
    layers = []
    for _ in range(40):
        layers += [torch.nn.Conv2d(8 if layers else 3, 8, 3, padding=1)]
        layers += [torch.nn.BatchNorm2d(8)] if norm else []
        layers += [torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 10))


@pytest.mark.parametrize("norm", [True, False])
def test_forty_layers_keep_their_range_and_do_not_amplify_rounding(norm: bool) -> None:
    model = seeded(partial(deep, norm), (32, 32))
    assert not model.training
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        one, other = model(x), model(x * (1 + 1e-3 * torch.randn_like(x)))
    assert 0.01 < one.abs().max() < 100
    assert (one - other).abs().max() / one.abs().max() < 0.02


def test_only_the_last_norm_of_a_residual_block_is_scaled() -> None:
    model = seeded(BasicBlock)
    assert model.bn2.weight.tolist() == [RESIDUAL_SCALE] * 3
    assert model.downsample[1].weight.tolist() == [1] * 3
    assert seeded(partial(deep, True), (32, 32))[1].bias.tolist() == [BIAS] * 8


def test_zero_weights_and_layer_scales_are_filled() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(4, 4)
            self.scale = torch.nn.Parameter(torch.full((4, 1, 1), 1e-6))
            self.norm = torch.nn.LayerNorm(4)
            torch.nn.init.zeros_(self.head.weight)
            torch.nn.init.zeros_(self.head.bias)

        def forward(self, x: Any) -> Any:
            return x

    made = seeded(Net)
    assert made.head.weight.std() > 0.005
    assert made.head.bias.tolist() == [0] * 4
    assert made.scale.unique().tolist() == [RESIDUAL_SCALE]
    assert made.norm.weight.tolist() == [1] * 4


def test_weights_are_reproducible_and_keep_the_callers_random_state() -> None:
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    one, other = seeded(BasicBlock), seeded(BasicBlock)
    assert torch.equal(torch.rand(1), wanted)
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))


class TwoViews(torch.nn.Module):
    """Two grey images, the mean difference of their features, and a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1, bias=False), torch.nn.BatchNorm2d(4))
        self.last = torch.nn.Conv2d(4, 1, 1)

    def forward(self, left: Any, right: Any) -> Any:
        return torch.relu(self.last(self.features(left) - self.features(right)))


def test_a_network_of_two_inputs_of_one_channel() -> None:
    made = seeded(TwoViews, (16, 24), inputs=2, channels=1)
    assert made.features[1].num_batches_tracked == 2  # once per image
    assert made(torch.ones(1, 1, 16, 24), torch.zeros(1, 1, 16, 24)).shape == (1, 1, 16, 24)


def test_a_lifted_layer_is_positive_for_nearly_all_noise() -> None:
    torch.manual_seed(0)
    last = torch.nn.Conv2d(3, 1, 3, padding=1)
    with torch.no_grad():
        last.bias.fill_(-50.0)
    made = torch.nn.Sequential(last, torch.nn.ReLU())
    image = torch.randn(2, 3, 32, 32)
    assert not made(image).any()
    lift(made, last, (32, 32))
    assert (made(image) > 0).float().mean() > 0.98
