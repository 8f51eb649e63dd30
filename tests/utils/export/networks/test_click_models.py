"""DeepFM: features, and reproducible training."""

from __future__ import annotations

import numpy as np
import pytest

from engine import ConfigError
from utils.datasets.tabular.clicks import Click
from utils.preprocess.features import Features

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROWS = [
    {"user_id": f"u{i % 7}", "age": str(18 + i % 9), "tags": "a|b" if i % 2 else "", "price": str(i)}
    for i in range(300)
]
CLICKS = [Click(i % 2 == 1) for i in range(300)]


def test_vocabularies_are_the_training_values() -> None:
    pytest.importorskip("torch")
    from utils.export.networks.click_models import Wish, features_of

    wishes = [Wish("user_id"), Wish("age", step=5), Wish("tags", "multi"), Wish("price", "hashed", size=11)]
    found = features_of(ROWS, wishes, {"split": {"how": "random"}})
    user, age, tags, price = found.fields
    assert (user.values[0], user.offset, age.values, age.offset) == ("u0", 0, ("15", "20", "25"), 8)
    assert (tags.values, tags.input, price.offset, price.size) == (("a", "b"), "dense", 12, 11)
    ids = found.encoded(ROWS)["ids"]
    assert len(np.unique(ids[:, 0])) == 7
    assert found.notes == {"split": {"how": "random"}}


def test_training_is_reproducible_and_learns(request: pytest.FixtureRequest) -> None:
    torch = pytest.importorskip("torch")
    request.addfinalizer(lambda: torch.use_deterministic_algorithms(False))
    from utils.export.networks.click_models import Wish, features_of, predictor, trained

    found = features_of(ROWS, [Wish("user_id"), Wish("tags", "multi"), Wish("price", "number", transform="log1p")], {})
    made = [predictor(trained(found, ROWS, CLICKS, steps=60, batch=64), found)(ROWS) for _ in range(2)]
    np.testing.assert_array_equal(made[0], made[1])
    clicked = np.array([one.clicked for one in CLICKS])
    assert made[0][clicked].min() > made[0][~clicked].max()
    assert ((made[0] > 0) & (made[0] < 1)).all()


def test_other_input_names_raise() -> None:
    pytest.importorskip("torch")
    from utils.export.networks.click_models import network_of

    fields = [{"name": "x", "input": "rows", "kind": "hashed", "size": 3}]
    with pytest.raises(ConfigError, match=r"rows.*ids and dense"):
        network_of(Features.from_json({"fields": fields}))
