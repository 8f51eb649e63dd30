"""Features equal transformers', Whisper's and Kaldi's; streams; stored settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, ModelError
from utils.preprocess.audio.features import (
    KEY,
    WHISPER,
    FeatureStream,
    FilterBank,
    LogMel,
    features,
    log_mel,
    settings_of,
    settings_to_json,
)
from utils.preprocess.audio.mel import kaldi_bank, mel_bank
from utils.stored import ModelMetadata

NOISE = np.random.default_rng(0).normal(0, 0.1, 20_000).astype(np.float32)


@pytest.mark.slow  # transformers takes seconds to import
@pytest.mark.parametrize("bands", [80, 128])
def test_whispers_features(bands: int) -> None:
    transformers = pytest.importorskip("transformers")
    sound = np.concatenate([NOISE, np.zeros(4000, np.float32), NOISE * 0.01])
    own = transformers.WhisperFeatureExtractor(feature_size=bands)
    wanted = own._np_extract_fbank_features(sound[None], "cpu")[0].T
    found = features(sound, LogMel(bands=bands, below=8.0, add=4.0, divide=4.0, keep_last=False))
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() < 1e-5
    if bands == 80:
        assert np.array_equal(found, features(sound, WHISPER))


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"fft": 512},
        {"scale": "htk", "norm": False, "log": "ln", "preemphasis": 0.97, "pad": "constant", "periodic": False},
        {"power": 1.0, "log": "none", "bands": 40, "low": 90.0, "high": 7600.0},
        {"guard": "add", "floor": 2.0**-24, "log": "ln", "hop": 100},
        {"centre": False},
    ],
)
def test_log_mel_equals_transformers(how: dict[str, Any]) -> None:
    audio = pytest.importorskip("transformers.audio_utils")
    one = LogMel(**how)
    bank = audio.mel_filter_bank(
        one.fft // 2 + 1, one.bands, one.low, one.high or 8000, 16000, "slaney" if one.norm else None, one.scale
    )
    sound = np.append(NOISE[0], NOISE[1:] - one.preemphasis * NOISE[:-1]) if one.preemphasis else NOISE
    window = audio.window_function(one.window, "hann", periodic=one.periodic)
    wanted = audio.spectrogram(
        sound, window, one.window, one.hop, one.fft, power=one.power, center=one.centre, pad_mode=one.pad,
        mel_filters=bank, mel_floor=1e-30,
    ).T  # fmt: skip
    if one.log != "none":
        wanted = np.maximum(wanted, one.floor) if one.guard == "clamp" else wanted + one.floor
        wanted = np.log10(wanted) if one.log == "log10" else np.log(wanted)
    found = log_mel(NOISE, one)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-4


def kaldi(sound: np.ndarray, one: FilterBank) -> np.ndarray:
    native = pytest.importorskip("kaldi_native_fbank")
    options = native.FbankOptions()
    frame, mel = options.frame_opts, options.mel_opts
    frame.dither, frame.snip_edges, frame.window_type, frame.samp_freq = 0, one.snip_edges, one.shape, one.rate
    frame.preemph_coeff, frame.remove_dc_offset = one.preemphasis, one.centred
    frame.frame_length_ms, frame.frame_shift_ms = 1e3 * one.window / one.rate, 1e3 * one.hop / one.rate
    mel.num_bins, mel.low_freq, mel.high_freq = one.bands, one.low, one.high
    options.use_energy, options.energy_floor = one.energy, one.energy_floor
    computed = native.OnlineFbank(options)
    computed.accept_waveform(one.rate, (sound * one.full_scale).tolist())
    computed.input_finished()
    return np.stack([computed.get_frame(i) for i in range(computed.num_frames_ready)])


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"snip_edges": False},
        {"shape": "hamming", "bands": 23, "low": 0.0, "high": -400.0},
        {"shape": "hanning", "preemphasis": 0.0, "centred": False, "full_scale": 1.0},
        {"energy": True, "energy_floor": 1.0},
        {"rate": 8000, "window": 200, "hop": 80, "bands": 40, "high": 3700.0},
    ],
)
def test_filter_banks_equal_kaldis(how: dict[str, Any]) -> None:
    one = FilterBank(**how)
    wanted, found = kaldi(NOISE, one), features(NOISE, one)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() < 1e-4


def test_filter_banks_of_faint_sound() -> None:
    """Kaldi computes in float32, which rounds bands that are faint relative to the frame's loudest one."""
    tone = 0.5 * np.sin(np.arange(16000) * 0.3) + NOISE[:16000] * 1e-5
    found, wanted = (
        np.exp(one.astype(np.float64)) for one in (features(tone, FilterBank()), kaldi(tone, FilterBank()))
    )
    assert (np.abs(found - wanted) / wanted.max(axis=1, keepdims=True)).max() < 1e-5


