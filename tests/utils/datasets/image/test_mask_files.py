"""Layouts of masks, meaning of their pixels, and invalid masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image
from pycocotools.coco import COCO

from engine import ConfigError, DataError, TecoInferError
from utils.datasets.image.mask_codes import (
    ADE20K,
    BINARY,
    BORDER,
    CITYSCAPES,
    CITYSCAPES_CODE,
    IGNORED,
    INDEX,
    VOC,
    VOC_CLASSES,
    read_mask,
)
from utils.datasets.image.masks import Labelled, MaskedImages, Reading, load_masks
from utils.palette import palette

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # in pycocotools

SIZE = (4, 6)


def write_image(path: Path, size: tuple[int, int] = SIZE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size[::-1], (10, 20, 30)).save(path)
    return path


def mask(path: Path, values: Any, mode: str | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(np.asarray(values))
    if mode == "P":
        image = image.convert("L")
        image.putpalette([level for colour in palette() for level in colour])
    image.save(path)
    return path


def filled(value: int, dtype: type = np.uint8) -> np.ndarray:
    return np.full(SIZE, value, dtype)


def classes(found: MaskedImages, place: int = 0) -> np.ndarray:
    sample = found.samples[place]
    assert isinstance(sample, Labelled)
    return sample.truth.read(SIZE)


def test_the_palette_is_vocs() -> None:
    colours = palette()
    assert colours[:4] == [(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0)]
    assert colours[20] == (0, 64, 128)
    assert colours[255] == BORDER
    assert len(set(colours)) == 256


@pytest.mark.parametrize("mode", ["P", "L", "RGB", "RGBA", "LA"])
def test_vocs_masks_as_indices_and_as_colours(mode: str, tmp_path: Path) -> None:
    values = np.array([[0, 1, 20], [255, 15, 15]], np.uint8)
    image = Image.fromarray(values)
    if mode == "P":
        image.putpalette([level for colour in palette() for level in colour])
    elif mode in ("RGB", "RGBA"):
        image = Image.fromarray(np.array(palette(), np.uint8)[values]).convert(mode)
    else:
        image = image.convert(mode)
    image.save(tmp_path / "m.png")
    wanted = [[0, 1, 20], [IGNORED, 15, 15]]
    found = read_mask(tmp_path / "m.png", VOC, 255, (2, 3))
    assert found.tolist() == wanted
    assert found.dtype == np.int16
    if mode not in ("RGB", "RGBA"):
        assert read_mask(tmp_path / "m.png", INDEX, 255, (2, 3)).tolist() == wanted
    else:
        with pytest.raises(DataError, match=r"--data_format voc"):
            read_mask(tmp_path / "m.png", INDEX, 255, (2, 3))


def test_codes_of_known_data_sets(tmp_path: Path) -> None:
    ids = mask(tmp_path / "ids.png", np.array([[7, 33, 0], [255, 26, 9]], np.uint8))
    assert read_mask(ids, CITYSCAPES_CODE, 255, (2, 3)).tolist() == [[0, 18, -1], [-1, 13, -1]]
    assert len(CITYSCAPES) == 19
    shifted = mask(tmp_path / "ade.png", np.array([[0, 1, 150]], np.uint8))
    assert read_mask(shifted, ADE20K, 255, (1, 3)).tolist() == [[-1, 0, 149]]
    two = mask(tmp_path / "two.png", np.array([[0, 255, 1]], np.uint8))
    assert read_mask(two, BINARY, 255, (1, 3)).tolist() == [[0, 1, 1]]
    grey = mask(tmp_path / "grey.png", np.repeat(np.array([[[3], [255]]], np.uint8), 3, axis=2))
    assert read_mask(grey, INDEX, 255, (1, 2)).tolist() == [[3, -1]]
    bits = mask(tmp_path / "bits.png", np.array([[True, False]]))
    assert read_mask(bits, INDEX, 255, (1, 2)).tolist() == [[1, 0]]
    deep = mask(tmp_path / "deep.png", np.array([[300, 65535, 255]], np.uint16))
    assert read_mask(deep, INDEX, 65535, (1, 3)).tolist() == [[300, -1, 255]]


@pytest.mark.parametrize(
    ("values", "code", "message"),
    [
        (np.zeros((3, 4), np.uint8), INDEX, r"4x3 pixels.* 6x4"),
        (filled(40000, np.uint16), INDEX, "40000 is not a class number"),
        (filled(34), CITYSCAPES_CODE, r"level 34 at 0,0 \(column, row\) is not in --data_format cityscapes"),
        (filled(151), ADE20K, "level 151 at 0,0"),
        (filled(7), BINARY, "level 7"),
        (np.full((*SIZE, 3), (1, 2, 3), np.uint8), VOC, r"colour \(1, 2, 3\) at 0,0 .* 24 pixels in all"),
        (np.full((*SIZE, 3), (1, 2, 3), np.uint8), INDEX, "a colour image"),
    ],
)
def test_invalid_masks(values: np.ndarray, code: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_mask(mask(tmp_path / "m.png", values), code, 255, SIZE)
    assert "\n" not in str(error.value)


def test_files_that_are_not_masks(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="this mask does not exist"):
        read_mask(tmp_path / "none.png", INDEX, 255, SIZE)
    (tmp_path / "text.png").write_text("no")
    with pytest.raises(DataError, match="read as a mask"):
        read_mask(tmp_path / "text.png", INDEX, 255, SIZE)
    whole = mask(tmp_path / "m.png", filled(1)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2 + 8])
    with pytest.raises(DataError, match="read as a mask"):
        read_mask(tmp_path / "cut.png", INDEX, 255, SIZE)
    Image.fromarray(np.zeros(SIZE, np.float32)).save(tmp_path / "f.tiff")
    with pytest.raises(DataError, match="mode F"):
        read_mask(tmp_path / "f.tiff", INDEX, 255, SIZE)


def test_two_folders(tmp_path: Path) -> None:
    for name in ("a.jpg", "b.png", "lone.jpg", "deep/c.jpg"):
        write_image(tmp_path / "images" / name)
    for name, value in (("a.png", 1), ("b_mask.png", 2), ("deep/c.png", 3), ("lonely.png", 4)):
        mask(tmp_path / "masks" / name, filled(value))
    found = load_masks({"data": tmp_path})
    assert [Path(name).name for name in found.names] == ["a.jpg", "b.png", "c.jpg"]
    assert [int(classes(found, i).max()) for i in range(3)] == [1, 2, 3]
    reasons = {one.path.name: one.reason for one in found.rejected}
    assert "lone.png does not exist" in reasons["lone.jpg"]
    assert "has no image lonely" in reasons["lonely.png"]
    both = load_masks({"images": tmp_path / "images", "masks": tmp_path / "masks"})
    assert both.names == found.names
    assert found.targets is not None


def test_masks_next_to_images(tmp_path: Path) -> None:
    write_image(tmp_path / "a.jpg")
    mask(tmp_path / "a.png", filled(1))
    write_image(tmp_path / "b.png")
    mask(tmp_path / "b_mask.png", filled(2))
    write_image(tmp_path / "c.png")
    found = load_masks({"data": tmp_path})
    assert [Path(name).name for name in found.names] == ["a.jpg", "b.png"]
    assert classes(found, 1).max() == 2
    assert [(one.path.name, one.reason) for one in found.rejected] == [("c.png", "it has no mask next to it")]


@pytest.mark.parametrize("below", ["", "VOC2012", "VOCdevkit/VOC2012"])
def test_vocs_devkit(below: str, tmp_path: Path) -> None:
    root = tmp_path / below
    write_image(root / "JPEGImages" / "2007_1.jpg")
    write_image(root / "JPEGImages" / "2007_2.jpg")
    mask(root / "SegmentationClass" / "2007_1.png", filled(15), "P")
    lists = root / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    (lists / "val.txt").write_text("2007_1\n2007_2\n2007_3\n")
    (lists / "train.txt").write_text("2007_2\n")
    found = load_masks({"data": tmp_path})
    assert len(found) == 1
    assert classes(found).tolist() == filled(15).tolist()
    assert [one.reason for one in found.rejected] == [
        f"its mask {root / 'SegmentationClass' / '2007_2.png'} does not exist",
        "it does not exist but is listed",
    ]
    with pytest.raises(DataError, match="no image with a mask"):
        load_masks({"data": tmp_path}, Reading(split="train"))
    with pytest.raises(DataError, match=r"test.txt cannot be read.*another --split"):
        load_masks({"data": tmp_path}, Reading(split="test"))


def test_cityscapes(tmp_path: Path) -> None:
    for city, number, ending in (("ulm", 0, "labelIds"), ("bonn", 1, "labelTrainIds")):
        stem = f"{city}/{city}_00000{number}_000019"
        write_image(tmp_path / "leftImg8bit" / "val" / f"{stem}_leftImg8bit.png")
        mask(tmp_path / "gtFine" / "val" / f"{stem}_gtFine_{ending}.png", filled(26 if number == 0 else 13))
    found = load_masks({"data": tmp_path})
    assert [Path(name).parent.name for name in found.names] == ["bonn", "ulm"]
    assert [int(classes(found, i).max()) for i in range(2)] == [13, 13]


def test_ade20k(tmp_path: Path) -> None:
    for part in ("training", "validation"):
        write_image(tmp_path / "images" / part / "ADE_1.jpg")
        mask(tmp_path / "annotations" / part / "ADE_1.png", filled(150))
    assert classes(load_masks({"data": tmp_path})).max() == 149
    assert "training" in load_masks({"data": tmp_path}, Reading(split="train")).names[0]
    plain = load_masks({"data": tmp_path}, Reading(data_format="index"))
    assert classes(plain).max() == 150


def test_images_without_masks(tmp_path: Path) -> None:
    write_image(tmp_path / "a.jpg")
    (tmp_path / "LICENSES.md").write_text("free")
    (tmp_path / "a.mp3").write_text("noise")
    found = load_masks({"data": tmp_path})
    assert found.targets is None
    assert [one.path.name for one in found.rejected] == ["a.mp3"]
    assert found.batch([0]).samples == [tmp_path / "a.jpg"]
    assert load_masks({"data": tmp_path / "a.jpg"}).names == [str(tmp_path / "a.jpg")]
    with pytest.raises(DataError, match="does not exist"):
        load_masks({"data": tmp_path / "none"})
    with pytest.raises(ConfigError, match="images=FOLDER masks=FOLDER"):
        load_masks({"left": tmp_path})


def test_fingerprint_covers_masks_and_reading_options(tmp_path: Path) -> None:
    write_image(tmp_path / "one" / "images" / "a.jpg")
    path = mask(tmp_path / "one" / "masks" / "a.png", filled(1))
    first = load_masks({"data": tmp_path / "one"}).fingerprint()
    assert load_masks({"data": tmp_path / "one"}).fingerprint() == first
    assert load_masks({"data": tmp_path / "one"}, Reading(ignore=0)).fingerprint() != first
    (tmp_path / "one").rename(tmp_path / "two")
    moved = load_masks({"data": tmp_path / "two"})
    assert moved.fingerprint() == first
    mask(tmp_path / "two" / "masks" / path.name, np.eye(*SIZE, dtype=np.uint8))
    assert moved.fingerprint() != first


def coco(folder: Path, annotations: list[dict[str, Any]], **more: Any) -> Path:
    """Write a file with one image of 4 x 6, categories cat (7) and dog (3), and the given annotations."""
    write_image(folder / "a.jpg")
    image = {"id": 1, "file_name": "a.jpg", "height": SIZE[0], "width": SIZE[1], **more}
    numbered = [{"id": i, "image_id": 1, "iscrowd": 0, **one} for i, one in enumerate(annotations, start=1)]
    categories = [{"id": 7, "name": "cat"}, {"id": 3, "name": "dog"}]
    content = {"images": [image], "annotations": numbered, "categories": categories}
    path = folder / "instances.json"
    path.write_text(json.dumps(content))
    return path


def square(left: float, top: float, side: float) -> list[float]:
    return [left, top, left + side, top, left + side, top + side, left, top + side]


LARGE = {"category_id": 7, "segmentation": [square(0, 0, 4)]}
SMALL = {"category_id": 3, "segmentation": [square(2, 2, 2)]}
RUNS = {"category_id": 3, "segmentation": {"counts": [20, 4], "size": list(SIZE)}, "iscrowd": 1}


def test_cocos_regions_become_classes(tmp_path: Path) -> None:
    found = load_masks({"data": coco(tmp_path, [SMALL, LARGE, RUNS])})
    truth = found.samples[0].truth  # type: ignore[union-attr]
    assert truth.classes == ("background", "dog", "cat")
    known = classes(found)
    assert known[0].tolist() == [2, 2, 2, 2, 0, 1]
    assert known[3].tolist() == [2, 2, -1, -1, 0, 1]
    last = classes(load_masks({"data": tmp_path}, Reading(overlap="last")))
    assert last[3].tolist() == [2, 2, 2, 2, 0, 1]
    smallest = classes(load_masks({"data": tmp_path}, Reading(overlap="smallest")))
    assert smallest[3].tolist() == [2, 2, 1, 1, 0, 1]


def test_cocos_regions_are_those_of_pycocotools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    annotations = []
    for _ in range(6):
        corners = [rng.uniform(-2, 8, 2 * int(rng.integers(3, 7))).round(2).tolist() for _ in range(2)]
        annotations.append({"category_id": int(rng.choice([3, 7])), "segmentation": corners})
    file = coco(tmp_path, annotations)
    known = COCO(str(file))
    wanted = np.zeros(SIZE, int)
    for one in known.loadAnns(known.getAnnIds()):
        wanted[known.annToMask(one).astype(bool)] = {3: 1, 7: 2}[one["category_id"]]
    assert classes(load_masks({"data": file}, Reading(overlap="last"))).tolist() == wanted.tolist()


def test_cocos_own_folders(tmp_path: Path) -> None:
    file = coco(tmp_path / "val2017", [LARGE])
    (tmp_path / "annotations").mkdir()
    moved = file.rename(tmp_path / "annotations" / "instances_val2017.json")
    assert load_masks({"data": moved}).names == [str(tmp_path / "val2017" / "a.jpg")]
    assert len(load_masks({"images": tmp_path / "val2017", "masks": moved})) == 1


@pytest.mark.parametrize(
    ("annotation", "message"),
    [
        ({"segmentation": [[1, 1, 2, 2]]}, r"annotations\[0\]: its polygon has 4 numbers"),
        ({"segmentation": []}, "a list of polygons or an RLE"),
        ({}, "a list of polygons or an RLE"),
        ({"segmentation": {"counts": [1, 2], "size": list(SIZE)}}, "covers 3 pixels.*6x4 = 24"),
        ({"segmentation": {"counts": [24], "size": [6, 4]}}, r"size \[6, 4\].* \[4, 6\]"),
        ({"segmentation": {"size": [4, 6]}}, "RLE has no counts"),
        ({"segmentation": {"counts": "zz", "size": [4, 6]}}, "invalid character"),
    ],
)
def test_invalid_regions(annotation: dict[str, Any], message: str, tmp_path: Path) -> None:
    found = load_masks({"data": coco(tmp_path, [{"category_id": 7, **annotation}])})
    with pytest.raises(DataError, match=message) as error:
        classes(found)
    assert "\n" not in str(error.value)


def test_an_invalid_annotation_rejects_only_its_image(tmp_path: Path) -> None:
    file = coco(tmp_path, [LARGE])
    content = json.loads(file.read_text())
    write_image(tmp_path / "b.jpg")
    content["images"] += [{"id": 2, "file_name": "b.jpg"}, {"id": 3, "file_name": "gone.jpg"}]
    content["annotations"] += [
        {"image_id": 2, "category_id": 99, "segmentation": [square(0, 0, 2)]},
        {"image_id": 77, "category_id": 7, "segmentation": [square(0, 0, 2)]},
    ]
    file.write_text(json.dumps(content))
    found = load_masks({"data": file})
    assert len(found) == 1
    reasons = [f"{one.path.name}: {one.reason}" for one in found.rejected]
    assert any("annotations[2]: image_id 77" in reason for reason in reasons)
    assert any("b.jpg" in reason and "category_id 99" in reason for reason in reasons)
    assert any("gone.jpg: it does not exist" in reason for reason in reasons)


def test_files_that_are_not_cocos(tmp_path: Path) -> None:
    file = coco(tmp_path, [LARGE])
    file.write_text(file.read_text()[:-40])
    with pytest.raises(DataError, match="is not JSON"):
        load_masks({"data": file})
    with pytest.raises(DataError, match=r"9x9 pixels.*6x4"):
        classes(load_masks({"data": coco(tmp_path, [LARGE], height=9, width=9)}))
    with pytest.raises(DataError, match="leaves the data folder"):
        load_masks({"data": coco(tmp_path, [LARGE], file_name="../a.jpg")})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.sampled_from(["counts", "size", "x"]), inner),
    max_leaves=12,
)


@settings(deadline=None, max_examples=60)
@given(VALUES, st.sampled_from(["segmentation", "category_id", "image_id", "file_name", "height", "id", "name"]))
def test_any_json_is_read_or_a_data_error(tmp_path_factory: pytest.TempPathFactory, value: Any, key: str) -> None:
    folder = tmp_path_factory.mktemp("fuzz", numbered=True)
    file = coco(folder, [LARGE, SMALL])
    content = json.loads(file.read_text())
    for part in ("images", "annotations", "categories"):
        if key in content[part][0]:
            content[part][0][key] = value
    file.write_text(json.dumps(content))
    message = ""
    try:
        found = load_masks({"data": file})
        for place in range(len(found)):
            assert classes(found, place).shape == SIZE
    except TecoInferError as error:
        message = str(error)
    assert "\n" not in message


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=40), st.integers(0, 200), st.sampled_from([INDEX, VOC, CITYSCAPES_CODE]))
def test_any_mask_file_is_read_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, place: int, code: Any
) -> None:
    path = mask(tmp_path_factory.mktemp("fuzz", numbered=True) / "m.png", filled(1), "P")
    data = path.read_bytes()
    path.write_bytes(data[: place % len(data)] + junk + data[place % len(data) + len(junk) // 2 :])
    message = ""
    try:
        assert read_mask(path, code, 255, SIZE).shape == SIZE
    except DataError as error:
        message = str(error)
    assert "\n" not in message


def test_vocs_classes_are_torchvisions() -> None:
    assert len(VOC_CLASSES) == 21
    assert VOC_CLASSES[15] == "person"


@pytest.mark.parametrize("code", [INDEX, ADE20K, CITYSCAPES_CODE, BINARY])
@pytest.mark.parametrize("level", [-1, -5, 2**31 - 1])
def test_negative_levels_of_tiff(code: Any, level: int, tmp_path: Path) -> None:
    values = np.zeros(SIZE, np.int32)
    values[0, 0] = level
    file = mask(tmp_path / "a.tif", values)
    with pytest.raises(DataError, match=f"{level}"):
        read_mask(file, code, 255, SIZE)
    if level == -1 and code is INDEX:
        assert read_mask(file, code, -1, SIZE)[0, 0] == IGNORED


def test_images_and_masks_with_the_same_stem(tmp_path: Path) -> None:
    for name in ("a.jpg", "a.png"):
        write_image(tmp_path / "images" / name)
    for name in ("a.png", "a_mask.png"):
        mask(tmp_path / "masks" / name, filled(1))
    found = load_masks({"data": tmp_path})
    assert [Path(name).name for name in found.batch(range(len(found))).names] == ["a.jpg"]
    assert [(one.path.name, one.reason.split(",")[0].split(";")[0]) for one in found.rejected] == [
        ("a.png", "it shares its name with a.jpg"),
        ("a_mask.png", "it has the same image as a.png"),
    ]


def test_a_list_of_voc_stays_in_its_folder(tmp_path: Path) -> None:
    write_image(tmp_path / "JPEGImages" / "a.jpg")
    mask(tmp_path / "SegmentationClass" / "a.png", filled(1))
    listed = tmp_path / "ImageSets" / "Segmentation" / "val.txt"
    listed.parent.mkdir(parents=True)
    listed.write_text(f"a a\n{'b' * 5000}\n")
    found = load_masks({"data": tmp_path})
    assert (len(found), len(found.rejected)) == (1, 1)
    listed.write_text("a ../../b\n")
    with pytest.raises(DataError, match=r"val.txt: '../../b' leaves"):
        load_masks({"data": tmp_path})
