"""``out=``: in place, without other allocations, with the same values, also from several threads."""

from __future__ import annotations

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from engine import ConfigError
from utils.preprocess.image.classification import ImagePreprocessor
from utils.preprocess.image.modes import DECODES
from utils.preprocess.image.resizing import paddle_start, torchvision_start
from utils.preprocess.paddle.classification import preprocess as preprocess_paddle
from utils.preprocess.pytorch.classification import preprocess


def noise(seed: int, mode: str = "RGB") -> Image.Image:
    rng = np.random.default_rng(seed)
    size = tuple(rng.integers(1, 50, 2))
    return Image.fromarray(rng.integers(0, 256, (*size, 3), dtype=np.uint8)).convert(mode)


@settings(max_examples=80, deadline=None)
@given(
    modes=st.lists(st.sampled_from(["RGB", "L", "CMYK"]), min_size=1, max_size=5),
    dtype=st.sampled_from(["float32", "float16"]),
    decode=st.sampled_from(DECODES),
    crop=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    before=st.integers(0, 3),
    after=st.integers(0, 3),
    face=st.sampled_from([preprocess, preprocess_paddle]),
)
def test_only_the_slice_of_a_batch_is_written(
    modes: list[str], dtype: str, decode: str, crop: tuple[int, int], before: int, after: int, face: Any
) -> None:
    images = [noise(seed, mode) for seed, mode in enumerate(modes)]
    expected = face(images, dtype, 32, crop, decode=decode)
    buffer = np.full((before + len(modes) + after, 3, *crop), 77, dtype)
    part = buffer[before : before + len(modes)]
    assert face(images, dtype, 32, crop, out=part, decode=decode) is part
    np.testing.assert_array_equal(part, expected)
    assert (buffer[:before] == 77).all()
    assert (buffer[before + len(modes) :] == 77).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_blocks_of_images_equal_single_ones(dtype: str) -> None:
    """Many small images are normalised together, in blocks that do not divide their number."""
    images = [noise(seed, "L" if seed % 3 else "RGB") for seed in range(101)]
    batch = preprocess(images, dtype, 32, 32)
    assert batch.flags.c_contiguous
    for image, row in zip(images, batch, strict=True):
        np.testing.assert_array_equal(preprocess(image, dtype, 32, 32)[0], row)


def test_every_other_row_of_a_buffer() -> None:
    images = [noise(seed) for seed in range(4)]
    for dtype in ("float32", "float16"):
        buffer = np.zeros((8, 3, 16, 16), dtype)
        preprocess(images, dtype, 16, 16, out=buffer[::2])
        np.testing.assert_array_equal(buffer[::2], preprocess(images, dtype, 16, 16))
        assert not buffer[1::2].any()


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (np.empty((2, 3, 8, 8), np.float32), r"shape \(2, 3, 8, 8\) and dtype float32; pass .*\(1, 3, 8, 8\)"),
        (np.empty((1, 3, 8, 9), np.float32), r"shape \(1, 3, 8, 9\)"),
        (np.empty((3, 8, 8), np.float32), r"shape \(3, 8, 8\)"),
        (np.empty((1, 3, 8, 8), np.float16), "dtype float16; pass .* float32"),
        (np.empty((1, 3, 8, 8), ">f4"), "dtype >f4; pass .* float32"),
        (np.broadcast_to(np.float32(0), (1, 3, 8, 8)), "read-only"),
        ([0.0], "out is a list; pass a NumPy array"),
    ],
)
def test_an_array_that_does_not_fit(out: Any, message: str) -> None:
    for face in (preprocess, preprocess_paddle):
        with pytest.raises(ConfigError, match=message) as caught:
            face(noise(0), "float32", 8, 8, out=out)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_other_memory_of_the_batch_size(dtype: str) -> None:
    images = [noise(seed) for seed in range(64)]
    buffer = np.empty((64, 3, 64, 64), dtype)
    preprocess(images, dtype, 64, 64, out=buffer)
    tracemalloc.start()
    try:
        preprocess(images, dtype, 64, 64, out=buffer)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < buffer.nbytes / 2


@pytest.mark.parametrize("decode", DECODES)
def test_four_threads_into_one_buffer(decode: str, tmp_path: Path) -> None:
    paths = []
    for index in range(24):
        path = tmp_path / f"{index}.{('jpg', 'png', 'bmp')[index % 3]}"
        noise(index).resize((200, 150)).save(path)
        paths.append(path)
    expected = preprocess(paths, "float32", 32, 24, decode=decode)
    buffer = np.zeros_like(expected)

    def chunk(first: int) -> None:
        preprocess(paths[first : first + 4], "float32", 32, 24, out=buffer[first : first + 4], decode=decode)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            buffer[:] = 0
            list(pool.map(chunk, range(0, 24, 4)))
            np.testing.assert_array_equal(buffer, expected)


@pytest.mark.parametrize("decode", DECODES)
def test_a_preprocessor_is_reused_and_pickled(decode: str) -> None:
    for start, face in ((torchvision_start, preprocess), (paddle_start, preprocess_paddle)):
        arguments = {"decode": decode, "mean": [0.1, 0.2, 0.3], "std": 0.5, "interpolation": "bicubic"}
        run = ImagePreprocessor("float32", 20, (33, 16), start, **arguments)
        for seed, again in enumerate((run, pickle.loads(pickle.dumps(run)), run)):  # noqa: S301
            images, out = [noise(seed), noise(seed + 1, "L")], np.empty((2, 3, 33, 16), np.float32)
            assert again(images, out) is out
            np.testing.assert_array_equal(out, face(images, "float32", 20, (33, 16), **arguments))
    with pytest.raises(ConfigError, match="std=0"):
        ImagePreprocessor(std=0)