EVERY = (
    FilterBank(),
    FilterBank(snip_edges=False, window=320, hop=150, energy=True),
    LogMel(),
    LogMel(fft=512, pad="constant", preemphasis=0.97, keep_last=False),
    LogMel(centre=False, fft=512, window=300, hop=111, log="none"),
)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(EVERY), st.integers(0, 4000), st.lists(st.integers(0, 900), max_size=12))
def test_a_stream_equals_the_whole(one: Any, length: int, sizes: list[int]) -> None:
    sound, stream, pieces, at = NOISE[:length], FeatureStream(one), [], 0
    for size in sizes:
        pieces.append(stream.feed(sound[at : at + size]))
        at = min(length, at + size)
    pieces.append(stream.feed(sound[at:], last=True))
    assert np.array_equal(np.concatenate(pieces), features(sound, one))


def test_memory_of_long_recordings() -> None:
    stream = FeatureStream(LogMel())
    for _ in range(200):
        stream.feed(NOISE[:1600])
        assert len(stream._kept) < 5000
    assert len(features(np.tile(NOISE, 20), LogMel())) == 1 + 20 * len(NOISE) // 160


def test_features_relative_to_the_maximum_cannot_be_streamed() -> None:
    with pytest.raises(ConfigError, match=r"8 .*piece by piece"):
        FeatureStream(WHISPER)


def test_roundtrip_of_settings() -> None:
    for one in (*EVERY, WHISPER):
        assert settings_of(ModelMetadata({KEY: settings_to_json(one)})) == one
    assert settings_of(ModelMetadata({}), WHISPER) == WHISPER


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({}, "is missing"),
        ({KEY: "[1]"}, "no 'kind'"),
        ({KEY: json.dumps({"kind": "cqt"})}, "no 'kind'"),
        ({KEY: json.dumps({"kind": "fbank", "dither": 1.0})}, "'dither' is not one of"),
        ({KEY: json.dumps({"kind": "fbank", "shape": "round"})}, "shape 'round' must be one of"),
        ({KEY: json.dumps({"kind": "log_mel", "hop": 0})}, "hop 0 must be"),
        ({KEY: json.dumps({"kind": "log_mel", "hop": "ten"})}, "hop 'ten' must be"),
        ({KEY: json.dumps({"kind": "log_mel", "high": 9000.0})}, "low and high"),
        ({KEY: "{"}, "is not JSON"),
    ],
)
def test_invalid_settings(stored: dict[str, str], message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        settings_of(ModelMetadata(stored, Path("a.onnx")))
    assert str(caught.value).startswith("a.onnx: ")


def test_a_filter_without_a_frequency_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"filter [0-9]+ "):
        mel_bank(16000, 64, 80, 0.0, 8000.0, "htk", True)
    with pytest.raises(ConfigError, match=r"filter [0-9]+ "):
        kaldi_bank(16000, 64, 80, 20.0, 8000.0)
    found = kaldi_bank(16000, 64, 80, 20.0, 8000.0, empty=True)
    assert 0 < (~found.any(axis=1)).sum() < 80


def test_slaneys_filters_have_area_1() -> None:
    bank = mel_bank(16000, 16384, 40, 0.0, 8000.0, "slaney", True)
    assert np.allclose(bank.sum(axis=1) * 16000 / 16384, 1.0, atol=1e-3)
