"""WAV files: equal to libsndfile's reading for every format, and damaged headers."""

from __future__ import annotations

import contextlib
import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import DataError
from utils.preprocess.audio.reading import read_sound
from utils.preprocess.audio.wav import ALAW, MULAW, companded, read_frames, read_head, write_mu_law

soundfile = pytest.importorskip("soundfile")

FORMS = ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ALAW", "ULAW")


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("container", ["WAV", "WAVEX"])
@pytest.mark.parametrize("form", FORMS)
def test_formats_equal_libsndfile(form: str, container: str, channels: int) -> None:
    sound = np.random.default_rng(0).uniform(-1, 1, (101, channels))
    file = io.BytesIO()
    soundfile.write(file, sound, 22050, subtype=form, format=container)
    file.seek(0)
    wanted, rate = soundfile.read(file, dtype="float32", always_2d=True)
    head = read_head(file, "a.wav")
    assert head is not None
    assert (head.rate, head.channels, head.frames, head.declared) == (rate, channels, 101, 101)
    assert np.array_equal(read_frames(file, head, 0, 101), wanted)
    assert np.array_equal(read_frames(file, head, 7, 60), wanted[7:60])


@pytest.mark.parametrize(("form", "code"), [("ALAW", ALAW), ("ULAW", MULAW)])
def test_all_bytes_of_a_law_and_mu_law(form: str, code: int) -> None:
    every = io.BytesIO(bytes(range(256)))
    wanted, _ = soundfile.read(every, dtype="float32", samplerate=8000, channels=1, format="RAW", subtype=form)
    assert np.array_equal(companded(code), wanted)


def test_written_samples_are_the_nearest_of_mu_law(tmp_path: Path) -> None:
    sound = np.random.default_rng(1).normal(0, 0.3, 501)
    write_mu_law(tmp_path / "a.wav", sound, 16000)
    found, rate = soundfile.read(tmp_path / "a.wav", dtype="float64")
    table = companded(MULAW).astype(np.float64)
    assert rate == 16000
    assert np.allclose(np.abs(found - sound), np.abs(table - np.clip(sound, -1, 1)[:, None]).min(axis=1), atol=0.02)
    assert np.array_equal(np.abs(found - sound).round(12), np.abs(table[None] - sound[:, None]).min(axis=1).round(12))


def wav(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"".join(kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for kind, data in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WAVE" + body


FMT = struct.pack("<HHIIHH", 1, 1, 8000, 16000, 2, 16)
SOUND = np.arange(-50, 50, dtype="<i2").tobytes()


def test_other_chunks_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "a.wav"
    file.write_bytes(wav((b"LIST", b"odd"), (b"fmt ", FMT), (b"bext", b"x" * 7), (b"data", SOUND), (b"id3 ", b"?")))
    assert np.array_equal(read_sound(file).samples, np.arange(-50, 50, dtype=np.float32) / 32768)


def test_a_wav_of_unknown_length(tmp_path: Path) -> None:
    whole = wav((b"fmt ", FMT), (b"data", SOUND))
    for size in (0xFFFFFFFF, 0x7FFFFFFF):
        (tmp_path / "a.wav").write_bytes(whole.replace(b"data\xc8\0\0\0", b"data" + struct.pack("<I", size)))
        assert len(read_sound(tmp_path / "a.wav").samples) == 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (wav((b"fmt ", FMT), (b"data", SOUND))[:-20], "truncated: .* 0.01 s"),
        (wav((b"fmt ", FMT)), "its samples are missing"),
        (wav((b"LIST", b"abcd")), "no chunk 'fmt '"),
        (wav((b"fmt ", FMT[:8])), "has 8 bytes"),
        (wav((b"data", SOUND)), "samples precede the chunk 'fmt '"),
        (wav((b"fmt ", struct.pack("<HHIIHH", 1, 0, 8000, 16000, 2, 16)), (b"data", SOUND)), "0 channels"),
        (wav((b"fmt ", struct.pack("<HHIIHH", 1, 1, 8000, 16000, 4, 16)), (b"data", SOUND)), "16 bits in 4 bytes"),
        (wav((b"fmt ", FMT), (b"data", b"")), "holds no samples"),
        (b"", "empty file"),
        (b"RIFF", "not a sound file"),
        (b"these are words\n", "not a sound file"),
    ],
)
def test_damaged_files(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_sound(tmp_path / "a.wav")
    assert "\n" not in str(caught.value)
    assert "a.wav" in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 243), st.binary(min_size=1, max_size=4))
def test_damage_raises_no_other_error(place: int, garbage: bytes) -> None:
    import tempfile

    content = bytearray(wav((b"fmt ", FMT), (b"data", SOUND)))
    content[place : place + len(garbage)] = garbage
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a.wav")
        file.write_bytes(content)
        with contextlib.suppress(DataError):  # no other error
            assert np.isfinite(read_sound(file).samples).all()
