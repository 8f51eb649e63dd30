"""What masks of 0 and 255 mean is decided by the whole data set and the model's classes, and is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from constructed_models import bound, options
from hypothesis import given, settings, strategies as st
from onnx import TensorProto, helper
from PIL import Image

from engine import DataError, TensorSpec
from utils.datasets.image.mask_codes import BINARY, INDEX, read_mask
from utils.pipeline import valid
from utils.tasks.model import Model
from utils.tasks.segmentation.task import Context, Segmentation

FLOAT = np.dtype(np.float32)
SIDE = 32


def square(white: int, dark: int = 0, dtype: type = np.uint8) -> np.ndarray:
    """Return a mask with a square of one level on another one."""
    values = np.full((SIDE, SIDE), dark, dtype)
    values[9:22, 7:26] = white
    return values


def data(folder: Path, masks: list[Any], ending: str = ".png") -> Path:
    """Write a dark image with a bright square, and a mask, for each of the masks."""
    for name in ("images", "masks"):
        (folder / name).mkdir(parents=True)
    for i, one in enumerate(masks):
        Image.fromarray(square(255)).convert("RGB").save(folder / "images" / f"{i:03}.png")
        image = one if isinstance(one, Image.Image) else Image.fromarray(one)
        image.save(folder / "masks" / f"{i:03}{ending}")
    return folder


def model(channels: int | None) -> Model:
    inputs = (TensorSpec("x", FLOAT, (None, 3, SIDE, SIDE), symbols=("N", None, None, None)),)
    return Model(Path("m.onnx"), inputs, (TensorSpec("y", FLOAT, (None, channels, SIDE, SIDE)),))


def truths(folder: Path, channels: int | None, **flags: Any) -> list[Context]:
    opt = options(Segmentation, **flags)
    loaded = Segmentation(opt).load({"data": folder})
    return list(Segmentation(opt).bind(model(channels)).prepare(loaded.samples).contexts)


def levels(contexts: list[Context]) -> list[list[int]]:
    return [np.unique(one.truth).tolist() for one in contexts]  # type: ignore[arg-type]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    "made",
    [
        square(255),
        Image.fromarray(square(255)).convert("RGB"),
        Image.fromarray(square(255)).convert("RGBA"),
        Image.fromarray(square(255)).convert("LA"),
        square(65535, dtype=np.uint16),
    ],
    ids=["L", "RGB", "RGBA", "LA", "I;16"],
)
def test_255_is_foreground_for_two_classes(channels: int, made: Any, tmp_path: Path) -> None:
    found = truths(data(tmp_path, [made, square(0)]), channels)
    assert levels(found) == [[0, 1], [0]]
    assert bound(Segmentation, None).warning_counts(found) == {"masks_255_foreground": 2}
    np.testing.assert_array_equal(found[0].truth == 1, square(255) == 255)


@pytest.mark.parametrize("flags", [{"ignore_label": 255}, {"data_format": "index"}])
def test_flags_override_the_content_of_masks(flags: dict[str, Any], tmp_path: Path) -> None:
    found = truths(data(tmp_path, [square(255)]), 1, **flags)
    assert levels(found) == [[-1, 0]]
    assert not bound(Segmentation, None).warning_counts(found)


def test_a_mask_with_class_1_means_that_255_is_the_border(tmp_path: Path) -> None:
    found = truths(data(tmp_path, [square(255), square(255), square(1), square(255, 1)]), 1)
    assert levels(found) == [[-1, 0], [-1, 0], [0, 1], [-1, 1]]
    assert not bound(Segmentation, None).warning_counts(found)


@pytest.mark.parametrize("channels", [3, 21, None])
def test_255_is_ignored_for_other_models_with_a_warning(channels: int | None, tmp_path: Path) -> None:
    found = truths(data(tmp_path, [square(255)]), channels)
    assert levels(found) == [[-1, 0]]
    assert bound(Segmentation, None).warning_counts(found) == {"masks_255_ignored": 1}


@pytest.mark.parametrize("made", [square(1), Image.fromarray(square(255) > 0)], ids=["L", "1"])
def test_masks_of_0_and_1_are_classes(made: Any, tmp_path: Path) -> None:
    found = truths(data(tmp_path, [made]), 2)
    assert levels(found) == [[0, 1]]
    assert not bound(Segmentation, None).warning_counts(found)


def test_a_mask_that_contradicts_the_others_is_refused(tmp_path: Path) -> None:
    masks = [square(255) for _ in range(130)]
    masks[1] = square(1)  # not among those that are looked at
    opt = options(Segmentation)
    samples = Segmentation(opt).load({"data": data(tmp_path, masks)}).samples
    assert levels(list(Segmentation(opt).bind(model(2)).prepare(samples[:1]).contexts)) == [[0, 1]]
    with pytest.raises(DataError, match="level 1"):
        Segmentation(opt).bind(model(2)).prepare(samples[1:2])


@pytest.mark.parametrize(
    ("made", "channels", "said"),
    [
        (square(7), 2, "class 7"),
        (square(128), 1, "class 128"),
        (square(200, 100), 21, "class 100"),
        (square(2, 1), 2, "class 2"),
        (Image.fromarray(square(255)).convert("L").resize((SIDE * 2, SIDE * 2)), 2, "64x64 pixels"),
        (Image.fromarray(np.stack([square(255), square(0), square(0)], -1)), 2, "a colour image"),
        (square(65535, dtype=np.uint16), 21, "65535 is not a class number"),
    ],
)
def test_mask_levels_without_a_class_are_one_line(made: Any, channels: int, said: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=said) as caught:
        truths(data(tmp_path, [made]), channels)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", [".jpg", ".webp"])
def test_lossy_masks_are_two_levels_or_refused(ending: str, tmp_path: Path) -> None:
    two = data(tmp_path / "two", [square(255), square(0)], ending)
    assert len(np.unique(np.asarray(Image.open(two / "masks" / f"000{ending}")))) > 2
    found = truths(two, 1)
    np.testing.assert_array_equal(found[0].truth == 1, square(255) == 255)
    assert levels(found) == [[0, 1], [0]]
    assert bound(Segmentation, None).warning_counts(found) == {"masks_255_foreground": 2}
    assert levels(truths(two, 1, data_format="binary")) == [[0, 1], [0]]
    with pytest.raises(DataError, match="compression"):
        truths(two, 21)
    with pytest.raises(DataError, match="compression"):
        truths(data(tmp_path / "numbers", [square(7, 3)], ending), 21)
    with pytest.raises(DataError, match="compression"):
        truths(data(tmp_path / "ones", [square(1)], ending), 1, data_format="binary")


def test_classes_beyond_an_output_of_open_size_are_refused(tmp_path: Path) -> None:
    contexts = truths(data(tmp_path, [square(5)]), None)
    with pytest.raises(DataError, match="class 5"):
        bound(Segmentation, model(None)).decode(np.zeros((1, 3, SIDE, SIDE), np.float32), contexts)
    assert len(bound(Segmentation, model(None)).decode(np.zeros((1, 6, SIDE, SIDE), np.float32), contexts)) == 1


@settings(max_examples=40)
@given(st.lists(st.sampled_from([0, 1, 255]), min_size=1, max_size=9))
def test_mask_levels_are_consistent_across_a_data_set(
    tmp_path_factory: pytest.TempPathFactory, whites: list[int]
) -> None:
    folder = data(tmp_path_factory.mktemp("masks"), [square(white) for white in whites])
    white = {0: 0, 1: 1, 255: -1 if 1 in whites else 1}
    assert levels(truths(folder, 1)) == [sorted({0, white[one]}) for one in whites]


def test_mask_codes_round_trip(tmp_path: Path) -> None:
    Image.fromarray(square(255)).save(tmp_path / "m.png")
    assert np.unique(read_mask(tmp_path / "m.png", INDEX, 255, (SIDE, SIDE))).tolist() == [-1, 0]
    assert np.unique(read_mask(tmp_path / "m.png", BINARY, 255, (SIDE, SIDE))).tolist() == [0, 1]


def test_a_run_reports_it_and_its_metric_is_right(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, SIDE, SIDE])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 1, SIDE, SIDE])
    weights = helper.make_tensor("w", TensorProto.FLOAT, [1, 3, 1, 1], [1.0, 1.0, 1.0])
    graph = helper.make_graph([helper.make_node("Conv", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    folder = data(tmp_path / "data", [square(255)] * 3)
    argv = ["--target", "onnx", "--json", str(tmp_path / "r.json")]
    assert valid.main(None, Segmentation, argv=argv, ckpt=tmp_path / "m.onnx", data_path=folder, batch_size=2) == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["metric"] == 1
    assert found["warning_counts"] == {"masks_255_foreground": 3}
    assert "--ignore_label 255" in capsys.readouterr().out
