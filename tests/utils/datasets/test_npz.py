from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from engine import DataError
from utils.datasets.loading import load_npz

IMAGES = np.arange(5 * 2 * 2, dtype=np.float32).reshape(5, 2, 2)


@pytest.mark.parametrize(("images", "labels"), [("images", "labels"), ("x", "y")])
def test_rows_and_labels(tmp_path: Path, images: str, labels: str) -> None:
    file = tmp_path / "set.npz"
    np.savez(file, **{images: IMAGES, labels: np.array([0, 3, 1, 2, 9], dtype=np.uint8)})
    first, _, last = load_npz(file).batches(2)
    assert all(np.array_equal(got, want) for got, want in zip(first.samples, IMAGES[:2], strict=True))
    assert first.samples[0].dtype == np.float32
    assert first.targets.dtype == np.int64
    assert last.targets.tolist() == [9]
    assert last.names == [f"{file}[4]"]


def test_without_labels(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "set.npz", x=IMAGES)
    dataset = load_npz(tmp_path / "set.npz")
    assert len(dataset) == 5
    assert dataset.labels is None


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": IMAGES, "y": [1, 2]}, r"labels have shape \(2,\)"),
        ({"x": IMAGES, "y": np.zeros((5, 1), int)}, r"labels have shape \(5, 1\)"),
        ({"x": IMAGES, "y": np.zeros(5)}, r"labels have dtype float64"),
        ({"x": IMAGES, "y": [0, 1, -1, 2, 3]}, "label -1 is not a class index"),
        (
            {"x": IMAGES, "y": np.array([0, 1, 2**63, 2, 3], np.uint64)},
            "label 9223372036854775808 is not a class index",
        ),
        ({"x": np.zeros((0, 2))}, r"array of samples has shape \(0, 2\)"),
        ({"x": np.float32(1)}, r"array of samples has shape \(\)"),
        ({"X": IMAGES}, r"no array 'images' or 'x'"),
        ({"x": np.array([{}, []], dtype=object)}, "Object arrays cannot be loaded when allow_pickle=False"),
    ],
)
def test_invalid_arrays(tmp_path: Path, arrays: dict[str, object], message: str) -> None:
    np.savez(tmp_path / "set.npz", **arrays)
    with pytest.raises(DataError, match=rf"set.npz.*{message}"):
        load_npz(tmp_path / "set.npz")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 broken", b"\x80\x04."])
def test_not_an_npz(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "set.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"^\S*set.npz is not a readable"):
        load_npz(tmp_path / "set.npz")


def test_npy_named_npz(tmp_path: Path) -> None:
    with (tmp_path / "set.npz").open("wb") as file:
        np.save(file, IMAGES)
    with pytest.raises(DataError, match=r"single .npy array; .*np.savez"):
        load_npz(tmp_path / "set.npz")


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("npz") / "whole.npz"
    np.savez_compressed(file, x=IMAGES, y=np.arange(5))
    return file


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(data=st.data())
@pytest.mark.filterwarnings("ignore")
def test_damage_is_a_data_error_or_harmless(compressed: Path, data: st.DataObject) -> None:
    content = bytearray(compressed.read_bytes())
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    damaged = compressed.with_name("damaged.npz")
    damaged.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    with contextlib.suppress(DataError):
        assert len(load_npz(damaged)) <= len(IMAGES)
