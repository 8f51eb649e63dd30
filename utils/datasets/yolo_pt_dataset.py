"""Data loader of YOLO detectors for existing scripts: images and objects in batches."""

from __future__ import annotations

import math
import numbers
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from tecoinfer_modelzoo.text import one_line
from utils.datasets.base import Rejected
from utils.datasets.folders import is_image
from utils.datasets.image.objects import Gathered, Objects, lines_of
from utils.datasets.image.yolo import gather, images_below, label_file
from utils.datasets.sharding import rank_and_size, shard
from utils.preprocess.image.images import open_image, upright_size
from utils.preprocess.image.letterbox import Geometry, Placement, fit, letterbox, sides_of, to_input
from utils.torch_array import of_the_script

if TYPE_CHECKING:
    from concurrent.futures import Future

Source: TypeAlias = "str | os.PathLike[str] | Sequence[str | os.PathLike[str]]"
Shapes: TypeAlias = "tuple[tuple[int, int], tuple[tuple[float, float], tuple[int, int]]]"
"""Height and width of an image; its vertical and horizontal scale factors, and its left and top offset."""


class Item(NamedTuple):
    """One image of a batch: 3 x H x W uint8 RGB, and targets, n x 6 float32.

    A row of ``targets`` is 0, class, centre x, centre y, width and height, the last four relative to W and H.
    """

    image: Array
    targets: Array
    path: str
    shapes: Shapes


class YoloImages:
    """Images with their objects, each resized into its input.

    Attributes:
        im_files: the images' paths, in order.
        label_files: path of each label file; it need not exist.
        objects: of each image, in pixels.
        batch_shapes: height and width in pixels of the input of each image.
        rejected: files that cannot be used; images that cannot be decoded are added when they are read.
    """

    def __init__(
        self,
        files: Sequence[Path],
        objects: Sequence[Objects],
        rejected: Sequence[Rejected],
        size: tuple[int, int],
        single_cls: bool,
    ) -> None:
        self.im_files = [str(file) for file in files]
        self.label_files = [str(label_file(file)) for file in files]
        self.objects = list(objects)
        self.rejected = list(rejected)
        self.batch_shapes = [size] * len(files)
        self._size, self._single = size, single_cls
        self._kept: dict[int, Item] | None = None

    def __len__(self) -> int:
        return len(self.im_files)

    def __getitem__(self, place: int) -> Item:
        """Return an image in its input; raise DataError if it cannot be read."""
        if self._kept is not None and place in self._kept:
            return self._kept[place]
        original = open_image(self.im_files[place])
        size = self.batch_shapes[place]
        inner = fit(original.width, original.height, self._size)
        sides = round(inner.height * inner.down), round(inner.width * inner.across)
        # first to the size that the square input gives it, then into the input of its batch
        scaled = letterbox(original, sides, Placement(resize="stretch"))[0]
        laid, within = letterbox(Image.fromarray(scaled), size, Placement(enlarge=False))
        whole = Geometry(
            *(original.width, original.height),
            *(inner.across * within.across, inner.down * within.down),
            *(within.left, within.top),
        )
        shapes = ((original.height, original.width), ((whole.down, whole.across), (whole.left, whole.top)))
        image = np.ascontiguousarray(laid.transpose(2, 0, 1))
        item = Item(image, self._targets(place, whole), self.im_files[place], shapes)
        if self._kept is not None:
            self._kept[place] = item
        return item

    def keep(self) -> None:
        """Keep every image in memory once it is read."""
        self._kept = {}

    def by_proportions(self, batch_size: int, stride: int, pad: float) -> None:
        """Sort the images by their aspect ratio, and give each batch the smallest input that fits them.

        The sides are multiples of the stride, ``pad`` strides larger than needed. Images whose size cannot be read are
        rejected.
        """
        proportions = []
        for place, file in enumerate(self.im_files):
            try:
                width, height = upright_size(file)
                proportions.append((height / width, place))
            except DataError as error:
                self.rejected.append(Rejected(Path(file), str(error)))
        order = sorted(proportions)
        self.im_files = [self.im_files[place] for _, place in order]
        self.label_files = [self.label_files[place] for _, place in order]
        self.objects = [self.objects[place] for _, place in order]
        longest = max(self._size)
        self._size = (longest, longest)
        self.batch_shapes = []
        for start in range(0, len(order), batch_size):
            tall = [proportion for proportion, _ in order[start : start + batch_size]]
            needed = min(1.0, max(tall)), min(1.0, 1 / min(tall))
            shape = tuple(math.ceil(side * longest / stride + pad) * stride for side in needed)
            self.batch_shapes += [(shape[0], shape[1])] * len(tall)

    def _targets(self, place: int, geometry: Geometry) -> Array:
        """Return the objects of an image relative to its input."""
        height, width = self.batch_shapes[place]
        found = self.objects[place]
        boxes = to_input(found.boxes, geometry) / np.array([width, height] * 2)
        rows = np.zeros((len(boxes), 6), np.float32)
        rows[:, 1] = 0 if self._single else found.classes
        rows[:, 2:4] = (boxes[:, :2] + boxes[:, 2:]) / 2
        rows[:, 4:] = boxes[:, 2:] - boxes[:, :2]
        return rows


