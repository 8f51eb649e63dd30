"""Predicted costs of steps equal those of the launch log, and predicting launches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

from torch import nn  # noqa: E402

from engine import ConfigError  # noqa: E402
from torch_sdaa.apex import amp, optimizers  # noqa: E402
from torch_sdaa.cost.predicted_cost import observe, predict_cost  # noqa: E402
from torch_sdaa.loading.core import C  # noqa: E402

pytestmark = pytest.mark.torch

Build = Callable[[], Callable[[], Any]]


class _Net(nn.Module):
    """Convolutions of every kind, norms, a product, dropout, a residual, slices."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depth = nn.Conv2d(8, 8, 3, groups=8, bias=False)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.GroupNorm(2, 4)])
        self.last = nn.Linear(4, 10)

    def forward(self, x: Any) -> Any:
        """Return the scores of ten classes."""
        x = self.norms[0](self.first(x)).relu_()
        left, right = self.depth(x).chunk(2, 1)
        x = self.up(torch.cat((left[:, :, 1:], (right * 2 + 1)[:, :, 1:]), 1).contiguous())
        x = nn.functional.gelu(self.norms[1](x)) + x
        return self.last(x.mean((2, 3)).softmax(-1))


def _training(make: Callable[[Any], Any], level: str = "") -> Build:
    def build() -> Callable[[], Any]:
        model = _Net().to("sdaa")
        optimizer = make(model.parameters())
        if level:
            model, optimizer = amp.initialize(model, optimizer, opt_level=level, loss_scale="dynamic", verbosity=0)
        x, y = torch.randn(2, 3, 8, 8).to("sdaa"), torch.tensor([1, 2]).to("sdaa")

        def step() -> None:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            if level:
                with amp.scale_loss(loss, optimizer) as scaled:
                    scaled.backward()
            else:
                loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return step

    return build


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    ("make", "level"),
    [
        (lambda params: torch.optim.SGD(params, 0.1, momentum=0.9), ""),
        (lambda params: torch.optim.AdamW(params, 0.1), ""),
        (lambda params: optimizers.SdaaFusedAdam(params, 0.1), ""),
        (lambda params: torch.optim.SGD(params, 0.1), "O1"),
        (lambda params: optimizers.SdaaFusedSGD(params, 0.1), "O2"),
    ],
    ids=["SGD", "AdamW", "fused Adam", "SGD, amp O1", "fused SGD, amp O2"],
)
def test_a_step_is_predicted(make: Callable[[Any], Any], level: str) -> None:
    try:
        before = C.launches()
        predicted = predict_cost(_training(make, level))
        assert C.launches() == before
        seen = observe(_training(make, level)())
    finally:
        amp.initialize(nn.Linear(1, 1), enabled=False, verbosity=0)
    assert len(predicted.launches) == len(seen.launches)
    assert predicted.seconds == pytest.approx(seen.seconds, rel=0.005)


def test_modules_are_moved_normally_afterwards() -> None:
    kept = nn.Module._apply
    predict_cost(_training(lambda params: torch.optim.SGD(params, 0.1)))
    assert nn.Module._apply is kept
    model = nn.Linear(2, 2)
    weight = model.weight
    assert model.to("sdaa").weight is weight


def test_unpredictable_operators_are_errors() -> None:
    def build() -> Callable[[], Any]:
        x = torch.rand(3, 3).to("sdaa")
        return lambda: x.nonzero()

    with pytest.raises(ConfigError, match=r"aten::nonzero .*predicted: its shapes"):
        predict_cost(build)


def _small(model: Callable[[], Any], size: tuple[int, ...], make: Callable[[Any], Any]) -> Build:
    def build() -> Callable[[], Any]:
        net, x = model().to("sdaa"), torch.randn(size).to("sdaa")
        optimizer = make(net.parameters())

        def step() -> None:
            optimizer.zero_grad()
            out = net(x)
            (out[0] if isinstance(out, tuple) else out).logsumexp(-1).sum().backward()
            optimizer.step()

        return step

    return build


@pytest.mark.parametrize(
    ("model", "size", "make"),
    [
        (lambda: nn.LSTM(6, 8, 2, batch_first=True, dropout=0.1), (2, 4, 6), torch.optim.SGD),
        (lambda: nn.Linear(6, 4), (3, 6), torch.optim.NAdam),
        (lambda: nn.Linear(6, 4), (3, 6), torch.optim.Rprop),
    ],
    ids=["LSTM", "NAdam", "Rprop"],
)
def test_copies_and_composed_operators_are_predicted(
    model: Callable[[], Any], size: tuple[int, ...], make: Callable[[Any], Any]
) -> None:
    predicted, seen = predict_cost(_small(model, size, make)), observe(_small(model, size, make)())
    assert len(predicted.launches) == len(seen.launches)
    assert predicted.seconds == pytest.approx(seen.seconds, rel=0.005)


