"""Sound that would fill the memory, or that nobody meant: refused by its head, before it is decoded."""

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
    """Write a second that says it has so many frames (36 bits of STREAMINFO); 0: nobody knows."""
    out = io.BytesIO()
    soundfile.write(out, SOUND, 16000, format="FLAC")
    data = bytearray(out.getvalue())
    data[21] = (data[21] & 0xF0) | (frames >> 32)
    data[22:26] = (frames & 0xFFFFFFFF).to_bytes(4, "big")
    path.write_bytes(data)
    return path


def test_a_hole_of_ten_gigabytes_is_no_recording(tmp_path: Path) -> None:
    path = wav(tmp_path / "a.wav", 0xFFFFFFFF)
    os.truncate(path, 10 << 30)
    with pytest.raises(DataError, match=f"5368709098 samples, and {MOST_VALUES} are read at once"):
        read_sound(path)
    assert len(read_sound(Recording(path, 0.0, 0.5)).samples) == 8000  # a part of it is read


@pytest.mark.parametrize("frames", [10**9, 2**36 - 1])
def test_a_flac_that_says_more_than_memory_holds(frames: int, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"{frames} samples, and {MOST_VALUES} are read at once"):
        read_sound(flac(tmp_path / "a.flac", frames))


def test_a_flac_that_does_not_say_how_long_it_is_ends_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.flac: damaged, cut short, or no sound file"):
        read_sound(flac(tmp_path / "a.flac", 0))


def test_a_file_of_chunks_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    path.write_bytes(b"RIFF\0\0\0\0WAVE")
    os.truncate(path, 1 << 30)
    with pytest.raises(DataError, match="10000 chunks, and none has samples"):
        read_sound(path)


@pytest.mark.parametrize("form", ["NIST", "VOC", "AVR", "PAF", "MAT5", "SVX"])
def test_formats_that_nobody_meant_are_not_tried(form: str, tmp_path: Path) -> None:
    path = tmp_path / "a.flac"
    soundfile.write(path, SOUND, 16000, format=form)
    with pytest.raises(DataError, match=r"a\.flac: no sound file \(it begins with"):
        read_sound(path)


@pytest.mark.parametrize(("start", "seconds"), [(1e308, None), (0.0, 1e308), (float("nan"), None), (-1e300, 1.0)])
def test_times_that_are_no_place(start: float, seconds: float | None, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no part of a recording"):
        read_sound(Recording(wav(tmp_path / "a.wav"), start, seconds))


def test_what_compares_speakers_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.wav")
    rejected: list = []
    assert _length(Recording(tmp_path / "a.wav"), rejected) is None
    assert "it is a pipe" in rejected[0].reason
