"""Figures of classes for samples with ratings by people."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from utils.datasets.text.texts import Rated, load_texts
from utils.metrics.f1 import Accuracy, MacroF1


@pytest.mark.parametrize("kind", [Accuracy, MacroF1])
def test_ratings_only_add_figures(kind: type[Accuracy]) -> None:
    chance = np.random.default_rng(0)
    ratings = np.round(chance.normal(0, 2, 200), 1)
    scores = chance.random((200, 3))
    labels = chance.integers(0, 3, 200)
    plain, rated = kind(), kind(rated=True, neutral=1.0)
    plain.update(scores, labels)
    for part in (slice(0, 90), slice(90, 200)):
        targets = [Rated(int(a), float(b)) for a, b in zip(labels[part], ratings[part], strict=True)]
        rated.update(scores[part], targets)
    assert rated.compute() == plain.compute()
    figures = rated.secondary()
    assert figures["spearman"] == pytest.approx(spearmanr(scores @ [0, 1, 2], ratings)[0])
    clear = np.abs(ratings) >= 1
    assert figures["top1_not_neutral"] == pytest.approx((scores.argmax(1) == labels)[clear].mean())
    assert figures["not_neutral"] == clear.sum()
    assert {name: figures[name] for name in plain.secondary()} == plain.secondary()


def test_without_a_bound_no_sample_is_neutral() -> None:
    rated = Accuracy(rated=True)
    rated.update(np.array([[0.1, 0.9], [0.8, 0.2]]), [Rated(1, 0.5), Rated(0, -3.0)])
    assert rated.secondary() == {"macro_f1": 1.0, "matthews": 1.0, "spearman": pytest.approx(1.0)}


def test_a_table_with_ratings_and_units(tmp_path: Path) -> None:
    file = tmp_path / "texts.tsv"
    file.write_text(
        "text\tlabel\trating\tunit\ngood\tpositive\t2.5\tfilm a\nbad\tnegative\tnone\tfilm b\nso\tnegative\t0\t\n",
        encoding="utf-8",
    )
    found = load_texts(file)
    batch = found.batch(range(len(found)))
    assert batch.targets == [Rated("positive", 2.5), Rated("negative", 0.0)]
    assert batch.units == ["film a", "texts.tsv:4"]
    assert found.notes == {"rated": True}
    [rejected] = found.rejected
    assert (rejected.path.name, rejected.reason) == (
        "texts.tsv:3",
        "its 'rating' is 'none', not a number; correct the line",
    )
    file.write_text("text\trating\ngood\t2.5\n", encoding="utf-8")
    assert load_texts(file).targets is None
