"""Image restoration: super-resolution, denoising, low light; metric: PSNR or SSIM (docs/reference/restoration.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from engine import Array, ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.image.restored import Degradation, ImagePair, RestoredImages, load_restored, read_pair, shown
from utils.metrics.images.quality import ImageQuality, enlarged, psnr
from utils.preprocess.image.images import open_image
from utils.preprocess.image.tiles import Tiles
from utils.tasks import Prepared, Rendering, at_least
from utils.tasks.common.image_files import ImageFiles, read_answers
from utils.tasks.common.image_input import ImageTask
from utils.tasks.image_restoration import settings
from utils.tasks.templates import sample_maps


class Context(NamedTuple):
    """Context of an image."""

    low: Array  # the degraded image, H x W x 3 uint8, RGB
    tiles: Tiles  # positions of the tiles in it, filled up at the right and below
    truth: Array | None = None  # the original in valid


class ImageRestoration(ImageTask):
    """Models whose first input and output are images, the output's sides a whole multiple of the input's.

    Samples are paths of degraded images, in ``valid`` pairs with the originals; predictions are H x W x 3 uint8, RGB.
    """

    name, domain = "image_restoration", "restoration"
    template = sample_maps.IMAGE_RESTORATION
    channels = None
    data_help = "folders of originals and degraded images such as HR/ and LR_bicubic/X2/, originals alone, or images"
    flags = settings.FLAGS
    export_settings, metadata_key = settings.EXPORT_SETTINGS, settings.NOTE
    writes, writes_folder = "the restored images as PNGs into a folder", True

    def check(self) -> None:
        """Check the options."""
        super().check()
        at_least(self.options, tile_overlap=0, scale=1, noise_seed=0, crop_border=0)
        if self.options.noise_sigma is not None and not 0 <= self.options.noise_sigma <= 255:
            raise ConfigError(f"--noise_sigma {self.options.noise_sigma} must be from 0 to 255")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, in ``valid`` with their originals (:func:`.load_restored`)."""
        found = load_restored(paths, self.options.scale)
        if self.options.script == "valid":
            return found
        alone = [sample if isinstance(sample, Path) else shown(sample) for sample in found.samples]
        return self.selected(RestoredImages(alone, next(iter(paths.values())), found.rejected))

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Check the metadata and the channels. Raises ModelError or ConfigError for wrong ones."""
        for key in settings.USUAL:
            settings.now(key, self.model, self.options)
        settings.order_of(self.model, self.options)

    def prepare(self, samples: Sequence[ImagePair | Path]) -> Prepared:
        """Return the tiles of all images, one array per image and a :class:`Context` each.

        An image larger than the input is cut into overlapping tiles. A smaller one is filled up by its outermost
        pixels, and so is one whose sides are not the stored ``multiple``, if the input has no size.

        Raises:
            DataError: An image cannot be read. ConfigError: the scale is unknown.
        """
        found = [self._prepared(sample) for sample in samples]
        return Prepared([[tiles for tiles, _ in found]], [context for _, context in found])

    def _prepared(self, sample: ImagePair | Path) -> tuple[Array, Context]:
        model, options, form = self.model, self.options, settings.form_of(self.model)
        low, truth = self._read(sample)
        given = self.given_size or form.size
        multiple = settings.now("multiple", model, options)
        size = low.shape[:2]
        side = [part or -(-whole // multiple) * multiple for part, whole in zip(given, size, strict=True)]
        room = [(0, max(0, part - whole)) for part, whole in zip(side, size, strict=True)]
        planes = np.pad(settings.planes_of(low, settings.order_of(model, options)), [(0, 0), *room], mode="edge")
        overlap = min(settings.now("tile_overlap", model, options), min(side) - 1)
        tiles = Tiles.over(planes.shape[1:], (side[0], side[1]), overlap)
        cut = tiles.cut(settings.to_numbers(planes, self._values()))
        return form.given(cut), Context(low, tiles, truth)

    def _read(self, sample: ImagePair | Path) -> tuple[Array, Array | None]:
        """Return the degraded image, generated if only the original is given, and the original if there is one."""
        if isinstance(sample, Path):
            return np.asarray(open_image(sample)), None
        how = settings.degradation_of(self.model, self.options) if sample.low is None else Degradation("bicubic")
        return read_pair(sample, how)

    def _values(self) -> str:
        """Return the range of the model's numbers; integers are levels."""
        levels = settings.form_of(self.model).takes_levels
        return "0..255" if levels else str(settings.now("pixel_values", self.model, self.options))

    def collate(self, parts: Sequence[Prepared]) -> list[Array]:
        """Return the arrays of tiles of each image, which may differ in size."""
        return [array for part in parts for array in part.arrays[0]]

    def infer(self, engines: Mapping[str, Engine], arrays: Sequence[Array], contexts: Sequence[Context]) -> list[Array]:
        """Return the model's output for each image, 1 x C x H x W: tiles of one size in batches, then joined.

        With ``--skip_postprocess`` return them as one array, N x C x H x W, filled up with zeros at the end.
        """
        (engine,) = engines.values()
        form = settings.form_of(self.model)
        rows = [tile for array in arrays for tile in array]
        by_shape: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for place, row in enumerate(rows):
            by_shape[row.shape].append(place)
        maps: dict[int, Array] = {}
        for places in by_shape.values():
            for start in range(0, len(places), self.options.batch_size):
                part = places[start : start + self.options.batch_size]
                batch = np.stack([rows[place] for place in part])
                inner = batch.transpose(0, 3, 1, 2) if form.last else batch
                maps |= zip(part, settings.maps_of(engine(batch), inner, form.channels, self.model), strict=True)
        found, first = [], 0
        for context in contexts:
            count = len(context.tiles)
            found.append(_joined([maps[first + place] for place in range(count)], context)[None])
            first += count
        return [_filled_up(found)] if getattr(self.options, "skip_postprocess", False) else found

    def decode(self, outputs: Sequence[Array], contexts: Sequence[Context]) -> list[Array]:
        """Return the restored images; by ``--output`` the output is the image, or added to or taken from the input."""
        options, order = self.options, settings.order_of(self.model, self.options)
        kind = settings.now("output", self.model, options)
        found = []
        for output, context in zip(outputs, contexts, strict=True):
            numbers = output[0]
            values = "0..255" if numbers.dtype.kind in "iu" else self._values()
            if kind != "image":
                sign = 1 if kind == "residual" else -1
                before = settings.planes_of(enlarged(context.low, numbers.shape[1:]), order)
                numbers = settings.to_numbers(before, values) + sign * numbers.astype(np.float32)
            found.append(settings.as_image(settings.to_levels(numbers, values), order, context.low))
        return found

    def metric(self, dataset: Dataset) -> ImageQuality:
        """Return PSNR or SSIM."""
        y_channel, border = (settings.now(key, self.model, self.options) for key in ("y_channel", "crop_border"))
        return ImageQuality(self.options.metric, y_channel, border)

    def reference_answers(self, file: Path, dataset: Dataset) -> list[Array | None]:
        """Read the restored images of the source framework from a folder, by the names of the samples' files."""
        return read_answers(file, [shown(sample) for sample in dataset.batch(range(len(dataset))).samples])

    def agreement(self, prediction: Array, answer: Array) -> float:
        """Return 1 minus the root mean square error in units of 255; 0 for images of different sizes."""
        if prediction.shape != answer.shape:
            return 0.0
        return 1 - float(np.sqrt(np.mean((prediction.astype(np.float64) - answer) ** 2))) / 255

    def prediction_writer(self, path: Path, dataset: Dataset) -> ImageFiles:
        """Return a writer of the restored images."""
        return ImageFiles(path, dataset)

    def show(self, sample: ImagePair | Path, prediction: Array) -> Rendering:
        """Return the sizes; saving draws input, output and original side by side, and writes the restored image.
        ``answer["image"]`` is its path after saving."""
        low, truth = self._read(sample)
        height, width = prediction.shape[:2]
        text = f"{low.shape[1]} x {low.shape[0]} to {width} x {height}"
        answer = {"width": width, "height": height, "input_width": low.shape[1], "input_height": low.shape[0]}
        if truth is not None and truth.shape == prediction.shape:
            answer["psnr"] = round(psnr(prediction, truth), 4)
            text += f", PSNR {answer['psnr']:.2f} dB"
        return Rendering(text, answer, partial(_save, shown(sample), low, prediction, truth, answer, text))


