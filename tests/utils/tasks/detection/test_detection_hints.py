"""Hints of a detector's evaluation: each mistake is named, and a healthy or a random detector gives none."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, described, opened, written

from utils.tasks.detection.task import Detection


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Detection, tmp_path_factory.mktemp("hints"))


def hints(folder: Path, change: Any = lambda boxes, scores: (boxes, scores), **flags: Any) -> list[str]:
    """Evaluate with changed outputs and return the hints."""
    with opened(folder / f"{NAME}_dyn.onnx", "onnx") as engine:
        task = bound(Detection, described(engine), **flags)
        looking = task.diagnostics()
        for batch in task.load({"data": folder / "data" / "val.json"}).batches(16):
            ready = task.prepare(batch.samples)
            boxes, scores = engine(list(ready.arrays))
            looking.see(list(change(boxes, scores)), ready.contexts, batch.targets)
    return list(looking.hints())


def unit(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return boxes / 64, scores


def centres(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([(boxes[..., :2] + boxes[..., 2:]) / 2, boxes[..., 2:] - boxes[..., :2]], -1), scores


def sizes(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([boxes[..., :2], boxes[..., 2:] - boxes[..., :2]], -1), scores


def turned(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return boxes[..., [1, 0, 3, 2]], scores


def behind_background(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return boxes, np.concatenate([np.zeros_like(scores[..., :1]), scores], -1)


def logits(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    inside = np.clip(scores, 1e-6, 1 - 1e-6)
    return boxes, np.log(inside / (1 - inside))


def twice(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return boxes, 1 / (1 + np.exp(-scores))


CASES: list[tuple[Any, Mapping[str, Any], str]] = [
    (unit, {"box_units": "unit"}, "--box_units unit"),
    (centres, {"box_format": "cxcywh"}, "--box_format cxcywh"),
    (sizes, {"box_format": "xywh"}, "--box_format xywh"),
    (turned, {"box_format": "yxyx"}, "--box_format yxyx"),
    (behind_background, {"class_offset": 1}, "--class_offset 1"),
    (logits, {"score_form": "logit"}, "--score_form logit"),
    (twice, {"score_form": "twice"}, "--score_form twice"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("change", "right", "flag"), CASES)
def test_each_mistake_has_a_hint_and_its_flag_removes_the_hint(
    tiny: Path, change: Any, right: Mapping[str, Any], flag: str
) -> None:
    (line,) = hints(tiny, change)
    assert flag in line
    assert hints(tiny, change, **right) == []


def test_a_healthy_detector_gives_no_hint(tiny: Path) -> None:
    assert hints(tiny) == []
    assert hints(tiny, iou_threshold=0.9, score_threshold=0.5) == []


def test_a_random_detector_gives_no_hint(tiny: Path) -> None:
    def random(boxes: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(len(boxes))
        corners = np.sort(rng.uniform(0, 64, (*boxes.shape[:2], 2, 2)), axis=2).reshape(boxes.shape)
        return corners, rng.uniform(0, 1, scores.shape)

    assert hints(tiny, random) == []


def test_evaluation_prints_the_hints(tiny: Path) -> None:
    words = ["--data_path", str(tiny / "data" / "val.json"), "--box_format", "yxyx", "--target", "onnx"]
    done = subprocess.run([sys.executable, "example_valid.py", *words], cwd=tiny, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "hint: the boxes look like another form" in done.stderr
    assert "--box_format xyxy" in done.stderr
