"""A label that is none is named with the line that has it."""

from __future__ import annotations

import pytest

from engine import DataError
from utils.metrics.class_names import WrongLabelError
from utils.pipeline.run.loops import _located


def test_the_line_of_a_label_that_is_none() -> None:
    with pytest.raises(DataError, match=r"^val\.tsv:3: label 'x' is no class$"), _located(["val.tsv:2", "val.tsv:3"]):
        raise WrongLabelError("label 'x' is no class", 1)
