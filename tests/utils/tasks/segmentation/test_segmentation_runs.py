"""Whole runs of segmentation: every kind of bad data is a line, the rest is done, nothing computed is lost."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, written
from PIL import Image

from utils.pipeline import answers, valid
from utils.tasks.segmentation.task import Segmentation


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Segmentation, tmp_path_factory.mktemp("segmentation"))


def run(tiny: Path, data: Path, result: Path, *words: str) -> tuple[int, dict[str, Any]]:
    argv = ["--target", "onnx", "--json", str(result), *words]
    code = valid.main(None, Segmentation, argv=argv, ckpt=tiny / f"{NAME}_dyn.onnx", data_path=data, batch_size=4)
    return code, json.loads(result.read_text())


def spoilt(tiny: Path, folder: Path) -> dict[str, str]:
    """Copy the data and spoil some masks; return what is to be said of each image."""
    shutil.copytree(tiny / "data", folder)
    masks = folder / "masks"

    def save(number: int, values: np.ndarray) -> str:
        Image.fromarray(values).save(masks / f"discs_{number:02}.png")
        return f"discs_{number:02}.png"

    def sized(number: int) -> np.ndarray:
        return np.asarray(Image.open(masks / f"discs_{number:02}.png"))

    said = {
        save(0, np.zeros((9, 7), np.uint8)): "7x9 pixels.* 64x64",
        save(1, sized(1) + 4): "class 7 at|class 4 at|class 5 at|class 6 at",
        save(2, np.array([[3, 5, 7]] * 3, np.uint8)[None].repeat(48, 0)[:, :1].repeat(64, 1)): "a colour image",
        save(3, np.full(sized(3).shape, 40_000, np.uint16)): "40000 is not a class number",
    }
    (masks / "discs_04.png").unlink()
    said["discs_04.png"] = "its mask .* does not exist"
    (masks / "discs_05.png").write_bytes(b"\x89PNG no")
    said["discs_05.png"] = "cannot be read as a mask"
    save(6, np.full(sized(6).shape, 255, np.uint8))  # nothing labelled: not wrong, and counts for nothing
    return said


def test_invalid_masks_are_reported_and_skipped(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = spoilt(tiny, tmp_path / "data")
    code, found = run(tiny, tmp_path / "data", tmp_path / "r.json")
    errors = capsys.readouterr().err
    assert code == 1
    assert found["samples"] == 16 - len(said)
    assert found["metric"] > 0.9
    reasons = {Path(one["name"]).name: one["reason"] for one in found["failures"]}
    assert set(reasons) == set(said)
    for name, wanted in said.items():
        assert re.search(wanted, reasons[name])
        assert "\n" not in reasons[name]
        assert name in errors
    assert "Traceback" not in errors


def test_the_metric_is_that_of_the_good_images(tiny: Path, tmp_path: Path) -> None:
    said = spoilt(tiny, tmp_path / "data")
    _, whole = run(tiny, tmp_path / "data", tmp_path / "a.json")
    for name in said:
        (tmp_path / "data" / "images" / name).unlink()
        (tmp_path / "data" / "masks" / name).unlink(missing_ok=True)
    code, rest = run(tiny, tmp_path / "data", tmp_path / "b.json")
    assert code == 0
    assert (rest["metric"], rest["secondary"], rest["per_class"]) == (
        whole["metric"],
        whole["secondary"],
        whole["per_class"],
    )


def test_the_json_of_answers_names_the_masks(tiny: Path, tmp_path: Path) -> None:
    argv = ["--target", "onnx", "--json", str(tmp_path / "r.json"), "--save", str(tmp_path / "out")]
    ckpt, data = tiny / f"{NAME}_dyn.onnx", tiny / "data"
    assert answers.main(None, Segmentation, "multi", argv=argv, ckpt=ckpt, data_path=data, batch_size=4) == 0
    found = json.loads((tmp_path / "r.json").read_text())["answers"]
    assert len(found) == 16
    for one in found:
        mask = np.asarray(Image.open(one["answer"]["mask"]))
        counts = {row["class"]: row["pixels"] for row in one["answer"]["classes"]}
        assert counts == dict(zip(*(column.tolist() for column in np.unique(mask, return_counts=True)), strict=True))
        assert sum(counts.values()) == one["answer"]["width"] * one["answer"]["height"]


@pytest.mark.parametrize("words", [("--worker_mode", "process"), ("--batch_size", "1"), ("--workers", "0")])
def test_the_result_does_not_depend_on_how_it_is_run(words: tuple[str, ...], tiny: Path, tmp_path: Path) -> None:
    _, usual = run(tiny, tiny / "data", tmp_path / "a.json")
    _, other = run(tiny, tiny / "data", tmp_path / "b.json", *words)
    assert other["metric"] == usual["metric"]
    assert other["per_class"] == usual["per_class"]
