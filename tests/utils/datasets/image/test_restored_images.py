"""Pairs of degraded images and originals: layouts, generated degradations, files that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.restored import Degradation, ImagePair, load_restored, read_pair


def write(path: Path, height: int = 8, width: int = 12, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
    return path


@pytest.mark.parametrize(
    ("high", "low", "ending"),
    [
        ("HR", "LR_bicubic/X2", "x2"),
        ("HR", "LR_bicubic/X2", ""),
        ("DIV2K_valid_HR", "DIV2K_valid_LR_bicubic/X2", "x2"),
        ("high", "low", ""),
        ("GT", "input", ""),
        ("clean", "noisy", ""),
    ],
)
def test_paired_folders(tmp_path: Path, high: str, low: str, ending: str) -> None:
    for name in ("0801", "0802"):
        write(tmp_path / high / f"{name}.png", 8, 12)
        write(tmp_path / low / f"{name}{ending}.png", 4, 6)
    found = load_restored({"data": tmp_path}, 2)
    assert found.samples == [
        ImagePair(tmp_path / low / f"{name}{ending}.png", tmp_path / high / f"{name}.png") for name in ("0801", "0802")
    ]
    assert found.targets == [pair.high for pair in found.samples]
    named = load_restored({"high": tmp_path / high, "low": tmp_path / low}, None)
    assert named.samples == found.samples


def test_the_scale_selects_a_folder(tmp_path: Path) -> None:
    write(tmp_path / "HR" / "a.png")
    for scale in (2, 4):
        write(tmp_path / "LR_bicubic" / f"X{scale}" / f"ax{scale}.png")
    (pair,) = load_restored({"data": tmp_path}, 4).samples
    assert isinstance(pair, ImagePair)
    assert pair.low == tmp_path / "LR_bicubic/X4/ax4.png"
    for scale, named in ((None, "one of them"), (3, "X3")):
        with pytest.raises(DataError, match=f"X2, X4.*{named}.*--scale"):
            load_restored({"data": tmp_path}, scale)


def test_images_without_a_partner_are_rejected(tmp_path: Path) -> None:
    for name in ("HR/a.png", "HR/b.png", "LR/a.png", "LR/c.png"):
        write(tmp_path / name)
    (tmp_path / "LR" / "notes.txt").write_text("x")
    found = load_restored({"data": tmp_path}, 1)
    assert found.samples == [ImagePair(tmp_path / "LR/a.png", tmp_path / "HR/a.png")]
    assert {one.path.name for one in found.rejected} == {"b.png", "c.png", "notes.txt"}


def test_originals_alone(tmp_path: Path) -> None:
    write(tmp_path / "val" / "HR" / "a.png")
    for path in (tmp_path / "val", tmp_path / "val" / "HR", tmp_path / "val" / "HR" / "a.png"):
        assert load_restored({"data": path}, 2).samples == [ImagePair(None, tmp_path / "val/HR/a.png")]


def test_data_without_pairs(tmp_path: Path) -> None:
    write(tmp_path / "HR" / "a.png")
    write(tmp_path / "LR" / "b.png")
    with pytest.raises(DataError, match="same name"):
        load_restored({"data": tmp_path}, 1)
    with pytest.raises(ConfigError, match="high=FOLDER low=FOLDER"):
        load_restored({"images": tmp_path}, 1)
    with pytest.raises(DataError, match="nowhere"):
        load_restored({"data": tmp_path / "nowhere"}, 1)


def test_the_fingerprint_changes_with_the_files(tmp_path: Path) -> None:
    write(tmp_path / "HR" / "a.png")
    before = load_restored({"data": tmp_path}, 2).fingerprint()
    assert before == load_restored({"data": tmp_path}, 2).fingerprint()
    write(tmp_path / "HR" / "a.png", 16, 16)
    assert load_restored({"data": tmp_path}, 2).fingerprint() != before


def test_the_bicubic_half(tmp_path: Path) -> None:
    """The original is cropped to multiples of the scale first."""
    file = write(tmp_path / "a.png", 9, 13)
    low, high = read_pair(ImagePair(None, file), Degradation("bicubic", 2))
    whole = Image.open(file).crop((0, 0, 12, 8))
    np.testing.assert_array_equal(high, np.asarray(whole))
    np.testing.assert_array_equal(low, np.asarray(whole.resize((6, 4), Image.Resampling.BICUBIC)))


def test_noise_depends_on_the_seed_and_the_name_only(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.png", 64, 64), write(tmp_path / "b.png", 64, 64)
    grey = np.full((64, 64, 3), 128, np.uint8)
    Image.fromarray(grey).save(first)
    Image.fromarray(grey).save(second)
    how = Degradation("noise", 1, 20.0, 3)
    low, high = read_pair(ImagePair(None, first), how)
    np.testing.assert_array_equal(high, grey)
    assert np.std(low.astype(float) - grey) == pytest.approx(20, rel=0.05)
    np.testing.assert_array_equal(low, read_pair(ImagePair(None, first), how)[0])
    assert (low != read_pair(ImagePair(None, second), how)[0]).any()
    assert (low != read_pair(ImagePair(None, first), how._replace(seed=4))[0]).any()


def test_an_original_smaller_than_the_scale(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="12 x 3"):
        read_pair(ImagePair(None, write(tmp_path / "a.png", 3, 12)), Degradation("bicubic", 4))
