"""Recordings: all formats, parts of files, warnings, and errors."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from engine import ConfigError, DataError
from utils.preprocess.audio import reading
from utils.preprocess.audio.reading import Recording, read_sound
from utils.preprocess.audio.resampling import Resampler, resampled

soundfile = pytest.importorskip("soundfile")
soxr = pytest.importorskip("soxr")


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_warned", set())


def tone(rate: int, seconds: float, hertz: float = 440.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * hertz * np.arange(round(rate * seconds)) / rate)).astype(np.float32)


def saved(path: Path, sound: np.ndarray, rate: int = 16000, **how: str) -> Path:
    soundfile.write(path, sound, rate, **how)
    return path


def test_flac_and_wav_are_equal(tmp_path: Path) -> None:
    one = read_sound(saved(tmp_path / "a.wav", (tone(16000, 0.2) * 30000).astype(np.int16)))
    other = read_sound(saved(tmp_path / "a.flac", (tone(16000, 0.2) * 30000).astype(np.int16)))
    assert np.array_equal(one.samples, other.samples)
    assert one.rate == other.rate == 16000
    assert one.samples.dtype == np.float32
    assert one.seconds == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["a.wav", "a.flac"])
def test_parts_of_recordings(tmp_path: Path, name: str) -> None:
    whole = read_sound(saved(tmp_path / name, tone(8000, 2.0), 8000)).samples
    part = read_sound(Recording(tmp_path / name, 0.5, 1.0)).samples
    assert np.array_equal(part, whole[4000:12000])
    assert np.array_equal(read_sound(Recording(tmp_path / name, 1.5)).samples, whole[12000:])
    assert len(read_sound(Recording(tmp_path / name, 0.0, 2.03)).samples) == 16000, "a rounded time"
    for start, seconds in ((0.5, 1.6), (2.5, None), (2.0, None)):
        with pytest.raises(DataError, match=r"a\.\w+ is 2.00 s long"):
            read_sound(Recording(tmp_path / name, start, seconds))


def test_stereo_is_averaged_with_one_warning(tmp_path: Path) -> None:
    left = tone(16000, 0.1)
    file = saved(tmp_path / "a.wav", np.stack([left, np.zeros_like(left)], 1), subtype="FLOAT")
    with pytest.warns(UserWarning, match="2 channels .*a.wav"):
        sound = read_sound(file)
    assert np.allclose(sound.samples, left / 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_sound(file)


def test_other_rates_are_resampled_with_a_warning_or_refused(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.wav", tone(44100, 1.0), 44100, subtype="FLOAT")
    with pytest.warns(UserWarning, match="44100 Hz .*16000 Hz"):
        sound = read_sound(file, 16000)
    assert (sound.rate, len(sound.samples)) == (16000, 16000)
    assert np.abs(sound.samples - tone(16000, 1.0))[200:-200].max() < 1e-3
    with pytest.raises(DataError, match=r"44100 Hz, .*16000 Hz"):
        read_sound(file, 16000, exact=True)


def test_silence_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="a.wav: all samples are 0"):
        assert not read_sound(saved(tmp_path / "a.wav", np.zeros(100))).samples.any()
    with pytest.warns(UserWarning, match=r"b\.wav: .*0\.5: silence"):
        read_sound(saved(tmp_path / "b.wav", np.full(100, 0.5)))
    with pytest.warns(UserWarning, match="c.wav: 0.00625 s"):
        read_sound(saved(tmp_path / "c.wav", tone(16000, 0.1)[:100]), 16000)


def test_an_invalid_rate(tmp_path: Path) -> None:
    saved(tmp_path / "a.wav", tone(16000, 0.1), rate=7)
    with pytest.raises(DataError, match=r" 7 Hz, .*1000 .*1000000"):
        read_sound(tmp_path / "a.wav", 16000)


def test_bad_floats_are_refused(tmp_path: Path) -> None:
    broken = tone(16000, 0.1)
    broken[[3, 5]] = np.nan, np.inf
    with pytest.raises(DataError, match=r"2 of 1600 .*NaN"):
        read_sound(saved(tmp_path / "a.wav", broken, subtype="FLOAT"))
    with pytest.raises(DataError, match=r"floats .*9830"):
        read_sound(saved(tmp_path / "b.wav", tone(16000, 0.1) * 32768, subtype="FLOAT"))


def test_a_flac_cut_short_is_refused(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-1, 1, 40000)
    whole = saved(tmp_path / "a.flac", noise).read_bytes()
    for share in (0.02, 0.5, 0.99):
        (tmp_path / "b.flac").write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(DataError, match=r"b\.flac: .*truncated"):
            read_sound(tmp_path / "b.flac")
    (tmp_path / "c.flac").write_bytes(b"fLaC and words")
    with pytest.raises(DataError, match=r"c\.flac: damaged"):
        read_sound(tmp_path / "c.flac")


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "d.wav").mkdir()
    for name in ("no.wav", "d.wav"):
        with pytest.raises(DataError, match=f"{name}: cannot be read"):
            read_sound(tmp_path / name)


def test_a_missing_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    file = saved(tmp_path / "a.flac", tone(16000, 0.1))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    monkeypatch.setitem(sys.modules, "soxr", None)
    with pytest.raises(ConfigError, match=r"soundfile, .*run: .*audio"):
        read_sound(file)
    with pytest.raises(ConfigError, match=r"8000 Hz .*16000 Hz .*soxr"):
        resampled(tone(8000, 0.1), 8000, 16000)
    assert len(resampled(tone(8000, 0.1), 8000, 8000)) == 800


def test_resampling_equals_soxr() -> None:
    sound = np.random.default_rng(0).normal(0, 0.1, 12345).astype(np.float32)
    for rate, wanted in ((8000, 16000), (48000, 16000), (44100, 16000), (16000, 8000)):
        assert np.array_equal(resampled(sound, rate, wanted), soxr.resample(sound, rate, wanted, "HQ"))
    assert resampled(sound[:0], 8000, 16000).shape == (0,)


def test_frequencies_above_the_new_band_are_removed() -> None:
    kept, gone = tone(48000, 1.0, 3000.0), tone(48000, 1.0, 9000.0)
    found = resampled(kept + gone, 48000, 16000)[1000:-1000]
    wanted = tone(16000, 1.0, 3000.0)[1000:-1000]
    assert np.sqrt(np.mean((found - wanted) ** 2)) < 1e-4 * np.sqrt(np.mean(wanted**2))
    assert np.sqrt(np.mean(resampled(gone, 48000, 16000)[1000:-1000] ** 2)) < 1e-5


@pytest.mark.parametrize(("rate", "wanted"), [(8000, 16000), (44100, 16000), (16000, 16000)])
def test_a_resampled_stream_equals_the_whole(rate: int, wanted: int) -> None:
    chance = np.random.default_rng(3)
    sound = chance.normal(0, 0.1, 20011).astype(np.float32)
    stream, pieces, at = Resampler(rate, wanted), [], 0
    while at < len(sound):
        size = int(chance.integers(1, 3000))
        pieces.append(stream.feed(sound[at : at + size]))
        at += size
    pieces.append(stream.feed(sound[:0], last=True))
    assert np.array_equal(np.concatenate(pieces), resampled(sound, rate, wanted))