class _Drawn(nn.Module):
    """An encoder of copied layers, with weights that are drawn until they are within bounds."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        nn.init.trunc_normal_(self.first.weight, std=0.02)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        """Return one number per sample."""
        return self.body(self.first(x)).mean((1, 2))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("half", [False, True])
def test_attention_and_copied_layers_are_predicted(half: bool) -> None:
    def build() -> Callable[[], Any]:
        model = _Drawn().to("sdaa")
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("sdaa", enabled=half)
        x = torch.randn(4, 6, 16).to("sdaa")

        def step() -> None:
            optimizer.zero_grad()
            with torch.autocast("sdaa", dtype=torch.float16, enabled=half):
                loss = model(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()

        return step

    predicted, seen = predict_cost(build), observe(build())
    assert len(predicted.launches) == len(seen.launches)
    assert predicted.seconds == pytest.approx(seen.seconds, rel=0.001)


def _loop_of_a_constant() -> Callable[[], Any]:
    x, times, bias = torch.ones(3).to("sdaa"), torch.tensor([2, 3]).to("sdaa"), torch.zeros(4).to("sdaa")

    def step() -> None:
        times.add_(1)
        bias.zero_()
        bias[1:3] += times.max()  # what is written through a view is known by the whole
        for _ in range(int(bias.sum()) + int(torch.tensor([2], device="sdaa"))):
            x.mul_(1.5)

    return step


def _rows_of_a_constant_mask() -> Callable[[], Any]:
    net, x = nn.Linear(6, 4).to("sdaa"), torch.randn(5, 6).to("sdaa")
    kept = torch.tensor([True, False, True, True, False]).to("sdaa")

    def step() -> None:
        net.zero_grad()
        out = net(x[kept])
        out[kept[:3]].logsumexp(-1).sum().backward()

    return step


def _causal_by_its_values() -> Callable[[], Any]:
    layer = nn.TransformerDecoderLayer(16, 2, 32, batch_first=True)
    net = nn.TransformerDecoder(layer, 1).to("sdaa")
    x, memory = torch.randn(2, 5, 16).to("sdaa"), torch.randn(2, 4, 16).to("sdaa")
    mask = nn.Transformer.generate_square_subsequent_mask(5, device="sdaa")
    return lambda: net(x, memory, tgt_mask=mask).square().sum().backward()


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("build", [_loop_of_a_constant, _rows_of_a_constant_mask, _causal_by_its_values])
def test_values_that_follow_from_constants_are_known(build: Build) -> None:
    before = C.launches()
    predicted = predict_cost(build)
    assert C.launches() == before
    seen = observe(build())
    assert not predicted.guessed
    assert len(predicted.launches) == len(seen.launches)
    assert predicted.seconds == pytest.approx(seen.seconds, rel=0.005)


def _drawn() -> Callable[[], Any]:
    flags, x = torch.ones(4).to("sdaa"), torch.randn(4).to("sdaa")

    def step() -> None:
        flags[1:2].copy_(x[1:2])
        for _ in range(int(flags.sum())):
            x.mul(2)

    return step


def _learned() -> Callable[[], Any]:
    net, x = nn.Linear(2, 2).to("sdaa"), torch.ones(2, 2).to("sdaa")
    nn.init.ones_(net.weight)
    nn.init.ones_(net.bias)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        net(x + torch.rand(2, 2, device="sdaa")).sum().backward()
        optimizer.step()
        float(net.weight.detach()[0, 0])

    return step


@pytest.mark.parametrize("build", [_drawn, _learned])
def test_guessed_values_are_reported(build: Build) -> None:
    (line,) = predict_cost(build).guessed
    assert line.startswith(f"{__file__}:")


def test_numbers_are_copied_without_a_launch() -> None:
    def build() -> Callable[[], Any]:
        x = torch.ones(3).to("sdaa")
        return lambda: x * torch.tensor(2.0, device="sdaa") + torch.randn(3, device="sdaa")

    before = C.launches()
    predicted = predict_cost(build)
    assert C.launches() == before
    assert predicted.operators == observe(build()).operators
    assert predicted.operators["copy_in"] == 1


class _Odd(nn.Module):
    """Operators that take other code paths for traced tensors than for those of the device."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Upsample(scale_factor=2), nn.PixelShuffle(2), nn.Conv2d(2, 2, 3))
        self.at: torch.Tensor
        self.register_buffer("at", torch.tensor([0, 2, 2]))

    def forward(self, x: Any) -> Any:
        """Return one number."""
        x = self.body(x).flatten(1)[self.at % 2].repeat(2, 1)
        names = nn.functional.one_hot(self.at, x.shape[1])
        return (x.take_along_dim(self.at.repeat(2)[:, None] % 2, 1) * names.repeat(2, 1)).logsumexp(-1).sum()


def test_other_code_paths_of_traces_are_predicted_as_they_run() -> None:
    def build() -> Callable[[], Any]:
        net, x = _Odd().to("sdaa"), torch.randn(2, 8, 4, 4).to("sdaa")

        def step() -> None:
            net.zero_grad()
            net(x).backward()

        return step

    predicted, seen = predict_cost(build), observe(build())
    assert len(predicted.launches) == len(seen.launches)
    assert predicted.seconds == pytest.approx(seen.seconds, rel=0.005)


def test_reading_operands_on_the_host_is_an_error() -> None:
    def build() -> Callable[[], Any]:
        x, lengths = torch.randn(2, 3, 4).to("sdaa"), torch.tensor([3, 2])
        return lambda: nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)

    with pytest.raises(ConfigError, match=r"aten::_pack_padded_sequence .*on the host; .*time_summary"):
        predict_cost(build)
