"""Metadata stored in models: types, checks, defaults and errors."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support import DIGITS

from engine import ConfigError, EngineSpec, ModelError, open_engine
from utils.export.onnx_files import ModelNotes
from utils.preprocess.image.modes import INTERPOLATIONS, MEAN, STD
from utils.stored import ImageNotes, ModelMetadata

CKPT = Path("nets/net.onnx")
SIDES = st.integers(1, 2000)
NUMBERS = st.floats(-1e6, 1e6)
POSITIVE = st.floats(1e-6, 1e6)


def image(**notes: Any) -> ImageNotes:
    return ModelMetadata({"preprocess": json.dumps(notes)}, CKPT).image


class TestDefaults:
    def test_no_stored_metadata(self) -> None:
        stored = ModelMetadata({})
        assert stored.image == ImageNotes(256, (224, 224), MEAN, STD, "bilinear")
        assert (stored.labels, stored.vocabulary, stored.sample_rate) == (None, None, None)
        assert stored.provenance == {}
        assert stored.text("anything") is None
        assert stored.json("anything") is None
        assert stored.json("anything", [1]) == [1]
        stored.check()

    def test_files_of_before_interpolation_was_stored(self) -> None:
        assert image(resize_shape=73, crop_shape=64) == ImageNotes(73, (64, 64))
        own = image(resize_shape=32, crop_shape=32, mean=[0.5, 0.4, 0.3], std=[0.1, 0.2, 0.3])
        assert own == ImageNotes(32, (32, 32), (0.5, 0.4, 0.3), (0.1, 0.2, 0.3))

    def test_the_resize_follows_a_lone_crop(self) -> None:
        assert image(crop_shape=384).resize == 439  # 384 * 256 / 224 = 438.9
        assert image(crop_shape=[112, 56]).resize == 128
        assert image(resize_shape=232).crop == (224, 224)

    @pytest.mark.parametrize("name", ["digits.onnx", "digits_dyn.onnx", "digits_float16_dyn.onnx"])
    def test_the_committed_models(self, name: str) -> None:
        with open_engine("onnx", EngineSpec(DIGITS / name)) as engine:
            stored = ModelMetadata(engine.metadata, DIGITS / name)
        stored.check()
        assert stored.labels == [str(digit) for digit in range(10)]
        assert stored.image == ImageNotes(32, (32, 32))
        assert stored.provenance["weights"] == "digits.pth, trained by train.py"


class TestScaling:
    @pytest.mark.parametrize(
        ("notes", "size", "resize"),
        [
            (ImageNotes(), (224, 224), 256),
            (ImageNotes(), (64, 64), 73),
            (ImageNotes(), 64, 73),
            (ImageNotes(), (64, 128), 146),  # the longer side counts
            (ImageNotes(246, (224, 224)), (448, 448), 492),
            (ImageNotes(342, (299, 299)), (299, 299), 342),
            (ImageNotes(240, (224, 112)), (112, 56), 120),
            (ImageNotes((256, 512), (224, 448)), (112, 448), (128, 512)),
            (ImageNotes((224, 224), (224, 224)), (299, 301), (299, 301)),
            (ImageNotes(10, (224, 224)), (1, 1), 1),
        ],
    )
    def test_the_resize_grows_with_the_input(self, notes: ImageNotes, size: Any, resize: Any) -> None:
        found = notes.scaled(size)
        crop = (size, size) if isinstance(size, int) else size
        assert (found["resize_shape"], found["crop_shape"]) == (resize, crop)

    @given(resize=st.one_of(SIDES, st.tuples(SIDES, SIDES)), crop=st.tuples(SIDES, SIDES))
    def test_the_exported_size_gives_the_stored_values(self, resize: Any, crop: tuple[int, int]) -> None:
        notes = ImageNotes(resize, crop, (0.5,), (0.25,), "lanczos")
        own = {"resize_shape": resize, "crop_shape": crop, "mean": (0.5,), "std": (0.25,), "interpolation": "lanczos"}
        assert notes.scaled() == notes.scaled(crop) == notes.scaled(list(crop)) == own  # type: ignore[arg-type]


@given(
    resize=st.one_of(SIDES, st.lists(SIDES, min_size=2, max_size=2)),
    crop=st.one_of(SIDES, st.lists(SIDES, min_size=2, max_size=2)),
    scale=st.lists(st.tuples(NUMBERS, POSITIVE), min_size=1, max_size=4),
    interpolation=st.sampled_from(INTERPOLATIONS),
    labels=st.none() | st.lists(st.text(), min_size=1),
    vocabulary=st.none() | st.lists(st.text(), min_size=1),
    rate=st.none() | st.integers(1, 10**6),
    notes=st.dictionaries(st.text(min_size=1).map(lambda key: f"x{key}"), st.recursive(st.text(), st.lists)),
)
def test_roundtrip_of_metadata(
    resize: Any, crop: Any, scale: Any, interpolation: str, labels: Any, vocabulary: Any, rate: Any, notes: Any
) -> None:
    mean, std = ([float(n) for n in numbers] for numbers in zip(*scale, strict=True))
    preprocess = {"resize_shape": resize, "crop_shape": crop, "mean": mean, "std": std, "interpolation": interpolation}
    written = ModelNotes(labels, preprocess, {"source": "a test"}, vocabulary, rate, notes).metadata(1e-5)
    stored = pickle.loads(pickle.dumps(ModelMetadata(written, CKPT)))  # noqa: S301 -- to other processes and back
    pair = (crop, crop) if isinstance(crop, int) else tuple(crop)
    side = resize if isinstance(resize, int) else tuple(resize)
    assert stored.image == ImageNotes(side, pair, tuple(mean), tuple(std), interpolation)
    assert (stored.labels, stored.vocabulary, stored.sample_rate) == (labels, vocabulary, rate)
    assert stored.provenance == {"source": "a test"}
    assert {key: stored.json(key) for key in notes} == notes
    assert stored.text("max_relative_error") == "1.0e-05"


class TestInvalidMetadata:
    @pytest.mark.parametrize(
        ("what", "key", "text", "reason"),
        [
            ("labels", "class_labels", "{", "'{' is not JSON ("),
            ("labels", "class_labels", "null", "null must be a JSON list"),
            ("labels", "class_labels", "[1]", "[1] must be"),
            ("vocabulary", "vocabulary", "[]", "[] must be a JSON list"),
            ("vocabulary", "vocabulary", '{"a": 1}', '{"a": 1} must be a JSON list'),
            ("provenance", "provenance", "[]", "[] is not a JSON object"),
            ("image", "preprocess", "[" * 100_000, "is not JSON"),
            ("image", "preprocess", "3", "3 is not a JSON object"),
            ("image", "preprocess", "9" * 5000, "is not JSON"),
            ("sample_rate", "sample_rate", "null", "null must be a whole number"),
            ("sample_rate", "sample_rate", "0", "0 must be"),
            ("sample_rate", "sample_rate", "true", "true must be"),
            ("sample_rate", "sample_rate", "8000.5", "8000.5 must be"),
            ("sample_rate", "sample_rate", '"16k"', "'16k' must be"),
        ],
    )
    def test_by_key(self, what: str, key: str, text: str, reason: str) -> None:
        stored = ModelMetadata({key: text}, CKPT)
        for read in (lambda: getattr(stored, what), stored.check):
            with pytest.raises(ModelError) as caught:
                read()
            line = str(caught.value)
            assert line.startswith(f"{CKPT}: metadata {key!r}: ")
            assert line.endswith("; export the model again")
            assert reason in line
            assert "\n" not in line
            assert len(line) < 300

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *(
                (name, value)
                for name in ("resize_shape", "crop_shape")
                for value in (0, -1, 2.5, True, None, "256", [], [1, 2, 3], [4, 0], 10**9, 10**400, {"height": 3})
            ),
            *((name, value) for name in ("mean", "std") for value in ([], "0.5", None, [None, 1, 1], [True], ["0.5"])),
            *((name, value) for name in ("mean", "std") for value in ([float("nan")] * 3, [float("inf")], [10**400])),
            ("std", [0.2, 0.0, 0.2]),
            ("std", -1),
            *(("interpolation", value) for value in ("BICUBIC", "cubic", "", None, 3, ["bicubic"])),
        ],
    )
    def test_by_name_of_the_image_notes(self, name: str, value: Any) -> None:
        with pytest.raises(ModelError, match=rf"^nets/net\.onnx: metadata 'preprocess': {name} .* must be ") as caught:
            image(**{name: value})
        assert str(caught.value).endswith("; export the model again")
        assert "\n" not in str(caught.value)

    def test_mean_and_std_of_other_channels(self) -> None:
        with pytest.raises(ModelError, match=r"mean .*1 channels, .*std 3"):
            image(mean=[0.5])

    def test_a_model_without_a_name(self) -> None:
        with pytest.raises(ModelError, match=r"^the model: metadata 'class_labels'"):
            _ = ModelMetadata({"class_labels": "{"}).labels

    def test_unknown_text_is_returned_unchanged(self) -> None:
        assert ModelMetadata({"names": "{0: 'person'}"}).text("names") == "{0: 'person'}"
        with pytest.raises(ModelError, match=r"metadata 'names': .* is not JSON"):
            ModelMetadata({"names": "{0: 'person'}"}).json("names")


class TestInvalidNotes:
    @pytest.mark.parametrize(
        "wrong",
        [
            {"preprocess": {"interpolation": "cubic"}},
            {"preprocess": {"mean": [0.5]}},
            {"preprocess": {"mean": [float("nan")] * 3}},
            {"preprocess": {"std": object()}},
            {"labels": []},
            {"labels": [1, 2]},
            {"vocabulary": ["a", 1]},
            {"sample_rate": 0},
            {"notes": {"preprocess": {}}},
            {"notes": {"max_relative_error": 0}},
            {"notes": {"": 1}},
            {"notes": {3: 1}},
            {"notes": {"tokenizer": object()}},
            {"notes": {"beam": float("inf")}},
        ],
    )
    def test_errors_before_writing(self, wrong: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match=r"pass|use another|use numbers") as caught:
            ModelNotes(**wrong)
        assert "\n" not in str(caught.value)


ULTRALYTICS = {"names": "{0: 'cat', 1: \"dog's\"}", "stride": "32", "task": "detect", "imgsz": "[640, 640]"}


@pytest.mark.parametrize("metadata", [{"class_labels": json.dumps(["a", "b" * 251])}, {"names": repr({0: "b" * 251})}])
def test_long_class_names(metadata: dict[str, str]) -> None:
    with pytest.raises(ModelError, match=r"metadata '(class_labels|names)': the name 'b+\.\.\.' has 251 characters"):
        _ = ModelMetadata(metadata).labels
    assert ModelMetadata({"class_labels": json.dumps(["b" * 250])}).labels == ["b" * 250]


def test_metadata_of_ultralytics() -> None:
    stored = ModelMetadata(ULTRALYTICS, Path("m.onnx"))
    assert stored.labels == ["cat", "dog's"]
    assert (stored.image.mean, stored.image.std) == ((0, 0, 0), (1, 1, 1))
    assert ModelMetadata({**ULTRALYTICS, "class_labels": '["a"]'}).labels == ["a"]
    assert ModelMetadata({"names": "['a', 'b']"}).labels == ["a", "b"]
    assert ModelMetadata({"names": "['a', 'b']"}).image.mean != (0, 0, 0)


@pytest.mark.parametrize(
    "text",
    ["{0: 'cat'", "{1: 'cat'}", "{0: 1}", "{}", "__import__('os')", "{'0': 'cat'}", "{0: 'a', 0.5: 'b'}", "7", "{[]}"],
)
def test_invalid_names(text: str) -> None:
    with pytest.raises(ModelError, match=r"m\.onnx: metadata 'names': .*; export the model again") as refused:
        _ = ModelMetadata({**ULTRALYTICS, "names": text}, Path("m.onnx")).labels
    assert "\n" not in str(refused.value)
