"""PSNR, SSIM and luma equal scikit-image's."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.metrics.images.quality import ImageQuality, enlarged, luma, psnr, ssim

SEEDS = st.integers(0, 2**32 - 1)


def images(seed: int, height: int, width: int, off: int) -> tuple[np.ndarray, np.ndarray]:
    """Return an image with a slope and noise, and the same with errors of up to ``off`` levels."""
    chance = np.random.default_rng(seed)
    slope = np.linspace(0, 200, width)[None, :, None] + np.zeros((height, 1, 3))
    wanted = (slope + chance.integers(0, 56, (height, width, 3))).astype(np.uint8)
    found = (wanted.astype(int) + chance.integers(-off, off + 1, wanted.shape)).clip(0, 255).astype(np.uint8)
    return found, wanted


@settings(max_examples=25, deadline=None)
@given(SEEDS, st.integers(11, 40), st.integers(11, 40), st.integers(1, 120))
def test_figures_equal_scikit_image(seed: int, height: int, width: int, off: int) -> None:
    metrics, color = pytest.importorskip("skimage.metrics"), pytest.importorskip("skimage.color")
    found, wanted = images(seed, height, width, off)
    how = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 255}
    if (found != wanted).any():
        assert psnr(found, wanted) == pytest.approx(metrics.peak_signal_noise_ratio(wanted, found), rel=1e-12)
    theirs = metrics.structural_similarity(wanted, found, channel_axis=2, **how)
    assert ssim(found, wanted) == pytest.approx(theirs, abs=1e-10)
    np.testing.assert_allclose(luma(wanted), color.rgb2ycbcr(wanted)[..., 0], atol=1e-9)
    theirs = metrics.structural_similarity(luma(wanted), luma(found), **how)
    assert ssim(luma(found), luma(wanted)) == pytest.approx(theirs, abs=1e-10)


def test_the_same_image_has_100_db_and_similarity_1() -> None:
    found, _ = images(0, 16, 16, 1)
    assert (psnr(found, found), ssim(found, found)) == (100.0, pytest.approx(1.0))


def measured(metric: ImageQuality, count: int = 3) -> ImageQuality:
    pairs = [images(seed, 24, 30, 9) for seed in range(count)]
    contexts = [SimpleNamespace(low=wanted[::2, ::2], truth=wanted) for _, wanted in pairs]
    metric.update([found for found, _ in pairs], [None] * count, contexts)
    return metric


def test_the_value_is_the_mean_over_images_of_the_compared_part() -> None:
    metric = measured(ImageQuality("psnr", True, 4))
    pairs = [images(seed, 24, 30, 9) for seed in range(3)]
    inner = [[luma(one[4:-4, 4:-4]) for one in pair] for pair in pairs]
    assert metric.compute() == pytest.approx(np.mean([psnr(*pair) for pair in inner]))
    low = [
        psnr(luma(enlarged(wanted[::2, ::2], (24, 30))[4:-4, 4:-4]), luma(wanted[4:-4, 4:-4])) for _, wanted in pairs
    ]
    figures = metric.secondary()
    assert figures["input_psnr"] == pytest.approx(np.mean(low))
    other = measured(ImageQuality("ssim", True, 4))
    assert other.compute() == pytest.approx(figures["ssim"])
    assert other.secondary()["psnr"] == pytest.approx(metric.compute())
    assert (metric.name, other.name, metric.higher_is_better) == ("psnr", "ssim", True)


def test_parts_of_a_run_merge_to_the_same_value() -> None:
    whole, one, two = measured(ImageQuality()), ImageQuality(), ImageQuality()
    for place, metric in enumerate((two, one, two)):
        found, wanted = images(place, 24, 30, 9)
        metric.update([found], [None], [SimpleNamespace(low=wanted[::2, ::2], truth=wanted)])
    one.merge(two)
    assert one.compute() == whole.compute()


@pytest.mark.parametrize(
    ("metric", "size", "named"),
    [
        (ImageQuality(), (24, 31), "--scale"),
        (ImageQuality("psnr", False, 12), (24, 30), "--crop_border 12"),
        (ImageQuality("psnr", False, 8), (24, 30), "at least 11 x 11"),
    ],
)
def test_images_that_cannot_be_compared(metric: ImageQuality, size: tuple[int, int], named: str) -> None:
    truth, found = images(0, 24, 30, 1)[1], images(0, *size, 1)[1]
    with pytest.raises(DataError, match=named):
        metric.update([found], [None], [SimpleNamespace(low=truth, truth=truth)])


def test_wrong_options() -> None:
    with pytest.raises(ConfigError, match="psnr, ssim"):
        ImageQuality("mse")
    with pytest.raises(ConfigError, match="crop_border -1"):
        ImageQuality("psnr", False, -1)
