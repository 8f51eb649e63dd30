"""The C extension gives the bits of Pillow's resize and of NumPy's normalisation, which are used without it."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from PIL import Image

from tecoinfer_modelzoo import native
from utils.preprocess.image import kernels, resizing
from utils.preprocess.image.classification import ImagePreprocessor
from utils.preprocess.image.kernels import can_resize, pixels, resize_into, resized
from utils.preprocess.image.modes import DECODES, INTERPOLATIONS
from utils.preprocess.image.resizing import SUPPORTS, Part, order_of_passes

EXTENSION = native.kernels()
needs_extension = pytest.mark.skipif(EXTENSION is None, reason="the C extension is not built: pip install -e .")
LEVELS = range(EXTENSION.level() + 1 if EXTENSION is not None else 0)

LENGTHS = st.one_of(st.integers(1, 20), st.integers(1, 300))


def noise(size: tuple[int, int], mode: str = "RGB", *, extreme: bool = False) -> Image.Image:
    """Return random levels, or with ``extreme`` only 0 and 255, for which sums are largest."""
    levels = np.random.default_rng(size[0] * 1000 + size[1]).integers(0, 256, (*size[::-1], len(mode)), dtype=np.uint8)
    if extreme:
        levels = np.where(levels > 127, np.uint8(255), np.uint8(0))
    return Image.frombytes(mode, size, levels.tobytes())


@st.composite
def ranges(draw: Any, length: int, beyond: int = 0) -> tuple[int, int]:
    """Draw a first and a last position in a length, or up to ``beyond`` outside it."""
    first = draw(st.integers(-beyond, length - 1))
    return first, draw(st.integers(max(first, 0) + 1, length + beyond))


def resample(image: Image.Image, part: Part, filter: Image.Resampling, level: int, out: Any, table: Any = None) -> None:
    """Call the extension at a level."""
    order = order_of_passes()
    assert EXTENSION is not None
    assert order is not None
    channels = 1 if image.mode == "L" else 4
    first = order(image.size, part.size)
    where = (image.size, part.box, part.size, part.crop)
    EXTENSION.resample(pixels(image), channels, *where, int(filter), first, level, table, out)


def by_pillow(image: Image.Image, part: Part, filter: Image.Resampling) -> np.ndarray[Any, Any]:
    return np.asarray(image.resize(part.size, filter, part.box).crop(part.crop))


@needs_extension
@settings(max_examples=600, deadline=None)
@given(
    old=st.tuples(LENGTHS, LENGTHS),
    new=st.tuples(LENGTHS, LENGTHS),
    mode=st.sampled_from(["RGB", "L"]),
    filter=st.sampled_from(list(SUPPORTS)),
    extreme=st.booleans(),
    data=st.data(),
)
def test_any_crop_of_any_resize_of_any_box(
    old: tuple[int, int], new: tuple[int, int], mode: str, filter: Image.Resampling, extreme: bool, data: st.DataObject
) -> None:
    image = noise(old, mode, extreme=extreme)
    across, down = (data.draw(ranges(length, beyond=9)) for length in new)
    box = (0.0, 0.0, float(old[0]), float(old[1]))
    if data.draw(st.booleans()):
        edges = [sorted(data.draw(st.tuples(*[st.floats(0, side, width=32)] * 2))) for side in old]
        box = (edges[0][0], edges[1][0], edges[0][1], edges[1][1])
    part = Part(new, box, (across[0], down[0], across[1], down[1]))
    wanted = by_pillow(image, part, filter)
    for level in LEVELS:
        found = np.full_like(wanted, 77)
        resample(image, part, filter, level, found)
        np.testing.assert_array_equal(found, wanted, err_msg=str((level, part)))


@needs_extension
@pytest.mark.parametrize("filter", SUPPORTS)
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("old", [(500, 375), (375, 500), (333, 500), (300, 1000), (1000, 300), (2048, 1536), (5, 700)])
def test_usual_sizes(old: tuple[int, int], mode: str, filter: Image.Resampling) -> None:
    """Both orders of the passes occur, at widths that are and are not multiples of a vector's."""
    image, short = noise(old, mode), min(old)
    for side, crop in ((256, 224), (100, 97)):
        size = (old[0] * side // short, old[1] * side // short)
        left, top = (size[0] - crop) // 2, (size[1] - crop) // 2
        part = Part(size, (0, 0, *old), (left, top, left + crop, top + crop))
        wanted = by_pillow(image, part, filter)
        for level in LEVELS:
            found = np.empty_like(wanted)
            resample(image, part, filter, level, found)
            np.testing.assert_array_equal(found, wanted)


def test_both_orders_occur_in_the_tests() -> None:
    order = order_of_passes()
    assert order is not None
    tall = order((300, 1000), (256, 853))
    assert (order((500, 375), (341, 256)), tall) == (False, order is resizing._order_of_pillow_13)


@needs_extension
@settings(max_examples=150, deadline=None)
@given(
    size=st.tuples(LENGTHS, LENGTHS),
    mode=st.sampled_from(["RGB", "L"]),
    dtype=st.sampled_from([np.float16, np.float32]),
    data=st.data(),
)
def test_values_of_a_table(size: tuple[int, int], mode: str, dtype: Any, data: st.DataObject) -> None:
    """Every sample is replaced by its channel's value, black beyond the image too; nothing else is written."""
    image = noise((40, 30), mode)
    across, down = (data.draw(ranges(length, beyond=9)) for length in size)
    part = Part(size, (0, 0, 40, 30), (across[0], down[0], across[1], down[1]))
    table = np.random.default_rng(1).normal(size=(3, 256)).astype(dtype)
    levels = by_pillow(image, part, Image.Resampling.BILINEAR)
    planes = np.stack([levels] * 3) if mode == "L" else levels.transpose(2, 0, 1)
    for level in LEVELS:
        around = np.full((3, *planes.shape), 7, dtype)
        resample(image, part, Image.Resampling.BILINEAR, level, around[1], table)
        np.testing.assert_array_equal(around[1], np.stack([table[c][planes[c]] for c in range(3)]))
        assert (around[::2] == 7).all()


def encoded(image: Image.Image, kind: str) -> io.BytesIO:
    file = io.BytesIO()
    image.save(file, kind)
    file.seek(0)
    return file


@needs_extension
@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(1, 400), st.integers(1, 400)),
    mode=st.sampled_from(["RGB", "L"]),
    kind=st.sampled_from(["JPEG", "PNG", "BMP", "PPM", ""]),
    decode=st.sampled_from(DECODES),
    interpolation=st.sampled_from(INTERPOLATIONS),
    dtype=st.sampled_from(["float32", "float16"]),
    resize=st.one_of(st.integers(1, 120), st.tuples(st.integers(1, 120), st.integers(1, 120))),
    crop=st.tuples(st.integers(1, 130), st.integers(1, 130)),
)
@example((500, 375), "RGB", "JPEG", "exact", "bilinear", "float32", 256, (224, 224))
@example((500, 375), "RGB", "JPEG", "reduced", "bicubic", "float16", 64, (56, 56))
def test_with_and_without_the_extension(
    size: tuple[int, int],
    mode: str,
    kind: str,
    decode: str,
    interpolation: str,
    dtype: str,
    resize: Any,
    crop: tuple[int, int],
) -> None:
    """Every way to decode, filter and dtype, for files and images."""
    image: Any = noise(size, mode)
    run = ImagePreprocessor(dtype, resize, crop, decode=decode, interpolation=interpolation, mean=[0.1, 0.2, 0.3])
    found = []
    for value in ("", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(native.VARIABLE, value)
            given = Image.open(encoded(image, kind)) if kind else image
            found.append(run([given, image]))
    np.testing.assert_array_equal(*found)


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return the settings of Pillow's memory, which are restored afterwards."""
    core = Image.core
    before = core.get_alignment(), core.get_block_size()
    yield core
    core.set_alignment(before[0])
    core.set_block_size(before[1])


@needs_extension
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_images_that_pillow_stores_in_other_ways(mode: str, memory: Any, tmp_path: Path) -> None:
    """In several blocks, in padded rows, in a file that is mapped to memory, or over another object's memory."""
    image, part = noise((61, 333), mode), Part((41, 100), (0, 0, 61, 333), (3, 5, 40, 90))
    wanted = by_pillow(image, part, Image.Resampling.BICUBIC)
    memory.set_block_size(4096)
    blocks = image.copy()
    memory.set_block_size(1 << 24)
    memory.set_alignment(64)
    padded = image.copy()
    for one in (blocks, padded):
        found = np.empty_like(wanted)
        resize_into(one, part, Image.Resampling.BICUBIC, found)
        np.testing.assert_array_equal(found, wanted)
    memory.set_alignment(1)
    image.save(tmp_path / "mapped.ppm")
    image.save(tmp_path / "mapped.bmp")
    stored = [Image.open(tmp_path / name) for name in ("mapped.ppm", "mapped.bmp")]
    levels = np.asarray(image).copy()
    stored += [
        Image.fromarray(levels),
        Image.frombuffer(mode, image.size, bytearray(image.tobytes()), "raw", mode, 0, 1),
    ]
    for index, one in enumerate(stored):
        one.load()
        found = np.empty_like(wanted)
        resize_into(one, part, Image.Resampling.BICUBIC, found)
        np.testing.assert_array_equal(found, wanted, err_msg=str(index))


@pytest.mark.skipif(not hasattr(Image.Image, "__arrow_c_array__"), reason="Pillow exports images from 11.3 on")
def test_the_usual_image_is_not_copied() -> None:
    assert not isinstance(pixels(noise((500, 375))), bytes)
    assert not isinstance(pixels(noise((500, 375), "L")), bytes)


@needs_extension
def test_rows_of_a_batch_with_gaps() -> None:
    images = [noise((50, 40)), noise((30, 60), "L")]
    run = ImagePreprocessor("float32", 20, 16)
    spread, columns = np.zeros((4, 3, 16, 16), np.float32), np.zeros((2, 3, 16, 32), np.float32)
    wanted = run(images)
    np.testing.assert_array_equal(run(images, spread[::2]), wanted)
    np.testing.assert_array_equal(run(images, columns[..., ::2]), wanted)
    assert not spread[1::2].any()
    assert not columns[..., 1::2].any()


@needs_extension
def test_threads_share_nothing() -> None:
    parts = [Part((side, side), (0, 0, 300, 200), (0, 0, side, side)) for side in range(20, 84)]
    image, lanczos = noise((300, 200)), Image.Resampling.LANCZOS

    def run(part: Part) -> bool:
        return np.array_equal(resized(image, part.size, lanczos), by_pillow(image, part, lanczos))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, parts))


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_resized_equals_pillow(mode: str) -> None:
    image = noise((50, 40), mode)
    for filter in Image.Resampling:
        np.testing.assert_array_equal(resized(image, (21, 33), filter), np.asarray(image.resize((21, 33), filter)))


