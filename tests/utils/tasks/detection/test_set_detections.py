"""DETR, RT-DETR and OWL-ViT outputs: answers are those of transformers' own post-processing."""

# ruff: noqa: E402 - what is imported later needs what importorskip looks for
from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
if find_spec("torchvision") is None or find_spec("transformers") is None:
    pytest.skip("needs torchvision and transformers", allow_module_level=True)

from constructed_models import bound, options
from PIL import Image

from engine import ConfigError, ModelError, TensorSpec
from utils.export.networks.transformers_detectors import detector, transformers
from utils.postprocess.image.nms import Detections
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model

pytestmark = pytest.mark.torch

FLOAT = np.dtype(np.float32)
SIZES = [(150, 100), (64, 96)]


def images(folder: Path) -> list[Path]:
    rng, paths = np.random.default_rng(5), []
    for i, size in enumerate(SIZES):
        small = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
        paths.append(folder / f"{i}.png")
        small.resize(size, Image.Resampling.BICUBIC).save(paths[-1])
    return paths


def described(made: Any) -> Model:
    scale = {"mean": list(made.mean), "std": list(made.std), "interpolation": made.interpolation}
    metadata = {"preprocess": json.dumps(scale), "detection": json.dumps(dict(made.note))}
    metadata["class_labels"] = json.dumps(list(made.labels))
    sides = (None, None) if made.free else tuple(made.size)
    inputs = [TensorSpec("pixel_values", FLOAT, (None, 3, *sides), 0, ("batch", None, "height", "width"))]
    if "pixel_mask" in made.inputs:
        inputs.append(TensorSpec("pixel_mask", np.dtype(np.int64), (None, *sides), 0, ("batch", "height", "width")))
    outputs = tuple(TensorSpec(name, FLOAT, (None,)) for name in made.outputs)
    return Model(Path("m.onnx"), tuple(inputs), outputs, metadata=metadata)


def assert_same(found: list[Detections], wanted: list[dict[str, Any]]) -> None:
    assert any(len(one["scores"]) > 3 for one in wanted)
    for mine, theirs, (width, height) in zip(found, wanted, SIZES, strict=True):
        order = np.argsort(-theirs["scores"].numpy(), kind="stable")
        np.testing.assert_allclose(mine.scores, theirs["scores"].numpy()[order], rtol=1e-5)
        np.testing.assert_array_equal(mine.classes, theirs["labels"].numpy()[order])
        boxes = np.clip(theirs["boxes"].numpy()[order], 0, [width, height, width, height])
        np.testing.assert_allclose(mine.boxes, boxes, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "processor"), [("detr", "DetrImageProcessor"), ("rtdetr", "RTDetrImageProcessor")])
def test_images_and_answers_match_transformers(arch: str, processor: str, tmp_path: Path) -> None:
    size = (96, 96) if arch == "detr" else (64, 64)
    made = detector(arch, "random", size)
    model, paths = described(made), images(tmp_path)
    asked = {"shortest_edge": 96, "longest_edge": made.note["fit"].get("longer")}
    theirs = getattr(transformers(), processor)(size=asked if arch == "detr" else {"height": 64, "width": 64})
    opened = [Image.open(path) for path in paths]
    wanted = theirs(images=opened, return_tensors="pt")
    prepared = bound(Detection, model).prepare(paths)
    arrays = bound(Detection, model).collate([prepared]) if arch == "detr" else list(prepared.arrays)
    assert arrays[0].shape == tuple(wanted["pixel_values"].shape)
    # one level of 255: Pillow's rounding and torch's
    worst = 1.01 / 255 / (min(made.std) if arch == "detr" else 1)
    np.testing.assert_allclose(arrays[0], wanted["pixel_values"].numpy(), atol=worst)
    if arch == "detr":
        np.testing.assert_array_equal(arrays[1], wanted["pixel_mask"].numpy())
    with torch.no_grad():
        logits, boxes = made.module(*(torch.from_numpy(np.asarray(one)) for one in arrays))
        logits = 3 * (logits - logits.mean()) / logits.std()
    opt = options(Detection, score_threshold=0.2)
    found = Detection(opt).bind(model).decode([logits.numpy(), boxes.numpy()], prepared.contexts)
    targets = torch.tensor([one.size[::-1] for one in opened])
    said = SimpleNamespace(logits=logits, pred_boxes=boxes)
    assert_same(found, theirs.post_process_object_detection(said, threshold=0.2, target_sizes=targets))


def test_user_folder_is_read(tmp_path: Path) -> None:
    made = detector("detr", "random", (64, 64))
    made.module.model.save_pretrained(tmp_path / "mine")
    (tmp_path / "mine" / "preprocessor_config.json").write_text(
        json.dumps(
            {"size": {"shortest_edge": 64, "longest_edge": 128}, "image_mean": [0, 0, 0], "image_std": [1, 1, 1]}
        )
    )
    again = detector("detr", str(tmp_path / "mine"))
    assert again.labels == ["cat", "cup", "spoon"]
    assert (again.name, again.note["layout"], again.note["fit"]["shorter"]) == ("mine", "detr", 64)
    assert again.mean == [0, 0, 0]
    images_in, mask = torch.rand(1, 3, 64, 64), torch.ones(1, 64, 64, dtype=torch.int64)
    with torch.no_grad():
        for mine, theirs in zip(again.module(images_in, mask), made.module(images_in, mask), strict=True):
            torch.testing.assert_close(mine, theirs)
    with pytest.raises(ConfigError, match=r"none: .*config\.json"):
        detector("detr", str(tmp_path / "none"))
    (tmp_path / "mine" / "preprocessor_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"preprocessor_config.json: cannot be read"):
        detector("detr", str(tmp_path / "mine"))
