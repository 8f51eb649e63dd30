"""Features of models on Criteo's logs, and the task with such logs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

from engine import ConfigError, DataError
from utils.datasets.synthetic.criteo_like import clicks
from utils.datasets.tabular.criteo import CATEGORIES, NUMBERS, CriteoRows
from utils.export.networks.criteo_tables import (
    CHALLENGE,
    TERABYTE,
    capped,
    criteo_features,
    example_arrays,
    linear_sizes,
)
from utils.preprocess.features import Features
from utils.tasks.ctr_prediction.task import CTR_PREDICTION

ROWS = tuple(range(10, 36))


@pytest.mark.parametrize("how", ["crc32", "hex"])
def test_lines_become_counts_and_rows(how: str, tmp_path: Path) -> None:
    file = tmp_path / "train.txt"
    file.write_text("\n".join(clicks(40)), encoding="ascii")
    features = Features.from_json(criteo_features(ROWS, how).to_json())
    batch = CriteoRows(file).batch(range(40))
    arrays = features.encoded(batch.samples)
    assert arrays["dense"].shape == (40, 13)
    assert arrays["dense"].dtype == np.float32
    assert arrays["ids"].shape == (40, 26)
    assert arrays["ids"].dtype == np.int64
    for row, sample in enumerate(batch.samples):
        for place, name in enumerate(NUMBERS):
            count = max(int(sample[name] or 0), 0)
            assert arrays["dense"][row, place] == pytest.approx(np.log1p(count), rel=1e-6)
        for place, (name, size) in enumerate(zip(CATEGORIES, ROWS, strict=True)):
            value = sample[name]
            wanted = int(value or "0", 16) if how == "hex" else crc32(f"{name}={value}".encode())
            assert arrays["ids"][row, place] == wanted % size


def test_invalid_values_raise() -> None:
    with pytest.raises(ConfigError, match="3 tables for 26 categories"):
        criteo_features([1, 2, 3])
    with pytest.raises(ConfigError, match=r"hash 'md5'.*crc32, hex"):
        criteo_features(ROWS, "md5")
    with pytest.raises(ConfigError, match="--max_rows -1"):
        capped(ROWS, -1)
    with pytest.raises(DataError, match="C1 'xyz' is not a hexadecimal number"):
        criteo_features(ROWS, "hex").encoded([{"C1": "xyz"}])


def test_sizes() -> None:
    assert len(CHALLENGE) == len(TERABYTE) == len(CATEGORIES)
    assert capped((5, 500), 0) == [5, 500]
    assert capped((5, 500), 100) == [5, 100]
    state = {"top_l.0.weight": np.zeros((4, 9)), "top_l.0.bias": np.zeros(4), "top_l.10.weight": np.zeros((1, 7))}
    assert linear_sizes({**state, "top_l.2.weight": np.zeros((7, 4)), "bot_l.0.weight": np.zeros(1)}, "top_l.") == [
        4,
        7,
        1,
    ]
    arrays = example_arrays(criteo_features(ROWS))
    assert [array.shape for array in arrays.values()] == [(2, 13), (2, 26)]


def test_task_loads_criteo(tmp_path: Path) -> None:
    file = tmp_path / "day_0"
    file.write_text("\n".join(clicks(5)), encoding="ascii")
    options = Namespace(script="single", user=None, batch_size=2)
    found = CTR_PREDICTION.load({"data": file}, options)
    assert len(found) == 2
    assert not found.has_units
    options.user = "7"
    with pytest.raises(ConfigError, match="leave out --user 7"):
        CTR_PREDICTION.load({"data": file}, options)