@needs_extension
def test_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    bilinear = Image.Resampling.BILINEAR
    assert can_resize(bilinear)
    assert not can_resize(Image.Resampling.NEAREST)
    monkeypatch.setenv(native.VARIABLE, "0")
    assert not can_resize(bilinear)


@needs_extension
def test_a_pillow_with_other_results_or_another_order_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extension is then not used."""
    box, image = Image.Resampling.BOX, noise((50, 40))
    wanted = np.asarray(image.resize((20, 20), box))
    for module, name, value in (
        (kernels, "order_of_passes", lambda: None),
        (kernels, "order_of_passes", lambda: lambda old, new: True),
        (kernels, "resize_into", lambda image, part, resample, out: out.fill(0)),
    ):
        kernels._agrees.cache_clear()
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            assert not can_resize(box)
            np.testing.assert_array_equal(resized(image, (20, 20), box), wanted)
    kernels._agrees.cache_clear()
    assert can_resize(box)


@needs_extension
@pytest.mark.parametrize(
    "changed",
    [
        {"channels": 3},
        {"old": (0, 4)},
        {"size": (2, 0)},
        {"size": (1 << 30, 2)},
        {"box": (0, 0, 5.5, 4)},
        {"box": (0, 0, float("nan"), 4)},
        {"box": (-0.5, 0, 4, 4)},
        {"box": (0, 3, 4, 2)},
        {"crop": (1, 0, 1, 2)},
        {"crop": (0, 0, 2, 1)},
        {"filter": 0},
        {"filter": 6},
        {"level": 9},
        {"level": -1},
        {"source": bytes(63)},
        {"source": noise((4, 5)).__arrow_c_array__()[1] if hasattr(Image.Image, "__arrow_c_array__") else bytes(80)},
        {"source": noise((4, 4)).__arrow_c_schema__() if hasattr(Image.Image, "__arrow_c_array__") else bytes(80)},
        {"table": np.zeros((3, 255), np.float32)},
        {"table": np.zeros((3, 256), np.float64)},
        {"out": np.zeros((3, 2, 3), np.uint8)},
        {"table": np.zeros((3, 256), np.float16), "out": np.zeros(3 * 2 * 2 * 2 + 1, np.uint8)[1:]},
    ],
)
def test_arguments_that_do_not_fit(changed: dict[str, Any]) -> None:
    assert EXTENSION is not None
    names = ("source", "channels", "old", "box", "size", "crop", "filter", "vertical_first", "level", "table", "out")
    usual = (bytes(64), 4, (4, 4), (0, 0, 4, 4), (2, 2), (0, 0, 2, 2), 2, False, 0, None, np.zeros((2, 2, 3), np.uint8))
    arguments = dict(zip(names, usual, strict=True))
    EXTENSION.resample(*arguments.values())
    with pytest.raises(ValueError, match=r"\w+"):
        EXTENSION.resample(*(arguments | changed).values())


@needs_extension
def test_buffers_that_cannot_be_used() -> None:
    assert EXTENSION is not None
    rest = (4, (4, 4), (0, 0, 4, 4), (2, 2), (0, 0, 2, 2), 2, False, 0)
    out = np.zeros((2, 2, 3), np.uint8)
    for source, table, into in (
        (np.zeros((4, 8, 4), np.uint8)[:, ::2], None, out),  # with gaps
        (bytes(64), None, bytes(12)),  # read-only
        (bytes(64), "table", out),
        (64, None, out),
    ):
        with pytest.raises((BufferError, TypeError, ValueError)):
            EXTENSION.resample(source, *rest, table, into)


def test_status_of_each_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "1")
    states = set()
    for machine, module in (
        ("x86_64", SimpleNamespace(interface=lambda: native.INTERFACE, level=lambda: 1)),
        ("x86_64", SimpleNamespace(interface=lambda: native.INTERFACE + 1)),
        ("x86_64", None),
        ("aarch64", SimpleNamespace(interface=lambda: native.INTERFACE)),
    ):

        def load(name: str, module: Any = module) -> Any:
            if module is None:
                raise ImportError(name)
            return module

        monkeypatch.setattr(native.platform, "machine", lambda machine=machine: machine)
        monkeypatch.setattr(native, "import_module", load)
        native._imported.cache_clear()
        usable = machine == "x86_64" and module is not None and module.interface() == native.INTERFACE
        assert (native.kernels() is module) == usable or module is None
        assert (native.kernels() is not None) == usable
        assert native.status().startswith("C extension, AVX2" if usable else "Pillow and NumPy (")
        states.add(native.status())
        with monkeypatch.context() as patch:
            patch.setenv(native.VARIABLE, "0")
            assert native.kernels() is None
            assert native.status() == "Pillow and NumPy (TECO_NATIVE=0)"
    native._imported.cache_clear()
    assert len(states) == 4
