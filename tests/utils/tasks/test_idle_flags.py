"""Flags that would change nothing are refused rather than passed over."""

from __future__ import annotations

from pathlib import Path

import pytest
from constructed_models import options

from engine import ConfigError
from utils.tasks.graph_prediction import GRAPH_PREDICTION, load
from utils.tasks.node_classification import NODE_CLASSIFICATION
from utils.tasks.node_input import SCATTER, fanout_of


def test_a_fanout_without_sampling() -> None:
    assert fanout_of(SCATTER, 2, options(NODE_CLASSIFICATION, given=frozenset())) == ()
    with pytest.raises(ConfigError, match=r"--fanout is for sampled neighbours; say --neighbours sampled"):
        fanout_of(SCATTER, 2, options(NODE_CLASSIFICATION, given=frozenset({"fanout"})))


def test_a_property_of_an_npz() -> None:
    asked = options(GRAPH_PREDICTION, property=["SOL"], given=frozenset({"property"}))
    with pytest.raises(ConfigError, match=r"set\.npz: an \.npz file holds its targets itself; leave out --property"):
        load({"data": Path("set.npz")}, asked)
