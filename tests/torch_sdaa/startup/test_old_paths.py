"""Modules under their earlier paths: the same objects as under the new ones."""

from __future__ import annotations

from importlib import import_module

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_sdaa")

pytestmark = pytest.mark.torch

RENAMED = {"Foretold": "PredictedCost", "foretell": "predict_cost"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("foretold", "cost.predicted_cost"), ("op_faults", "faults.operator_faults"), ("summaries", "reports.summaries")],
)
def test_an_old_path_has_the_objects_of_the_new_one(old: str, new: str) -> None:
    before, now = import_module(f"torch_sdaa.{old}"), import_module(f"torch_sdaa.{new}")
    assert before.__all__
    for name in before.__all__:
        assert getattr(before, name) is getattr(now, RENAMED.get(name, name)), name
