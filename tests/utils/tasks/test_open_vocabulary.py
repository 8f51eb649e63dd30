"""Open-vocabulary detection: images, texts and answers are transformers' own, and batches are split, not texts."""

# ruff: noqa: E402 - what is imported later needs what importorskip looks for
from __future__ import annotations

import argparse
import json
import pickle
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxsim")
pytest.importorskip("tokenizers")
if find_spec("torchvision") is None or find_spec("transformers") is None:
    pytest.skip("needs torchvision and transformers", allow_module_level=True)

from constructed_models import bound, options
from PIL import Image

from engine import ConfigError, EngineSpec, ModelError, TensorSpec, open_engine
from utils.export.networks.owl_detectors import detector
from utils.export.networks.transformers_detectors import transformers
from utils.export.scripts.detector import write
from utils.tasks.base import task_class
from utils.tasks.detection.task import Detection
from utils.tasks.model import Model
from utils.tasks.open_vocabulary import OPEN_VOCABULARY, OpenVocabulary

pytestmark = pytest.mark.torch

SIZES = [(150, 100), (64, 200), (96, 96)]
QUERIES = ["a cat", "a photo of a red cup", "spoon"]
FLOAT, WHOLE = np.dtype(np.float32), np.dtype(np.int64)


def image_files(folder: Path) -> list[Path]:
    rng, paths = np.random.default_rng(5), []
    for i, size in enumerate(SIZES):
        small = Image.fromarray(rng.integers(0, 256, (7, 9, 3)).astype(np.uint8))
        paths.append(folder / f"{i}.png")
        small.resize(size, Image.Resampling.BICUBIC).save(paths[-1])
    return paths


def described(made: Any) -> Model:
    scale = {"mean": list(made.mean), "std": list(made.std), "interpolation": made.interpolation}
    metadata = {"preprocess": json.dumps(scale), "detection": json.dumps(dict(made.note))}
    metadata |= {key: json.dumps(value) for key, value in made.notes.items()}
    text = ((None, 16), None, ("queries", None))
    inputs = (
        TensorSpec("pixel_values", FLOAT, (None, 3, *made.size)),
        TensorSpec("input_ids", WHOLE, *text),
        TensorSpec("attention_mask", WHOLE, *text),
    )
    outputs = tuple(TensorSpec(name, FLOAT, (None,)) for name in made.outputs)
    return Model(Path("m.onnx"), inputs, outputs, metadata=metadata)


