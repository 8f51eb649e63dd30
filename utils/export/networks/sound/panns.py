"""CNN10 and CNN14 of PANNs, networks that tag sounds, with the keys of the published weights.

Kong et al., "PANNs: Large-Scale Pretrained Audio Neural Networks for Audio Pattern Recognition" (2020): blocks of two
3 x 3 convolutions over a log-mel spectrogram, the mean over its bands, and maximum plus mean over its frames. The
published modules compute the spectrogram themselves; here it is the input, with the same definition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine import ModelError
from utils.export.networks.random_weights import seeded
from utils.export.weight_files import load_state, read_state
from utils.preprocess.audio.features import LogMel

CHANNELS: Mapping[str, tuple[int, ...]] = {"cnn10": (64, 128, 256, 512), "cnn14": (64, 128, 256, 512, 1024, 2048)}
"""Channels of the blocks by architecture."""

BANDS = 64

LOW = 50.0
"""Lower limit of the mel filters in Hz."""

RATES: Mapping[int, tuple[int, int, float]] = {
    32000: (1024, 320, 14000.0),
    16000: (512, 160, 8000.0),
    8000: (256, 80, 4000.0),
}
"""Points of the transform, hop and upper limit in Hz by the rate of the recordings."""

SILENCE = -100.0
"""Value of a frame of zeros: 10 log10 of the lower limit of energies."""

SECONDS = 10.0
"""Length of the recordings of the published training (AudioSet)."""

_FRONT = ("spectrogram_extractor.", "logmel_extractor.")
_KERNEL, _FILTERS = "spectrogram_extractor.stft.conv_real.weight", "logmel_extractor.melW"
"""Keys of the published spectrogram: cosines of the transform, [points // 2 + 1, 1, points], and mel filters."""


class ConvBlock(nn.Module):  # type: ignore[misc]
    """Two convolutions, each with a norm, and a mean over ``pool`` x ``pool`` cells."""

    def __init__(self, inputs: int, outputs: int, pool: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn1, self.bn2, self.pool = nn.BatchNorm2d(outputs), nn.BatchNorm2d(outputs), pool

    def forward(self, x: Tensor) -> Tensor:
        """Return N x ``outputs`` x T / pool x bands / pool of N x ``inputs`` x T x bands."""
        x = functional.relu(self.bn1(self.conv1(x)))
        x = functional.relu(self.bn2(self.conv2(x)))
        return functional.avg_pool2d(x, self.pool) if self.pool > 1 else x


class Panns(nn.Module):  # type: ignore[misc]
    """Log-mels to a logit per class; the published networks return their sigmoid."""

    def __init__(self, arch: str, classes: int) -> None:
        super().__init__()
        channels = CHANNELS[arch]
        self.bn0 = nn.BatchNorm2d(BANDS)
        self.blocks = [f"conv_block{number}" for number in range(1, len(channels) + 1)]
        for place, (name, before, after) in enumerate(zip(self.blocks, (1, *channels), channels, strict=False)):
            self.add_module(name, ConvBlock(before, after, 1 if place == 5 else 2))
        self.fc1 = nn.Linear(channels[-1], channels[-1])
        self.fc_audioset = nn.Linear(channels[-1], classes)

    def forward(self, features: Tensor) -> Tensor:
        """Return N x classes logits of N x T x :data:`BANDS` features, T at least 32."""
        x = self.bn0(features.transpose(1, 2)[:, :, :, None]).permute(0, 3, 2, 1)
        for name in self.blocks:
            x = getattr(self, name)(x)
        x = x.mean(dim=3)
        x = x.amax(dim=2) + x.mean(dim=2)
        found: Tensor = self.fc_audioset(functional.relu(self.fc1(x)))
        return found


def settings_at(rate: int) -> LogMel:
    """Return the features of the published networks for a rate of :data:`RATES`, in decibels."""
    points, hop, high = RATES[rate]
    return LogMel(
        rate=rate, fft=points, window=points, hop=hop, bands=BANDS, low=LOW, high=high, log="log10", divide=0.1
    )  # fmt: skip


def from_file(path: str, rate: int | None = None) -> tuple[Panns, str, LogMel]:
    """Return a network with the weights in a file, its architecture, and its features.

    Args:
        path: state dict, or a checkpoint with one. rate: of the recordings in Hz, if the file has no spectrogram;
            ``None``: 32000.

    Raises ModelError: the file is missing, damaged or of another network, or its spectrogram has another definition.
    """
    state = {key.removeprefix("module."): value for key, value in read_state(path).items()}
    last = state.get("fc_audioset.weight")
    if last is None or getattr(last, "ndim", 0) != 2:
        raise ModelError(f"{path}: has no fc_audioset.weight; use weights of CNN10 or CNN14 with their own last layer")
    arch = "cnn14" if "conv_block6.conv1.weight" in state else "cnn10"
    settings = _settings(state, path, rate)
    network = Panns(arch, len(last))
    return load_state(network, state, path, ignored=_FRONT).eval(), arch, settings


def random_network(arch: str, classes: int) -> Panns:
    """Return a network with seeded random weights, for functional and speed checks."""
    noise = 15 * torch.randn(4, 128, BANDS, generator=torch.Generator().manual_seed(0)) - 40
    found: Panns = seeded(lambda: Panns(arch, classes), example=noise)
    return found


def _settings(state: Mapping[str, Any], path: str, rate: int | None) -> LogMel:
    """Return the features of weights, checked against the mel filters in the file, if it has any."""
    kernel, filters = state.get(_KERNEL), state.get(_FILTERS)
    if kernel is not None:
        own = next((one for one, (points, *_) in RATES.items() if points == kernel.shape[-1]), None)
        if own is None:
            known = ", ".join(f"{points} ({one} Hz)" for one, (points, *_) in RATES.items())
            raise ModelError(f"{path}: its transform has {kernel.shape[-1]} points; supported are {known}")
        if rate not in (None, own):
            raise ModelError(f"{path}: its transform of {kernel.shape[-1]} points is for {own} Hz; leave out --rate")
        rate = own
    settings = settings_at(rate or max(RATES))
    if filters is not None:
        bank = torch.from_numpy(settings.bank.T.copy()).float()
        if filters.shape != bank.shape or not torch.allclose(filters.float(), bank, atol=1e-5):
            raise ModelError(
                f"{path}: its mel filters are not {BANDS} from {LOW:g} to {settings.high:g} Hz at {settings.rate} Hz; "
                "other definitions are not supported"
            )
    return settings
