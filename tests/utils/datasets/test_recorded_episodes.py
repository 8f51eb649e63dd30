"""Recordings: round trips and invalid files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import DataError
from utils.datasets.episodes import Recording, load_episodes, read_recording, write_recording

GOOD = Recording("X-v0", np.array([3, 3, 5]), np.array([0, 1, 0]), np.ones((3, 2), np.float32), np.array([0, 1, 1]))


def test_round_trip(tmp_path: Path) -> None:
    write_recording(tmp_path / "a.npz", GOOD)
    found = read_recording(tmp_path / "a.npz")
    assert found.environment == "X-v0"
    for one, other in zip(found[1:], GOOD[1:], strict=True):
        np.testing.assert_array_equal(one, other)
    write_recording(tmp_path / "b.npz", GOOD)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    data = load_episodes([3, 4, 5], tmp_path / "a.npz")
    assert [len(sample.actions) for sample in data.samples] == [2, 0, 1]
    assert data.names == ["seed 3", "seed 4", "seed 5"]
    others = load_episodes([7, 8], tmp_path / "a.npz")  # the run reports that nothing is compared
    assert [len(sample.actions) for sample in others.samples] == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": None}, "has no 'actions'"),
        ({"seeds": np.array([1, 2])}, r"seeds \[2\], steps \[3\].*one row per observation"),
        ({"seeds": np.array([1.0, 2, 3])}, "integers as seeds and steps"),
        ({"actions": np.array([{}, {}, {}])}, "not a recording"),
    ],
)
def test_invalid_recordings(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    fields: dict[str, Any] = {**GOOD._asdict(), **change}
    np.savez(tmp_path / "a.npz", **{key: value for key, value in fields.items() if value is not None})
    with pytest.raises(DataError, match=rf"a\.npz: .*{message}"):
        read_recording(tmp_path / "a.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut", b"no archive", bytes(100)])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.npz: not a recording .*--save_predictions"):
        read_recording(tmp_path / "a.npz")
