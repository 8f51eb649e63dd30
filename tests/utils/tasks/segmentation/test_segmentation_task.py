"""Segmentation from data to metric: the template's model, the input as torchvision makes it, decode, answers, flags."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from constructed_models import NAME, bound, described, evaluated, opened, options, written
from PIL import Image
from sklearn.metrics import jaccard_score

from engine import ConfigError, DataError, InputError, ModelError, TensorSpec
from utils.datasets.image.masks import Labelled, MaskFile
from utils.postprocess.image.class_maps import View
from utils.tasks.model import Model
from utils.tasks.segmentation.input import short_side
from utils.tasks.segmentation.task import SHOWN, Context, Segmentation

FLOAT = np.dtype(np.float32)
LABELS = '["background", "cat", "dog"]'
PLAIN = {"mean": [0, 0, 0], "std": [1, 1, 1], "resize_shape": 40, "crop_shape": [32, 64]}


def model(shape: tuple[int | None, ...] = (None, 3, 32, 64), **notes: Any) -> Model:
    """Return a model with an input of this shape, three classes, and what its export stored."""
    symbols = tuple(None if size else name for size, name in zip(shape, "NCHW", strict=True))
    kept = {"preprocess": json.dumps(PLAIN), "class_labels": LABELS, "segmentation": json.dumps(notes)}
    spec = TensorSpec("input", FLOAT, shape, symbols=symbols)
    return Model(Path("m.onnx"), (spec,), (TensorSpec("logits", FLOAT, (None, 3, None, None)),), metadata=kept)


def photograph(path: Path, width: int = 97, height: int = 61) -> Path:
    """Write an image of smooth and sharp parts."""
    rows, columns = np.mgrid[:height, :width]
    waves = [127 + 120 * np.sin(rows / 5 + channel) * np.cos(columns / (3 + channel)) for channel in range(3)]
    Image.fromarray(np.stack(waves, axis=-1).astype(np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(Segmentation, tmp_path_factory.mktemp("segmentation"))


@pytest.mark.parametrize("target", ["onnx", "sdaa"])
@pytest.mark.parametrize("file", ["_dyn", "_float16_dyn"])
def test_the_constructed_model_finds_the_discs(tiny: Path, target: str, file: str) -> None:
    with opened(tiny / f"{NAME}{file}.onnx", target) as engine:
        known = described(engine)
        metric, predictions = evaluated(Segmentation, engine, known, tiny / "data", options(Segmentation))
        at_model = options(Segmentation, evaluate_at="model")
        inside, smaller = evaluated(Segmentation, engine, known, tiny / "data", at_model)
    assert 0.9 < metric.compute() < 1.0
    assert list(metric.per_class()) == ["background", "red", "green", "blue"]
    masks = [np.asarray(Image.open(path)) for path in sorted((tiny / "data" / "masks").iterdir())]
    assert [one.shape for one in predictions] == [one.shape for one in masks]
    real, found = (np.concatenate([one.ravel() for one in ones]) for ones in (masks, predictions))
    assert metric.compute() == pytest.approx(jaccard_score(real, found, average="macro"), abs=1e-12)
    assert {one.shape for one in smaller} == {(64, 64), (43, 64), (48, 64)}
    assert inside.compute() == pytest.approx(metric.compute(), abs=0.05)


def test_images_one_by_one_are_the_batch(tiny: Path) -> None:
    with opened(tiny / f"{NAME}_dyn.onnx", "onnx") as engine:
        known = described(engine)
    opt = options(Segmentation)
    samples = Segmentation(opt).load({"data": tiny / "data"}).batch(range(5)).samples
    whole = Segmentation(opt).bind(known).prepare(samples)
    parts = [Segmentation(opt).bind(known).prepare([sample]) for sample in samples]
    np.testing.assert_array_equal(bound(Segmentation, known).collate(parts)[0], whole.arrays[0])
    again = Segmentation(opt).bind(known).prepare(samples, out=np.empty_like(whole.arrays[0]))
    np.testing.assert_array_equal(again.arrays[0], whole.arrays[0])


# ----------------------------------------------------------------------------------------------------------- the input


def test_the_input_is_torchvisions(tmp_path: Path) -> None:
    """Bit for bit that of ``SemanticSegmentation`` for PIL images; --resize short_side and a free input."""
    if find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    from utils.export.networks.torchvision_models import import_torchvision

    import_torchvision()
    from torchvision.transforms._presets import SemanticSegmentation

    free = model((None, 3, None, None), resize="short_side")
    for width, height in ((97, 61), (61, 97), (500, 333), (40, 40)):
        path = photograph(tmp_path / f"{width}.png", width, height)
        (found,) = bound(Segmentation, free).prepare([path]).arrays[0]
        preset = SemanticSegmentation(resize_size=40, mean=(0, 0, 0), std=(1, 1, 1))
        np.testing.assert_array_equal(found, preset(Image.open(path)).numpy())
        assert found.shape[1:] == short_side(height, width, 40)
        metadata = {**free.metadata, "preprocess": json.dumps({"resize_shape": 40})}
        (found,) = bound(Segmentation, replace(free, metadata=metadata)).prepare([path]).arrays[0]
        wanted = SemanticSegmentation(resize_size=40)(Image.open(path)).numpy()
        np.testing.assert_array_equal(found, wanted)


def test_resize_modes(tmp_path: Path) -> None:
    path = photograph(tmp_path / "a.png")
    fixed, free = model(), model((None, 3, None, None), resize="short_side", multiple=16)

    def view(known: Model, **given: Any) -> View:
        (context,) = bound(Segmentation, known, **given).prepare([path]).contexts or ()
        return context.view

    assert view(fixed) == View((61, 97), (0, 0), (32, 64), (32, 64))
    assert view(fixed, resize="letterbox") == View((61, 97), (0, 6), (32, 51), (32, 64))
    assert view(model(resize="letterbox")).extent == (32, 51)
    assert view(fixed, resize="keep") == View((61, 97), (0, 0), (61, 97), (61, 97))
    assert view(free) == View((61, 97), (0, 0), (40, 63), (48, 64))
    assert view(free, short_side=20).extent == (20, 31)
    assert view(free, input_size=[24]).canvas == (24, 24)
    assert view(free, resize="keep", input_size=[24]).canvas == (64, 112)
    array = bound(Segmentation, fixed, resize="letterbox").prepare([path]).arrays[0][0]
    assert np.allclose(array[:, :, :6], 114 / 255)
    assert np.allclose(array[:, :, 57:], 114 / 255)
    assert not np.allclose(array[:, :, 6:57], 114 / 255)


def test_images_of_several_sizes_share_a_batch(tmp_path: Path) -> None:
    """Padding goes to the right and below, and does not show in the answer."""
    paths = [photograph(tmp_path / "a.png", 90, 60), photograph(tmp_path / "b.png", 60, 90)]
    free = model((None, 3, None, None), resize="short_side")
    parts = bound(Segmentation, free).prepare(paths)
    (array,) = bound(Segmentation, free).collate([parts])
    assert array.shape == (2, 3, 60, 60)
    assert not array[0, :, 40:].any()
    halves = array[:, :, ::2, ::2]
    together = bound(Segmentation, free).decode(halves, parts.contexts)
    for place, path in enumerate(paths):
        alone = bound(Segmentation, free).prepare([path])
        (one,) = bound(Segmentation, free).collate([alone])
        (answer,) = bound(Segmentation, free).decode(one[:, :, ::2, ::2], alone.contexts)
        np.testing.assert_array_equal(together[place], answer)
    planned = replace(free, dims={"H": (48, 96), "W": (64,)})
    (padded,) = bound(Segmentation, planned).collate([parts])
    assert padded.shape == (2, 3, 96, 64)
    again = bound(Segmentation, planned).decode(padded[:, :, ::2, ::2], parts.contexts)
    for one, two in zip(again, together, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    ("shape", "given", "said"),
    [
        ((None, 3, None, None), {}, "--input_size, or --resize short_side"),
        ((None, 4, 8, 8), {}, "N x C x H x W"),
    ],
)
def test_unknown_sizes(shape: tuple[int | None, ...], given: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        bound(Segmentation, model(shape), **given).prepare([photograph(tmp_path / "a.png")])


# ------------------------------------------------------------------------------------------------------------ the truth


def labelled(folder: Path, values: np.ndarray, code: str = "index") -> Labelled:
    photograph(folder / "a.png", values.shape[1], values.shape[0])
    Image.fromarray(values).save(folder / "m.png")
    return Labelled(folder / "a.png", MaskFile(folder / "m.png", code))


def test_masks_are_read_with_the_image(tmp_path: Path) -> None:
    values = np.array([[0, 1, 2, 255]] * 3, np.uint8)
    (context,) = bound(Segmentation, model()).prepare([labelled(tmp_path, values)]).contexts or ()
    assert context.truth is not None
    assert context.truth.tolist() == [[0, 1, 2, -1]] * 3
    at_model = options(Segmentation, evaluate_at="model")
    (context,) = Segmentation(at_model).bind(model()).prepare([labelled(tmp_path, values)]).contexts or ()
    assert context.view.size == (32, 64)
    wanted = np.asarray(Image.fromarray(values).resize((64, 32), Image.Resampling.NEAREST)).astype(int)
    assert context.truth.tolist() == np.where(wanted == 255, -1, wanted).tolist()


def test_classes_that_the_model_does_not_have(tmp_path: Path) -> None:
    values = np.array([[0, 1, 3]] * 2, np.uint8)
    with pytest.raises(DataError, match=r"m\.png: class 3 .*2,0 .*m\.onnx"):
        bound(Segmentation, model()).prepare([labelled(tmp_path, values)])


def test_categories_are_found_by_name(tmp_path: Path) -> None:
    photograph(tmp_path / "a.jpg", 8, 4)
    square = [[0, 0, 4, 0, 4, 4, 0, 4]]
    content = {
        "images": [{"id": 1, "file_name": "a.jpg"}],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "airplane"}],
        "annotations": [{"image_id": 1, "category_id": 2, "segmentation": square}],
    }
    (tmp_path / "val.json").write_text(json.dumps(content))

    def truth(known: Model, **given: Any) -> set[int]:
        opt = options(Segmentation, **given)
        dataset = Segmentation(opt).load({"data": tmp_path})
        (context,) = Segmentation(opt).bind(known).prepare(dataset.batch([0]).samples).contexts or ()
        return set(context.truth.ravel().tolist())

    def with_labels(*labels: str) -> Model:
        return replace(model(), metadata={**model().metadata, "class_labels": json.dumps(labels)})

    assert truth(with_labels("background", "aeroplane", "cat")) == {0, 1}
    assert truth(with_labels("airplane", "x", "cat")) == {0, -1}
    with pytest.raises(ConfigError, match=r"category 'airplane' .* 3 labels.*--unlisted background"):
        truth(with_labels("background", "cat", "dog"))
    assert truth(with_labels("background", "cat", "dog"), unlisted="background") == {0}
    assert truth(with_labels("background", "cat", "dog"), unlisted="ignore") == {0, -1}
    assert truth(replace(model(), metadata={"preprocess": json.dumps(PLAIN)})) == {0, 2}


# --------------------------------------------------------------------------------------------------------------- decode


def contexts(*sizes: tuple[int, int]) -> list[Context]:
    return [Context(View(size, (0, 0), (32, 64), (32, 64))) for size in sizes]


def test_every_kind_of_output() -> None:
    opt = options(Segmentation)
    scores = np.zeros((2, 3, 4, 8), np.float32)
    scores[:, 2, :, 4:] = 1
    found = Segmentation(opt).bind(model()).decode(scores, contexts((8, 16), (4, 8)))
    assert [one.shape for one in found] == [(8, 16), (4, 8)]
    assert found[1].tolist() == [[0] * 4 + [2] * 4] * 4
    whole = np.where(scores[:, 2] > 0, 2, 0)
    for array in (whole, whole[:, None], whole.astype(np.uint8)):
        assert Segmentation(opt).bind(model()).decode(array, contexts((4, 8), (8, 16)))[0].tolist() == whole[0].tolist()
    binary = np.where(whole[:, None] > 0, 0.5, -0.5).astype(np.float32)
    two = replace(model(), metadata={"class_labels": '["background", "cat"]'})
    assert (
        Segmentation(opt).bind(two).decode(binary, contexts((4, 8), (4, 8)))[0].tolist()
        == (whole[0] > 0).astype(int).tolist()
    )
    sure = options(Segmentation, threshold=0.7)
    assert not Segmentation(sure).bind(two).decode(binary, contexts((4, 8), (4, 8)))[0].any()
    with pytest.raises(ModelError, match="3 labels"):
        Segmentation(opt).bind(model()).decode(binary, contexts((4, 8), (4, 8)))
    several = replace(model(), outputs=(TensorSpec("aux", FLOAT, (None,)), TensorSpec("out", FLOAT, (None,))))
    assert (
        Segmentation(opt).bind(several).decode([binary, scores], contexts((4, 8), (4, 8)))[1].tolist()
        == found[1].tolist()
    )


@pytest.mark.parametrize(
    "array", [np.zeros((1, 4, 8)), np.zeros((2, 3, 4, 8)), np.zeros((1, 3)), np.zeros((1, 2, 4, 8), int)]
)
def test_outputs_of_another_shape(array: np.ndarray) -> None:
    with pytest.raises(InputError, match="C x h x w"):
        bound(Segmentation, model()).decode(array, contexts((4, 8)))


# -------------------------------------------------------------------------------------------------------------- answers


def test_answers(tmp_path: Path) -> None:
    path = photograph(tmp_path / "a.png", 8, 4)
    classes = np.array([[0, 0, 0, 0, 2, 2, 1, -1]] * 4, np.int16)
    artifact = bound(Segmentation, model(), "single").show(path, classes)
    assert artifact.text == "3 classes: background 50.0 %, dog 25.0 %, cat 12.5 %"
    assert artifact.answer["classes"][1] == {"class": 2, "label": "dog", "pixels": 8, "share": 0.25}
    assert "mask" not in artifact.answer
    assert artifact.save is not None
    saved = artifact.save(tmp_path / "out")
    assert saved == tmp_path / "out" / "a.png"
    assert np.asarray(Image.open(saved)).shape[1] >= 320
    with Image.open(artifact.answer["mask"]) as mask:
        assert mask.mode == "P"
        assert np.asarray(mask).tolist() == np.where(classes < 0, 255, classes).tolist()
        assert mask.getpalette()[:6] == [0, 0, 0, 128, 0, 0]
    again = MaskFile(Path(artifact.answer["mask"]), "voc").read((4, 8))
    assert again.tolist() == classes.tolist()
    assert json.loads(json.dumps(artifact.answer)) == artifact.answer
    one = bound(Segmentation, replace(model(), metadata={})).show(path, classes[:, :2])
    assert one.text == "1 class: 0 100.0 %"
    many = np.arange(SHOWN + 4, dtype=np.int16)[None]
    text = bound(Segmentation, replace(model(), metadata={})).show(path, many).text
    assert text.endswith(", and 4 more")
    with pytest.raises(ModelError, match=r"3 labels .*class 11"):
        bound(Segmentation, model()).show(path, many)
    assert bound(Segmentation, model()).summary([classes, classes]) == "background 57.1 %, dog 28.6 %, cat 14.3 %"


def test_the_drawn_classes_have_their_colours_and_the_background_none(tmp_path: Path) -> None:
    Image.new("RGB", (400, 100), (90, 90, 90)).save(tmp_path / "a.png")
    classes = np.zeros((100, 400), np.int16)
    classes[:, 100:200], classes[:, 200:300] = 1, 2
    for labels, empty in ((LABELS, True), ('["road", "cat", "dog"]', False)):
        known = replace(model(), metadata={**model().metadata, "class_labels": labels})
        artifact = bound(Segmentation, known).show(tmp_path / "a.png", classes)
        assert artifact.save is not None
        drawn = np.asarray(Image.open(artifact.save(tmp_path / labels[2:5])))[50]
        assert (drawn[50].tolist() == [90, 90, 90]) is empty
        assert len({tuple(drawn[column].tolist()) for column in (50, 150, 250)}) == 3
        assert drawn[350].tolist() == drawn[50].tolist()


def test_more_classes_than_a_palette_has(tmp_path: Path) -> None:
    path = photograph(tmp_path / "a.png", 8, 4)
    artifact = bound(Segmentation, replace(model(), metadata={})).show(path, np.full((4, 8), 300, np.int16))
    assert artifact.save is not None
    artifact.save(tmp_path / "out")
    assert (np.asarray(Image.open(artifact.answer["mask"])) == 300).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"input_size": [1, 2, 3]}, "--input_size"),
        ({"input_size": [0]}, "--input_size"),
        ({"short_side": 0}, "--short_side 0"),
        ({"threshold": 1.0}, "--threshold 1.0"),
    ],
)
def test_invalid_flags(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        bound(Segmentation, None, **given).check()


def test_sizes() -> None:
    assert bound(Segmentation, None).input_size() is None
    assert bound(Segmentation, None, input_size=[8]).input_size() == ((None, 3, 8, 8),)
    assert bound(Segmentation, None, input_size=8).input_size() == ((None, 3, 8, 8),)
