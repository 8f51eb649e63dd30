"""Images with depth or disparity: layouts, scales, values that are unknown, files that cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine import ConfigError, DataError
from utils.datasets.image.dense_maps import MappedImage, TruthFile, load_maps


def image(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(path)
    return path


def levels(path: Path, value: int = 512) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.full((4, 6), value, np.uint16)
    values[0, 0] = 0
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize(
    ("left", "right", "truth"),
    [
        ("image_2", "image_3", "disp_occ_0"),
        ("colored_0", "colored_1", "disp_noc"),
        ("left", "right", "disparity"),
    ],
)
def test_stereo_folders(tmp_path: Path, left: str, right: str, truth: str) -> None:
    """KITTI 2015 has second images (``_11``) without true values."""
    for folder in (left, right):
        image(tmp_path / folder / "000000_10.png")
    image(tmp_path / left / "000000_11.png")
    levels(tmp_path / truth / "000000_10.png")
    found = load_maps({"data": tmp_path}, 2)
    (sample,) = found.samples
    assert sample.images == (tmp_path / left / "000000_10.png", tmp_path / right / "000000_10.png")
    assert sample.truth == TruthFile(tmp_path / truth / "000000_10.png", 256.0)
    assert [one.path.name for one in found.rejected] == ["000000_11.png"]
    named = load_maps({"left": tmp_path / left, "right": tmp_path / right, "truth": tmp_path / truth}, 2)
    assert named.samples == found.samples
    assert sample.truth.read().tolist()[0] == [0, *[2.0] * 5]


def test_depth_folders(tmp_path: Path) -> None:
    image(tmp_path / "rgb" / "a.jpg")
    levels(tmp_path / "depth" / "a.png", 1500)
    (sample,) = load_maps({"data": tmp_path}, 1).samples
    assert sample.truth is not None
    assert sample.truth.read().max() == pytest.approx(1.5)
    (other,) = load_maps({"data": tmp_path}, 1, 5000.0).samples
    assert other.truth is not None
    assert other.truth.read().max() == pytest.approx(0.3)
    (alone,) = load_maps({"data": tmp_path / "rgb"}, 1).samples
    assert alone == MappedImage((tmp_path / "rgb/a.jpg",)) == load_maps({"data": tmp_path / "rgb/a.jpg"}, 1).samples[0]


def test_kitti_depth_names(tmp_path: Path) -> None:
    image(tmp_path / "image" / "drive_0002_sync_image_0000000005_image_02.png")
    file = levels(tmp_path / "groundtruth_depth" / "drive_0002_sync_groundtruth_depth_0000000005_image_02.png")
    (sample,) = load_maps({"data": tmp_path}, 1).samples
    assert sample.truth == TruthFile(file, 256.0)


def test_arrays(tmp_path: Path) -> None:
    image(tmp_path / "images" / "a.png")
    (tmp_path / "depth").mkdir()
    np.save(tmp_path / "depth" / "a.npy", np.array([[1.5, np.nan], [np.inf, -1]]))
    (sample,) = load_maps({"data": tmp_path}, 1).samples
    assert sample.truth is not None
    assert sample.truth.read().tolist() == [[1.5, 0], [0, 0]]
    assert load_maps({"data": tmp_path}, 1).fingerprint() != load_maps({"data": tmp_path}, 1, 2.0).fingerprint()


def test_files_that_are_no_maps(tmp_path: Path) -> None:
    eight = image(tmp_path / "a.png")
    cut = tmp_path / "b.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 65535, (40, 40)).astype(np.uint16)).save(cut)
    cut.write_bytes(cut.read_bytes()[:600])
    deep, text, objects, head = (tmp_path / f"{name}.npy" for name in "cdef")
    head.write_bytes(b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + b"{'descr': '<f4', (".ljust(118))
    np.save(deep, np.zeros((2, 3, 4)))
    text.write_bytes(b"nothing")
    np.save(objects, np.array([["x", None]], object), allow_pickle=True)
    for path, named in (
        (eight, "16 bits"),
        (cut, "damaged"),
        (deep, "two axes"),
        (text, "npy"),
        (head, "npy"),
        (objects, "two axes"),
    ):
        with pytest.raises(DataError, match=named) as caught:
            TruthFile(path, 1.0).read()
        assert str(path) in str(caught.value)


def test_data_that_does_not_fit(tmp_path: Path) -> None:
    image(tmp_path / "rgb" / "a.png")
    levels(tmp_path / "depth" / "b.png")
    with pytest.raises(DataError, match="same name"):
        load_maps({"data": tmp_path}, 1)
    with pytest.raises(DataError, match="left=FOLDER right=FOLDER"):
        load_maps({"data": tmp_path}, 2)
    with pytest.raises(ConfigError, match="images=FOLDER truth=FOLDER"):
        load_maps({"left": tmp_path}, 1)
    with pytest.raises(DataError, match="nowhere"):
        load_maps({"data": tmp_path / "nowhere"}, 1)
