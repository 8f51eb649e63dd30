"""Flags that would change nothing are refused rather than passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from constructed_models import bound, options

from engine import ConfigError
from utils.tasks.graph_prediction.task import GraphPrediction
from utils.tasks.node_classification.input import SCATTER, fanout_of
from utils.tasks.node_classification.task import NodeClassification


def test_a_fanout_without_sampling() -> None:
    assert fanout_of(SCATTER, 2, options(NodeClassification, given=frozenset())) == ()
    with pytest.raises(ConfigError, match=r"--fanout .*--neighbours sampled"):
        fanout_of(SCATTER, 2, options(NodeClassification, given=frozenset({"fanout"})))


def test_a_property_of_an_npz() -> None:
    task = bound(GraphPrediction, None, property=["SOL"], given=frozenset({"property"}))
    with pytest.raises(ConfigError, match=r"set\.npz: .*leave out --property"):
        task.load({"data": Path("set.npz")})
