"""PP-OCRv4's text detector, which has a batch norm with a variance of 1e7 to 1e8: on the card it found nothing."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from benchmarks.parts.real_models import detector, detector_input
from engine import EngineSpec, open_engine
from engine.onnx import load_model, save_model, to_float16
from engine.passes import rewrite
from toolkit.overflow import find_weights
from utils.fetch import UnreachableError

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:input 'x'. float32 cast to the model's float16")]

TEXT = 0.3
"""Above this a pixel is one of text, as PP-OCR has it."""


@pytest.fixture(scope="module")
def model() -> Path:
    try:
        return detector()
    except UnreachableError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def page() -> np.ndarray:
    """The scanned page at twice its size: float32 of shape (1, 3, 320, 768)."""
    return np.kron(detector_input(), np.ones((2, 2), np.float32))


@pytest.fixture(scope="module")
def baseline(model: Path, page: np.ndarray) -> np.ndarray:
    found = text("onnx", model, page, dtype="float32")
    assert found.sum() > 30000
    return found


def text(target: str, path: Path, page: np.ndarray, **options: object) -> np.ndarray:
    """Return which pixels are text."""
    spec = EngineSpec(path, input_size=(page.shape,), divided=False, **options)  # type: ignore[arg-type]
    with open_engine(target, spec) as engine:
        return np.asarray(engine([page])) > TEXT


def overlap(a: np.ndarray, b: np.ndarray) -> float:
    return float((a & b).sum() / (a | b).sum())


@pytest.mark.long
def test_the_card_finds_the_text(model: Path, page: np.ndarray, baseline: np.ndarray) -> None:
    assert overlap(text("sdaa", model, page, dtype="float16"), baseline) >= 0.999


def test_a_float16_file_stores_the_text(model: Path, page: np.ndarray, baseline: np.ndarray, tmp_path: Path) -> None:
    half = to_float16(load_model(model))
    save_model(half, tmp_path / "half.onnx")
    for target in ("onnx", "sdaa"):
        assert overlap(text(target, tmp_path / "half.onnx", page, dtype="float16"), baseline) >= 0.999


def test_folding_leaves_its_batch_norm_apart(
    model: Path, page: np.ndarray, baseline: np.ndarray, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folded = rewrite(load_model(model), ["conv_batch_norm"])
    assert [node.op_type for node in folded.graph.node].count("BatchNormalization") == 2  # of 3, one behind an Add
    assert "is not folded with its neighbours: 95% of its weights" in caplog.text
    save_model(folded, tmp_path / "folded.onnx")
    assert overlap(text("sdaa", tmp_path / "folded.onnx", page, dtype="float16"), baseline) >= 0.999


def test_overflow_names_its_variance(model: Path) -> None:
    found = {one.name: one for one in find_weights(load_model(model))}
    assert (found["batch_norm_0.w_2"].loss.infinite, found["batch_norm_0.w_2"].float32) == (24, True)
    assert not any(one.overflows for one in found.values())
