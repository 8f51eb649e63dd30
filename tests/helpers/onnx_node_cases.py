"""ONNX's own node tests, generated once per process, as the generators append to earlier results."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
import pytest

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase


@cache
def node_cases() -> tuple[TestCase, ...]:
    """Return the cases, which are shared and must not be changed."""
    from onnx.backend.test.loader import load_model_tests

    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), np.errstate(all="ignore"):
        patch.setenv("ALLOW_RELEASED_ONNX_OPSET_ONLY", "0")  # try what ONNX Runtime has of the newest opset
        warnings.simplefilter("ignore")  # numpy's and onnx's own, while the expected values are computed
        return tuple(load_model_tests(kind="node"))