class YoloLoader:
    """Iterates ``(images, targets, paths, shapes)`` over a :class:`YoloImages`; ``len()`` is the number of batches.

    - images: N x 3 x H x W uint8, RGB. The last batch may be shorter.
    - targets: n x 6 float32: index of the image in the batch, class, and the box as in :class:`Item`.
    - paths: N texts.
    - shapes: :data:`Shapes` per image.

    Images and targets are tensors if the script has imported torch, else :class:`~utils.torch_array.TorchArray`. An
    image that cannot be read is skipped with a warning and added to ``dataset.rejected``.
    """

    def __init__(self, dataset: YoloImages, batch_size: int, workers: int, shuffle: bool) -> None:
        self.dataset, self.batch_size = dataset, batch_size
        self._workers = min(workers, os.cpu_count() or 1)
        self._random = np.random.default_rng(0) if shuffle else None
        self._lock = threading.Lock()
        self._bad: dict[int, str] = {}

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[Any, Any, tuple[str, ...], tuple[Shapes, ...]]]:
        places = np.arange(len(self.dataset))
        if self._random is not None:
            self._random.shuffle(places)
        given = 0
        starts = range(self.batch_size, len(self.dataset), self.batch_size)
        for found in self._read([group.tolist() for group in np.array_split(places, starts)]):
            items = [item for item in found if item is not None]
            given += len(items)
            if items:
                yield _batch(items)
        if self._bad and not given:
            raise DataError(f"none of {len(self.dataset)} images can be read; the first: {self._bad[min(self._bad)]}")

    def _read(self, groups: Sequence[Sequence[int]]) -> Iterator[list[Item | None]]:
        """Yield the images of each batch; with workers, threads already read the next batch."""
        if self._workers < 1:
            yield from ([self._item(place) for place in group] for group in groups)
            return
        from concurrent.futures import ThreadPoolExecutor

        pool = ThreadPoolExecutor(self._workers)
        try:
            waiting: list[list[Future[Item | None]]] = []
            for group in groups:
                waiting.append([pool.submit(self._item, place) for place in group])
                if len(waiting) > 1:
                    yield [one.result() for one in waiting.pop(0)]
            for last in waiting:
                yield [one.result() for one in last]
        finally:
            pool.shutdown(cancel_futures=True)

    def _item(self, place: int) -> Item | None:
        """Return an image; ``None`` with one warning if it cannot be read."""
        try:
            return self.dataset[place]
        except DataError as error:
            with self._lock:
                if place not in self._bad:
                    self._bad[place] = str(error)
                    self.dataset.rejected.append(Rejected(Path(self.dataset.im_files[place]), str(error)))
                    warnings.warn(f"{error} (skipped)", stacklevel=2)
            return None


def _batch(items: Sequence[Item]) -> tuple[Any, Any, tuple[str, ...], tuple[Shapes, ...]]:
    """Return images as one batch."""
    targets = [item.targets.copy() for item in items]
    for place, rows in enumerate(targets):
        rows[:, 0] = place
    images = of_the_script(np.stack([item.image for item in items]))
    together = of_the_script(np.concatenate(targets))
    return images, together, tuple(item.path for item in items), tuple(item.shapes for item in items)


