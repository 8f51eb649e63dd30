"""Similarity of an image to the original: PSNR and SSIM."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from utils.metrics.arrays.elements import Psnr
from utils.metrics.base import RecordMetric, in_order_of_bytes

KINDS = ("psnr", "ssim")
"""Allowed primary metrics."""

PEAK = 255.0
"""Range of the levels of an image."""

SIGMA, RADIUS = 1.5, 5
"""Standard deviation and radius in pixels of SSIM's Gaussian window, 11 x 11."""

LUMA = (65.481, 128.553, 24.966)
"""Share of red, green and blue in Y, of levels 0..1; Y is from 16 to 235 (ITU-R BT.601, studio range)."""


def luma(pixels: Array) -> Array:
    """Return Y of RGB levels, H x W x 3 uint8 to H x W float64, as MATLAB's and scikit-image's ``rgb2ycbcr`` (16..235).

    Papers of super-resolution compare this channel.
    """
    found: Array = 16.0 + np.asarray(pixels, np.float64) @ (np.array(LUMA) / 255)
    return found


def psnr(found: Array, wanted: Array) -> float:
    """Return ``10 log10(255^2 / mean squared error)`` in dB, at most 100: :class:`~utils.metrics.arrays.elements.Psnr`.

    Equal to scikit-image's ``peak_signal_noise_ratio(wanted, found, data_range=255)`` below that.
    """
    return float(Psnr(PEAK).records([found], [wanted])[0])


def ssim(found: Array, wanted: Array) -> float:
    """Return the mean structural similarity of two images, H x W or H x W x C, of levels 0..255.

    The measure of Wang et al. 2004, "Image Quality Assessment: From Error Visibility to Structural Similarity", with
    K1 = 0.01, K2 = 0.03 and a Gaussian window of 11 x 11 pixels, averaged over the positions of the window within the
    image and the channels. Equal to scikit-image's ``structural_similarity`` with ``gaussian_weights=True``,
    ``sigma=1.5`` and ``use_sample_covariance=False``.

    Raises:
        DataError: a side is shorter than 11 pixels.
    """
    height, width = found.shape[:2]
    if min(height, width) <= 2 * RADIUS:
        raise DataError(f"SSIM needs images of at least {2 * RADIUS + 1} x {2 * RADIUS + 1} pixels, this has "
                        f"{width} x {height}; leave the image out, or lower --crop_border")  # fmt: skip
    planes = [np.asarray(one, np.float64).reshape(height, width, -1).transpose(2, 0, 1) for one in (found, wanted)]
    return float(np.mean([_ssim(one, right) for one, right in zip(*planes, strict=True)]))


def _ssim(x: Array, y: Array) -> float:
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x, var_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    both = _blurred(x * y) - mean_x * mean_y
    low, high = (0.01 * PEAK) ** 2, (0.03 * PEAK) ** 2
    above = (2 * mean_x * mean_y + low) * (2 * both + high)
    return float((above / ((mean_x**2 + mean_y**2 + low) * (var_x + var_y + high))).mean())


def _blurred(plane: Array) -> Array:
    """Return the Gaussian mean at each position of the window within the plane."""
    window = np.exp(-0.5 * (np.arange(-RADIUS, RADIUS + 1) / SIGMA) ** 2)
    window /= window.sum()
    rows = plane.shape[0] - 2 * RADIUS
    down = sum(weight * plane[i : i + rows] for i, weight in enumerate(window))
    columns = plane.shape[1] - 2 * RADIUS
    found: Array = sum(weight * down[:, i : i + columns] for i, weight in enumerate(window))
    return found


def enlarged(pixels: Array, size: tuple[int, int]) -> Array:
    """Return an image, H x W x 3 uint8, at another height and width by Pillow's bicubic filter."""
    if pixels.shape[:2] == size:
        return pixels
    return np.asarray(Image.fromarray(pixels).resize(size[::-1], Image.Resampling.BICUBIC))


class ImageQuality(RecordMetric):
    """PSNR and SSIM of restored images, each the mean over the images.

    Contexts have ``low`` and ``truth``, H x W x 3 uint8; the mean PSNR of ``low``, enlarged by a bicubic filter to the
    size of ``truth``, is the secondary figure ``input_psnr``: a model is of use if it is above that.

    Args:
        primary: one of :data:`KINDS` (else ConfigError); the other one is a secondary figure.
        y_channel: compare Y (:func:`luma`) instead of red, green and blue.
        crop_border: pixels at each edge that are not compared.
    """

    def __init__(self, primary: str = "psnr", y_channel: bool = False, crop_border: int = 0) -> None:
        if primary not in KINDS:
            raise ConfigError(f"metric {primary!r} must be one of {', '.join(KINDS)}")
        if crop_border < 0:
            raise ConfigError(f"crop_border {crop_border} must be at least 0")
        self.name = self.primary = primary
        self.y_channel, self.crop_border = y_channel, crop_border

    def records(self, predictions: Any, targets: Sequence[Any] | Array, contexts: Sequence[Any] | None = None) -> Array:
        """Return PSNR, SSIM and the input's PSNR of each image, float64 [N, 3].

        Raises:
            DataError: an image has another size than its original, or is too small.
        """
        rows = np.zeros((len(targets), 3))
        for row, found, context in zip(rows, predictions, contexts or (), strict=True):
            row[:] = self._figures(np.asarray(found), context.low, context.truth)
        return rows

    def _figures(self, found: Array, low: Array, truth: Array) -> tuple[float, float, float]:
        if found.shape != truth.shape:
            raise DataError(
                f"{self.name}: the restored image has {found.shape[1]} x {found.shape[0]} pixels and the original "
                f"{truth.shape[1]} x {truth.shape[0]}; check --scale, and that the files belong together"
            )
        one, wanted, before = (self._compared(pixels) for pixels in (found, truth, enlarged(low, truth.shape[:2])))
        return psnr(one, wanted), ssim(one, wanted), psnr(before, wanted)

    def _compared(self, pixels: Array) -> Array:
        border = self.crop_border
        if 2 * border >= min(pixels.shape[:2]):
            raise DataError(f"{self.name}: --crop_border {border} leaves nothing of an image of {pixels.shape[1]} x "
                            f"{pixels.shape[0]} pixels; lower it")  # fmt: skip
        inner = pixels[border : pixels.shape[0] - border, border : pixels.shape[1] - border]
        return luma(inner) if self.y_channel else inner

    def value(self, records: Array, weights: Array) -> float:
        """Return the weighted mean of the primary metric; NaN if all weights are 0."""
        total = float(weights.sum())
        return float(weights @ records[:, KINDS.index(self.primary)]) / total if total else math.nan

    def secondary(self) -> Mapping[str, float]:
        """Return the mean of the other metric, and the PSNR of the input."""
        means = dict(zip((*KINDS, "input_psnr"), in_order_of_bytes(self._all()).mean(axis=0).tolist(), strict=True))
        return {name: value for name, value in means.items() if name != self.primary}