@pytest.mark.parametrize(("arch", "processor"), [("owlvit", "OwlViTImageProcessor"), ("owlv2", "Owlv2ImageProcessor")])
def test_images_texts_and_answers_match_transformers(arch: str, processor: str, tmp_path: Path) -> None:
    made, paths = detector(arch, "random"), image_files(tmp_path)
    theirs = getattr(transformers(), processor)(size={"height": 96, "width": 96})
    opened = [Image.open(path) for path in paths]
    wanted = theirs(images=opened, return_tensors="pt")["pixel_values"]
    prepared = bound(OpenVocabulary, described(made), queries=QUERIES).prepare(paths)
    array, ids, mask = (torch.from_numpy(np.asarray(one)) for one in prepared.arrays)
    # two levels of 255 (Pillow rounds between the axes, torch does not), or what float32 sums leave
    np.testing.assert_allclose(array, wanted, atol=(2.01 / 255 if arch == "owlvit" else 1e-4) / min(made.std))
    fast = transformers().PreTrainedTokenizerFast(tokenizer_object=_tokenizer(made), pad_token="<pad>")  # noqa: S106
    said = fast(QUERIES, padding="max_length", max_length=16, return_tensors="pt")
    assert torch.equal(ids, said["input_ids"])
    assert torch.equal(mask, said["attention_mask"])
    with torch.no_grad():
        logits, boxes = made.module(array, ids, mask)
        repeated = {"input_ids": ids.repeat(3, 1), "attention_mask": mask.repeat(3, 1)}
        whole = made.module.model(pixel_values=array, **repeated)
    torch.testing.assert_close(logits, whole.logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(boxes, whole.pred_boxes)
    answers = theirs.post_process_object_detection(
        SimpleNamespace(logits=whole.logits, pred_boxes=whole.pred_boxes),
        threshold=0.3,
        target_sizes=torch.tensor([one.size[::-1] for one in opened]),
    )
    opt = options(OpenVocabulary, queries=QUERIES, score_threshold=0.3, max_detections=1000)
    found = OpenVocabulary(opt).bind(described(made)).decode([logits.numpy(), boxes.numpy()], prepared.contexts)
    assert any(len(one["scores"]) > 3 for one in answers)
    for mine, other, (width, height) in zip(found, answers, SIZES, strict=True):
        order = np.argsort(-other["scores"].numpy(), kind="stable")
        np.testing.assert_allclose(mine.scores, other["scores"].numpy()[order], rtol=1e-4)
        np.testing.assert_array_equal(mine.classes, other["labels"].numpy()[order])
        limit = [width, height, width, height]
        np.testing.assert_allclose(mine.boxes, np.clip(other["boxes"].numpy()[order], 0, limit), atol=0.01)


def _tokenizer(made: Any) -> Any:
    from tokenizers import Tokenizer

    return Tokenizer.from_str(json.dumps(made.notes["tokenizer"]))


@pytest.mark.long
@pytest.mark.slow
def test_a_batch_is_split_and_its_texts_are_not(tmp_path: Path) -> None:
    """Three images on four SPA with two queries, filled up to a plan of four: as one call of the whole."""
    made, paths = detector("owlv2", "random"), image_files(tmp_path)
    list(write(made, argparse.Namespace(batch_size=1, out=tmp_path, forms=["dyn"], exporter=None)))
    opt = options(OpenVocabulary, queries=QUERIES[:2], score_threshold=0.0001)
    answers = []
    for target, dims in (("onnx", {}), ("sdaa", {"queries": (4,)})):
        spec = EngineSpec(ckpt=tmp_path / "owlv2_dyn.onnx", batch_size=4, dims=dims, dtype="float32")
        with open_engine(target, spec) as engine:
            model = Model.of(engine)
            assert [one.batch_axis for one in model.inputs] == [0, None, None]
            prepared = OpenVocabulary(opt).bind(model).prepare(paths)
            arrays = bound(OpenVocabulary, model).collate([prepared])
            assert arrays[1].shape == ((4, 16) if dims else (2, 16))
            answers.append(OpenVocabulary(opt).bind(model).decode(engine(list(arrays)), prepared.contexts))
    for mine, other in zip(*answers, strict=True):
        assert len(mine.scores) > 0
        assert set(mine.classes.tolist()) <= {0, 1}
        np.testing.assert_allclose(mine.scores, other.scores, rtol=1e-3)
        np.testing.assert_allclose(mine.boxes, other.boxes, atol=0.05)


def test_queries(tmp_path: Path) -> None:
    made, (path, *_) = detector("owlvit", "random"), image_files(tmp_path)
    model = described(made)
    with pytest.raises(ConfigError, match='--queries "a cat'):
        bound(OpenVocabulary, model).prepare([path])
    with pytest.raises(ConfigError, match=r"22 tokens, m\.onnx takes 16"):
        bound(OpenVocabulary, model, queries=["cat " * 20]).prepare([path])
    with pytest.raises(ConfigError, match="text 1 is empty"):
        bound(OpenVocabulary, model, queries=["cat", " "]).prepare([path])
    planned = replace(model, dims={"queries": (1, 2)})
    assert bound(OpenVocabulary, planned, queries=["cat", "cup"]).prepare([path]).arrays[1].shape == (2, 16)
    with pytest.raises(ConfigError, match=r"3 queries, .*--dim queries=3"):
        bound(OpenVocabulary, planned, queries=QUERIES).prepare([path])
    bare = replace(model, metadata={key: text for key, text in model.metadata.items() if key != "tokenizer"})
    with pytest.raises(ModelError, match="export it with --tokenizer"):
        bound(OpenVocabulary, bare, queries=QUERIES).prepare([path])
    broken = replace(model, metadata={**model.metadata, "tokenizer": "{}"})
    with pytest.raises(ModelError, match="its tokenizer cannot be read"):
        bound(OpenVocabulary, broken, queries=QUERIES).prepare([path])
    with pytest.raises(ConfigError, match=r"--template .*\{\}"):
        bound(OpenVocabulary, None, template="a photo").check()


def test_queries_default_to_the_data_sets_classes(tmp_path: Path) -> None:
    (path, *_) = image_files(tmp_path)
    images = [{"id": 1, "file_name": path.name, "width": 150, "height": 100}]
    objects = [{"id": 1, "image_id": 1, "category_id": 7, "bbox": [1, 2, 30, 40]}]
    names = [{"id": 7, "name": "cup"}, {"id": 9, "name": "cat"}]
    (tmp_path / "val.json").write_text(json.dumps({"images": images, "annotations": objects, "categories": names}))
    task = bound(OpenVocabulary, described(detector("owlvit", "random")))
    dataset = task.load({"data": tmp_path})
    assert (task.labels, task.options.queries) == (["cup", "cat"], None)
    assert pickle.loads(pickle.dumps(task)).labels == ["cup", "cat"]  # noqa: S301 - as in another process
    prepared = task.prepare([path])
    assert prepared.arrays[1][:, :6].tolist() == [[1, 3, 4, 5, 3, 7], [1, 3, 4, 5, 3, 6]]  # a photo of a ...
    metric = task.metric(dataset)
    logits, boxes = np.full((1, 36, 2), -9, np.float32), np.full((1, 36, 4), 0.5, np.float32)
    boxes[0, 0], logits[0, 0, 0] = [16 / 150, 22 / 100, 30 / 150, 40 / 100], 3
    found = task.decode([logits, boxes], prepared.contexts)
    metric.update(found, dataset.targets, prepared.contexts)
    assert metric.compute() == pytest.approx(1.0)
    assert task.show(path, found[0]).answer[0]["label"] == "cup"


def test_export_settings_of_a_detector_are_omitted() -> None:
    model = described(detector("owlvit", "random"))
    task = bound(OpenVocabulary, model, queries=QUERIES)
    assert (task.writes, task.export_settings, task.has_reference(), task.template) == ("", (), False, None)
    assert task.diagnostics() is None
    assert Detection.has_reference()
    assert {flag.key for flag in OpenVocabulary.flags} - {flag.key for flag in Detection.flags} == {
        "queries",
        "template",
    }


def test_legacy_task_supports_replace(tmp_path: Path) -> None:
    """A script's own ``decode`` gets model and options; what it leaves is the task's, with its state."""

    def first(outputs: Any, contexts: Any, model: Any, opt: Any) -> list[str]:
        return [opt.script] * len(contexts)

    made = task_class(replace(OPEN_VOCABULARY, name="first", decode=first))
    task = made(options(made, "single", queries=QUERIES)).bind(described(detector("owlvit", "random")))
    prepared = task.prepare(image_files(tmp_path))
    assert task.labels == QUERIES
    assert task.decode(None, prepared.contexts) == ["single"] * 3
