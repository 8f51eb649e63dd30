"""The preprocessing of every classification network of torchvision, and of any filter and scale, bit by bit."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.modes import DECODES, INTERPOLATIONS, MEAN, STD
from utils.preprocess.paddle.classification import preprocess as preprocess_paddle
from utils.preprocess.pytorch.classification import preprocess

FACES = pytest.mark.parametrize("face", [preprocess, preprocess_paddle])
SIZES = [(500, 375), (333, 500), (224, 224), (600, 130), (90, 300), (61, 47)]
"""Width and height: landscapes, portraits, a square, strips, and one that is smaller than any crop."""


@pytest.fixture(scope="session")
def torchvision() -> Any:
    pytest.importorskip("torch")
    from utils.export.networks.torchvision_models import import_torchvision

    return import_torchvision()


def noise(size: tuple[int, int], seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), dtype=np.uint8))


def presets(torchvision: Any) -> dict[Any, Any]:
    """Return one of the weights for each preprocessing."""
    found = {}
    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            one = weights.transforms()
            sizes = *one.resize_size, *one.crop_size
            scale = *one.mean, *one.std
            found[sizes, one.interpolation.value, one.antialias, scale] = weights
    return found


@pytest.mark.slow
@pytest.mark.torch
def test_preprocessing_of_every_published_network(torchvision: Any) -> None:
    """From torchvision's weights through the model's metadata to the input, at float32 and float16."""
    from utils.export.networks.torchvision_models import images_of, plain
    from utils.export.onnx_files import ModelNotes
    from utils.stored import ModelMetadata

    found = presets(torchvision)
    assert len(found) >= 28
    assert {key[1] for key in found} == {"bilinear", "bicubic"}
    assert {key[2] for key in found} == {True}
    images = [noise(size) for size in SIZES]
    for weights in found.values():
        labels = weights.meta["categories"]
        stored = ModelMetadata(ModelNotes(labels, plain(images_of(weights).scaled())).metadata(None), Path("net.onnx"))
        assert stored.labels == weights.meta["categories"]
        own = weights.transforms()
        for image in images:
            theirs, what = own(image).numpy(), f"{weights} {image.size}"
            ours = preprocess(image, "float32", **stored.image.scaled())[0]
            np.testing.assert_array_equal(ours, theirs, err_msg=what)
        half = preprocess(image, "float16", **stored.image.scaled())[0]
        np.testing.assert_array_equal(half, theirs.astype(np.float16), err_msg=what)


@pytest.mark.torch
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    size=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    resize=st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 60), st.integers(1, 60))),
    crop=st.one_of(st.integers(1, 70), st.tuples(st.integers(1, 70), st.integers(1, 70))),
    interpolation=st.sampled_from(INTERPOLATIONS),
    scale=st.lists(st.tuples(st.floats(-2, 2), st.floats(1 / 255, 4)), min_size=3, max_size=3),
)
def test_equals_torchvision_by_any_filter_and_scale(
    torchvision: Any, size: Any, resize: Any, crop: Any, interpolation: str, scale: Any
) -> None:
    transforms = torchvision.transforms
    image, mode = noise(size), transforms.InterpolationMode(interpolation)
    mean, std = zip(*scale, strict=True)
    steps = [transforms.Resize(resize, mode), transforms.CenterCrop(crop), transforms.ToTensor()]
    theirs = transforms.Compose([*steps, transforms.Normalize(mean, std)])(image).numpy()
    how = {"resize_shape": resize, "crop_shape": crop, "mean": mean, "std": std, "interpolation": interpolation}
    np.testing.assert_array_equal(preprocess(image, "float32", **how)[0], theirs)
    np.testing.assert_array_equal(preprocess(image, "float16", **how)[0], theirs.astype(np.float16))


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
@pytest.mark.parametrize("size", SIZES)
def test_equals_paddle_by_any_filter(interpolation: str, size: tuple[int, int]) -> None:
    transforms = pytest.importorskip("paddle.vision.transforms")
    image = noise(size)
    steps = [transforms.Resize(64, interpolation), transforms.CenterCrop(48), transforms.ToTensor()]
    theirs = transforms.Compose([*steps, transforms.Normalize([0.5, 0.4, 0.3], [0.1, 0.2, 0.3])])(image).numpy()
    how = {"mean": [0.5, 0.4, 0.3], "std": [0.1, 0.2, 0.3], "interpolation": interpolation}
    np.testing.assert_array_equal(preprocess_paddle(image, "float32", 64, 48, **how)[0], theirs)


@FACES
def test_filters_differ_with_bilinear_as_default(face: Any) -> None:
    image = noise((100, 80))
    found = {name: face(image, "float32", 24, 24, interpolation=name) for name in INTERPOLATIONS}
    np.testing.assert_array_equal(found["bilinear"], face(image, "float32", 24, 24))
    for one, other in itertools.combinations(found.values(), 2):
        assert (one != other).mean() > 0.5


@FACES
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_scales_in_any_order(face: Any, dtype: str) -> None:
    """Cached tables of different scales are not confused."""
    image = noise((32, 32))
    plain = face(image, "float32", 32, 32, mean=0, std=1)
    assert (plain.min(), plain.max()) == (0, 1)
    scales = [(MEAN, STD), ((0.5,), (0.25,)), (0.5, 0.25), ([0.1, 0.2, 0.3], [1, 2, 3]), (np.zeros(3), np.ones(3))]
    for mean, std in scales * 2:
        middle, spread = (np.float32(np.reshape(values, (-1, 1, 1))) for values in (mean, std))
        wanted = ((plain - middle) / spread).astype(dtype)
        np.testing.assert_array_equal(face(image, dtype, 32, 32, mean=mean, std=std), wanted)


def test_filters_and_scales_with_every_decode(tmp_path: Path) -> None:
    """On a smooth image, the ways of decoding differ little, but other filters or scales differ more."""
    ramp = np.add.outer(np.arange(1100), np.arange(1300))[..., None] * [0.1, 0.05, 0.02]
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "ramp.jpg", quality=95)
    for name in INTERPOLATIONS:
        how = {"mean": 0.0, "std": 1 / 255, "interpolation": name}
        exact, *others = (preprocess(tmp_path / "ramp.jpg", "float32", decode=decode, **how) for decode in DECODES)
        assert 0 <= exact.min() < exact.max() <= 255
        for other in others:
            assert np.abs(exact - other).max() <= 3


@FACES
@pytest.mark.parametrize("interpolation", ["cubic", "BICUBIC", "nearest-exact", "", None, 3])
def test_unknown_interpolation(face: Any, interpolation: Any) -> None:
    with pytest.raises(ConfigError, match=r"interpolation .*bilinear, bicubic, nearest, box"):
        face(Image.new("RGB", (4, 4)), interpolation=interpolation)


@FACES
@pytest.mark.parametrize("name", ["mean", "std"])
@pytest.mark.parametrize(
    "values", [(), (1, 2), [1] * 4, "0.5", None, True, [[1]] * 3, float("nan"), float("inf"), [1, 1, None], 10**400]
)
def test_invalid_scale(face: Any, name: str, values: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=.* three numbers"):
        face(Image.new("RGB", (4, 4)), **{name: values})


@FACES
@pytest.mark.parametrize("std", [-0.1, (0.2, -1, 0.2), 0, 1e-60])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_std_that_overflows(face: Any, std: Any, dtype: str) -> None:
    with pytest.raises(ConfigError, match=r"numbers above 0|float\d\d cannot"):
        face(Image.new("RGB", (4, 4)), dtype, std=std)


def test_samples_beyond_float16() -> None:
    image = Image.new("RGB", (4, 4), "white")
    assert preprocess(image, "float32", 4, 4, mean=0, std=1e-6).max() == np.float32(1) / np.float32(1e-6)
    with pytest.raises(ConfigError, match=r"std=\(1e-06,\) .*float16 .*larger std"):
        preprocess(image, "float16", 4, 4, mean=0, std=1e-6)