def _filled_up(images: Sequence[Array]) -> Array:
    height, width = (max(image.shape[axis] for image in images) for axis in (2, 3))
    spare = [((0, 0), (0, 0), (0, height - image.shape[2]), (0, width - image.shape[3])) for image in images]
    return np.concatenate([np.pad(image, sides) for image, sides in zip(images, spare, strict=True)])


def _joined(maps: Sequence[Array], context: Context) -> Array:
    """Return the outputs of an image's tiles as one, without what the image was filled up with, C x H x W."""
    scale = maps[0].shape[1] // context.tiles.side[0]
    size, side, rows, columns = (tuple(scale * value for value in part) for part in context.tiles)
    tiles = Tiles((size[0], size[1]), (side[0], side[1]), rows, columns)
    whole = np.stack([tiles.joined(channel) for channel in zip(*maps, strict=True)])
    height, width = context.low.shape[:2]
    return whole[:, : scale * height, : scale * width]


def _save(
    file: Path, low: Array, found: Array, truth: Array | None, answer: dict[str, Any], text: str, folder: Path
) -> Path:
    from utils.draw import save_drawn
    from utils.postprocess.image.side_by_side import side_by_side
    from utils.tasks.common.image_files import save_image

    named = {"input": enlarged(low, found.shape[:2]), "output": found}
    drawn = save_drawn(file, [text], folder, side_by_side(named | ({} if truth is None else {"original": truth})))
    answer["image"] = str(save_image(found, drawn.parent / "restored" / drawn.name))
    return drawn
