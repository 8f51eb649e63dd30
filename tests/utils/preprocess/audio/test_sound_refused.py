"""Recordings that are too large or of unsupported formats: refused by their header, before decoding."""

from __future__ import annotations

import io
import os
import struct
from pathlib import Path

import numpy as np
import pytest

from engine import DataError
from utils.datasets.audio.trials import _length
from utils.preprocess.audio.reading import MOST_VALUES, Recording, read_sound

soundfile = pytest.importorskip("soundfile")

SOUND = np.arange(16000, dtype=np.int16)


def wav(path: Path, declared: int = 32000) -> Path:
    form = struct.pack("<HHIIHH", 1, 1, 16000, 32000, 2, 16)
    head = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + form + b"data" + struct.pack("<I", declared)
    path.write_bytes(head + SOUND.tobytes())
    return path


def flac(path: Path, frames: int) -> Path:
    """Write one second whose header declares ``frames`` (36 bits of STREAMINFO); 0: unknown."""
    out = io.BytesIO()
    soundfile.write(out, SOUND, 16000, format="FLAC")
    data = bytearray(out.getvalue())
    data[21] = (data[21] & 0xF0) | (frames >> 32)
    data[22:26] = (frames & 0xFFFFFFFF).to_bytes(4, "big")
    path.write_bytes(data)
    return path


def test_a_sparse_file_of_ten_gigabytes(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", 0xFFFFFFFF)
    os.truncate(path, 10 << 30)
    with pytest.raises(DataError, match=f"5368709098 samples, .*{MOST_VALUES}"):
        read_sound(path)
    assert len(read_sound(Recording(path, 0.0, 0.5)).samples) == 8000  # a part of it is read


@pytest.mark.parametrize("frames", [10**9, 2**36 - 1])
def test_a_flac_that_declares_too_many_samples(frames: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{frames} samples, .*{MOST_VALUES}"):
        read_sound(flac(tmp_path / "a.flac", frames))


def test_a_damaged_flac_of_unknown_length(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.flac: damaged"):
        read_sound(flac(tmp_path / "a.flac", 0))


def test_a_file_of_many_chunks(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF\0\0\0\0WAVE")
    os.truncate(path, 1 << 30)
    with pytest.raises(DataError, match="10000 chunks"):
        read_sound(path)


@pytest.mark.parametrize("form", ["NIST", "VOC", "AVR", "PAF", "MAT5", "SVX"])
def test_unsupported_formats_are_not_tried(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, SOUND, 16000, format=form)
    with pytest.raises(DataError, match=r"a\.flac: not a sound"):
        read_sound(path)


@pytest.mark.parametrize(("start", "seconds"), [(1e308, None), (0.0, 1e308), (float("nan"), None), (-1e300, 1.0)])
def test_invalid_times(start: float, seconds: float | None, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"offset .*duration .*invalid"):
        read_sound(Recording(wav(tmp_path / "a.wav"), start, seconds))


def test_a_list_of_speakers_does_not_block_on_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.wav")
    rejected: list = []
    assert _length(Recording(tmp_path / "a.wav"), rejected) is None
    assert "it is a pipe" in rejected[0].reason