def create_dataloader(
    path: Source,
    imgsz: int | Sequence[int],
    batch_size: int,
    stride: int,
    single_cls: bool = False,
    hyp: Any = None,
    augment: bool = False,
    cache: bool | str = False,
    pad: float = 0.0,
    rect: bool = False,
    rank: int = -1,
    workers: int = 8,
    image_weights: bool = False,
    quad: bool = False,
    prefix: str = "",
    shuffle: bool = False,
) -> tuple[YoloLoader, YoloImages]:
    """Load images and YOLO's labels for a script that evaluates a detector.

    Args:
        path: a text file with one image path per line, absolute or relative to the file's folder; a folder, searched
            recursively; an image; or a list of these. Labels of ``images/a/b.jpg`` are in ``labels/a/b.txt``; for an
            image that is not below a folder ``images`` they are next to it.
        imgsz: side of the input in pixels, or its height and width.
        batch_size: images per batch.
        stride: stride of the model in pixels; the sides of a ``rect`` input are multiples of it.
        single_cls: set the class of all objects to 0.
        hyp, augment, image_weights, quad: for training; unused, with a warning if set.
        cache: keep images in memory once they are read. ``"disk"`` is not supported and gives a warning.
        pad: strides by which a ``rect`` input is larger than its images need.
        rect: sort the images by aspect ratio, and give each batch an input of about that aspect ratio.
        rank: the part of this process, see :func:`~utils.datasets.sharding.rank_and_size`; -1: the whole data set.
        workers: threads that read images ahead; 0: none.
        prefix: prepended to warnings about the data.
        shuffle: a new order in each epoch, the same in every run. With ``rect`` unused, with a warning.

    Returns the loader, and its data set. Raises ConfigError if the size, stride or rank is invalid, and DataError if
    the path has no usable data.
    """
    unused = {"augment": augment, "hyp": hyp, "image_weights": image_weights, "quad": quad}
    unused |= {"cache": cache == "disk" and cache, "shuffle with rect": shuffle and rect}
    words = [f"{name}={one_line(str(value))}" for name, value in unused.items() if value]
    if words:
        warnings.warn(f"{prefix}create_dataloader does not use {', '.join(words)}", stacklevel=2)
    size = sides_of(imgsz, "imgsz")
    _check_numbers(batch_size=(batch_size, 1), stride=(stride, 1), pad=(pad, 0), workers=(workers, None))
    dataset = _load(path, size, single_cls, rank)
    if rect:
        dataset.by_proportions(batch_size, stride, pad)
    if cache and cache != "disk":
        dataset.keep()
    if dataset.rejected:
        first, total = dataset.rejected[0], len(dataset.rejected)
        warnings.warn(f"{prefix}skipped files: {total}, the first {first.path}: {first.reason}", stacklevel=2)
    return YoloLoader(dataset, batch_size, workers, shuffle and not rect), dataset


def _check_numbers(**given: tuple[Any, int | None]) -> None:
    for name, (value, least) in given.items():
        kind = numbers.Real if name == "pad" else numbers.Integral
        if not isinstance(value, kind) or not math.isfinite(value) or (least is not None and value < least):
            what = "number" if kind is numbers.Real else "integer"
            bound = "" if least is None else f" of at least {least}"
            raise ConfigError(f"{name} {one_line(repr(value))} must be a {what}{bound}")


def _load(path: Source, size: tuple[int, int], single_cls: bool, rank: int) -> YoloImages:
    named = [path] if isinstance(path, (str, os.PathLike)) else path
    if (
        not isinstance(named, Sequence)
        or not named
        or not all(one and isinstance(one, (str, os.PathLike)) for one in named)
    ):
        shown = "an empty list" if isinstance(path, (list, tuple)) and not path else one_line(repr(path))
        raise DataError(f"path is {shown}; pass a folder, or a text file that lists images")
    places = [Path(one) for one in named]
    gathered = Gathered(places[0])
    gather(gathered, (image for place in places for image in _images_of(place)))
    whole = gathered.dataset()
    own = shard(whole, *rank_and_size(rank))
    batch = own.batch(range(len(own)))
    return YoloImages(batch.samples, list(batch.targets or ()), own.rejected, size, single_cls)


def _images_of(place: Path) -> list[Path]:
    """Return the images in or below a folder, those that a text file lists, or the image itself."""
    if os.path.isdir(place):
        return images_below(place)
    if not os.path.isfile(place):  # Path.is_file raises if a name is too long
        raise DataError(f"{place} does not exist; pass a folder of images, or a text file that lists them")
    if is_image(place.name):
        return [place]
    if place.suffix != ".txt":
        raise DataError(f"{place} is neither a folder, nor an image, nor a text file (.txt) that lists images")
    lines = [line.strip() for line in lines_of(place)]
    broken = next((line for line in lines if "\0" in line), None)
    if broken is not None:
        raise DataError(f"{place}: {one_line(broken)[:60]!r} is not a path; write one path per line")
    return [Path(os.path.normpath(place.parent / line)) for line in lines if line]
