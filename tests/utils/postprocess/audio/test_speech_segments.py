"""Segments of speech: equal to Silero's, for streams cut anywhere, and properties of the rules."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError
from utils.postprocess.audio.speech_segments import Rules, Segmenter, speech_segments

# What get_speech_timestamps_from_probs of the wheel silero-vad 6.2.3 returned for random probabilities.
GOLDEN = json.loads((Path(__file__).parent / "golden" / "silero_segments.json").read_text())


@pytest.mark.parametrize("case", GOLDEN)
def test_segments_equal_sileros(case: dict[str, Any]) -> None:
    names = ("rate", "chunk", "threshold", "low", "min_speech", "min_silence", "pad")
    rules = Rules(*(case[name] for name in names))
    found = speech_segments(case["probabilities"], rules, case["samples"])
    assert [list(one) for one in found] == case["segments"]


def test_golden_cases_have_segments() -> None:
    assert sum(len(case["segments"]) for case in GOLDEN) > 50


RULES = st.builds(
    Rules,
    rate=st.just(16000),
    chunk=st.just(512),
    threshold=st.sampled_from([0.3, 0.5]),
    min_speech=st.sampled_from([0.0, 100.0, 250.0]),
    min_silence=st.sampled_from([0.0, 100.0]),
    pad=st.sampled_from([0.0, 30.0, 150.0, 400.0]),
)
LEVELS = st.lists(st.sampled_from([0.0, 0.2, 0.4, 0.6, 0.9]), max_size=60)


@settings(max_examples=100, deadline=None)
@given(RULES, LEVELS, st.lists(st.integers(0, 9)))
def test_segments_of_a_stream_equal_the_whole(rules: Rules, levels: list[float], sizes: list[int]) -> None:
    samples = max(0, len(levels) * 512 - 100)
    segmenter, found, at = Segmenter(rules), [], 0
    for size in sizes:
        found += segmenter.feed(levels[at : at + size])
        at += size
    found += segmenter.feed(levels[at:]) + segmenter.finish(samples)
    assert found == speech_segments(levels, rules, samples)
    assert all(0 <= start < end <= samples for start, end in found)
    assert all(one[1] <= other[0] for one, other in pairwise(found))


def test_a_segment_is_returned_once_its_end_is_final() -> None:
    segmenter = Segmenter(Rules())
    assert segmenter.feed([0.9] * 20) == []
    assert segmenter.speaking
    assert segmenter.feed([0.0] * 4) == []
    assert segmenter.feed([0.0]) == [(0, 20 * 512 + 480)]
    assert not segmenter.speaking


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"threshold": 0.0}, "--threshold 0"),
        ({"threshold": 1.5}, "--threshold 1.5"),
        ({"low": 0.6}, "--low_threshold 0.6"),
        ({"low": -0.1}, "--low_threshold -0.1"),
        ({"min_speech": -1.0}, "--min_speech -1"),
        ({"pad": float("nan")}, "--pad nan"),
        ({"min_silence": float("inf")}, "--min_silence inf"),
    ],
)
def test_invalid_rules(how: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rules(**how)  # type: ignore[arg-type]
