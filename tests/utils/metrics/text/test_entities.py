"""Entities of tags and their F1: equal to seqeval's, in both modes; other schemes; what cannot be compared."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from engine import ConfigError, DataError
from utils.metrics.text.entities import (
    Chunk,
    EntityF1,
    TagAccuracy,
    chunks,
    parts,
    plain_tags,
    scheme_of,
    types_of,
)

PREFIXES = {"IOB1": "BI", "IOB2": "BI", "IOBES": "BIES"}
TYPES = ("A", "B", "X-Y")


def tags(prefixes: str) -> st.SearchStrategy[str]:
    entities = st.builds(lambda prefix, kind: f"{prefix}-{kind}", st.sampled_from(prefixes), st.sampled_from(TYPES))
    return st.one_of(st.just("O"), entities)


def pairs(prefixes: str) -> st.SearchStrategy[list[list[tuple[str, str]]]]:
    """Return sentences of pairs of a real and a predicted tag."""
    one = st.lists(st.tuples(tags(prefixes), tags(prefixes)), min_size=1, max_size=7)
    return st.lists(one, min_size=1, max_size=5)


def split(sentences: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[one for one, _ in row] for row in sentences], [[two for _, two in row] for row in sentences]


def check(sentences: Any, mode: str, scheme: str) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    schemes = pytest.importorskip("seqeval.scheme")
    real, found = split(sentences)
    metric = EntityF1(TYPES, mode, scheme, scheme)
    metric.update(found, real)
    how: dict[str, Any] = {"zero_division": 0}
    how |= {"mode": "strict", "scheme": getattr(schemes, scheme)} if mode == "strict" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scores = (seqeval.precision_score, seqeval.recall_score, seqeval.f1_score)
        micro = [score(real, found, **how) for score in scores]
        any_entity = any(chunks(row, mode, scheme) for row in (*real, *found))
        macro = seqeval.f1_score(real, found, average="macro", **how) if any_entity else math.nan
    others = metric.secondary()
    assert others["accuracy"] == pytest.approx(seqeval.accuracy_score(real, found))
    assert [others["precision"], others["recall"]] == pytest.approx(micro[:2])
    if any_entity:
        assert metric.compute() == pytest.approx(micro[2])
        assert others["macro_f1"] == pytest.approx(macro)
        assert sum(row["entities"] for row in metric.per_class().values()) == others["entities"]
    else:
        assert math.isnan(metric.compute())
        assert "no sentence has an entity" in metric.unknown()


@settings(max_examples=120, deadline=None)
@given(pairs("BIES"))
def test_default_mode_equals_seqeval(sentences: Any) -> None:
    check(sentences, "default", "IOB2")


@pytest.mark.parametrize("scheme", PREFIXES)
def test_strict_mode_equals_seqeval(scheme: str) -> None:
    @settings(max_examples=60, deadline=None)
    @given(pairs(PREFIXES[scheme]))
    def compared(sentences: Any) -> None:
        check(sentences, "strict", scheme)

    compared()


def test_the_two_modes_differ_where_a_tag_breaks_the_scheme() -> None:
    row = ["I-PER", "I-PER", "O", "B-LOC", "I-PER"]
    assert chunks(row) == [Chunk("PER", 0, 2), Chunk("LOC", 3, 4), Chunk("PER", 4, 5)]
    assert chunks(row, "strict", "IOB2") == [Chunk("LOC", 3, 4)]
    assert chunks(row, "strict", "IOB1")[0] == Chunk("PER", 0, 2)


def test_bilou_and_bmes_are_read_as_iobes() -> None:
    bilou, bmes = ["U-A", "B-A", "I-A", "L-A"], ["S-A", "B-A", "M-A", "E-A"]
    assert plain_tags(bilou) == plain_tags(bmes) == ("S-A", "B-A", "I-A", "E-A")
    for mode in ("default", "strict"):
        assert chunks(bilou, mode, "IOBES") == chunks(bmes, mode, "IOBES") == [Chunk("A", 0, 1), Chunk("A", 1, 4)]


@pytest.mark.parametrize(
    ("rows", "scheme"),
    [
        ([["B-A", "I-A", "O"]], "IOB2"),
        ([["O", "I-A"]], "IOB1"),
        ([["B-A", "I-B"]], "IOB1"),
        ([["S-A"], ["O"]], "IOBES"),
        ([["B-A", "L-A"]], "IOBES"),
        ([], "IOB2"),
    ],
)
def test_schemes_are_recognised(rows: list[list[str]], scheme: str) -> None:
    assert scheme_of(rows) == scheme


def test_real_and_predicted_tags_of_two_schemes_have_the_same_entities() -> None:
    """Data in IOB1 and a model in IOBES."""
    real, found = [["I-A", "I-A", "B-A", "O"]], [["B-A", "E-A", "S-A", "O"]]
    metric = EntityF1(["A"], "strict", "IOBES", "IOB1")
    metric.update(found, real)
    assert metric.compute() == 1
    assert "accuracy" not in metric.secondary()


def test_records_merge_weigh_and_lose_what_is_nan() -> None:
    class One:
        tags, score, margin = ("B-A",), math.nan, 0.5

    first, second = EntityF1(["A"]), EntityF1(["A"])
    record = first.update([One(), ["B-A"]], [["B-A"], ["B-A"]])
    assert np.array_equal(record.values, [[1, 0, 0, 0, 1], [1, 1, 1, 1, 1]])  # type: ignore[union-attr]
    assert record.margins is not None  # type: ignore[union-attr]
    assert record.margins[0] == 0.5  # type: ignore[union-attr]
    second.update([["O"]], [["B-A"]])
    first.merge(second)
    assert first.compute() == 0.5
    assert first.value(record.values, np.array([0.0, 2.0])) == 1  # type: ignore[union-attr]
    assert TagAccuracy(["A"]).value(record.values, np.ones(2)) == 0.5  # type: ignore[union-attr]


def test_effect_bounds_what_one_changed_tag_does() -> None:
    """The middle of an entity of three words becomes another type: three wrong ones for one that was right."""
    real = [["B-A", "I-A", "I-A"]] + [["B-A"]] * 9
    changed = [["B-A", "I-B", "I-A"]] + [["B-A"]] * 9
    metric = EntityF1(["A", "B"])
    baseline, target = (np.asarray(metric.records(one, real).values) for one in (real, changed))
    share = 1 / len(real)
    drop = 1 - metric.value(target, np.ones(len(real))) / metric.value(baseline, np.ones(len(real)))
    assert 0 < drop <= metric.effect(target, baseline) * share
    assert math.isnan(metric.effect(target, baseline * 0))


def test_tags_without_entities_have_an_accuracy() -> None:
    metric = TagAccuracy()
    metric.update([["DET", "NOUN"]], [["DET", "VERB"]])
    assert metric.compute() == 0.5
    assert metric.per_class() == {}
    assert dict(metric.secondary()) == {"words": 2}


def test_class_numbers_are_tags_of_the_model() -> None:
    metric = EntityF1(["A"], labels=["O", "B-A"])
    metric.update([["B-A", "O"]], [(1, 0)])
    assert metric.compute() == 1
    with pytest.raises(DataError, match="2 is a number"):
        metric.update([["O"]], [(2,)])


def test_what_cannot_be_compared_is_named() -> None:
    with pytest.raises(DataError, match="2 tags for 1 words"):
        EntityF1(["A"]).update([["O"]], [["O", "O"]])
    with pytest.raises(DataError, match="'B' is unknown"):
        EntityF1(["A"]).update([["O"]], [["B-B"]])
    with pytest.raises(ConfigError, match="IOB7"):
        EntityF1(["A"], scheme="IOB7")
    with pytest.raises(ValueError, match="'NN'"):
        chunks(["NN"])
    with pytest.raises(ValueError, match="'S-A' is not one of IOB2"):
        chunks(["S-A"], "strict", "IOB2")


def test_parts_of_tags() -> None:
    assert parts("B-X-Y") == ("B", "X-Y")
    assert parts("I") == ("I", "_")
    assert parts("O-A") is None
    assert parts("BA") is None
    assert types_of(["O", "U-A", "I-B", "NN"]) == {"A", "B"}
