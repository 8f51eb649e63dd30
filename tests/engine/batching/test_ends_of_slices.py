"""Slices to the end of an axis, as exporters write it, keep all samples."""

from __future__ import annotations

import pytest
from onnx import parser

from engine.batching.find import find_batching

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[batch,8] x) => (float[batch,8] y)
<int64[1] start = {0}, int64[1] end = {END}, int64[1] axis = {0}>
{ part = Slice(x, start, end, axis)  y = Relu(part) }"""


@pytest.mark.parametrize("end", [10**9, 2**31 - 1, 2**63 - 1])
def test_the_end_means_all_samples(end: int) -> None:
    assert find_batching(parser.parse_model(TEXT.replace("END", str(end)))).independent


@pytest.mark.parametrize("end", [1, 1000, 10**8])
def test_a_real_end_takes_a_part(end: int) -> None:
    assert find_batching(parser.parse_model(TEXT.replace("END", str(end)))).independent is False
