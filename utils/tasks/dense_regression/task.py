"""Dense regression: depth of one image, disparity or depth of two, for every pixel (docs/reference/depth.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError
from utils.datasets.base import Dataset
from utils.datasets.image.dense_maps import MappedImage, MappedImages, TruthFile, load_maps
from utils.metrics.images.dense import DenseErrors
from utils.postprocess.image.class_maps import upsampled
from utils.tasks import Prepared, Rendering
from utils.tasks.common.image_files import ImageFiles
from utils.tasks.common.image_input import ImageTask
from utils.tasks.dense_regression import settings
from utils.tasks.dense_regression.inputs import Context, DenseMap, maps_of, prepared, views_of
from utils.tasks.templates import sample_maps

LEVELS = {"depth": 1000.0, "disparity": 256.0}
"""Levels per unit of the PNGs that are written, as of the layouts that are read."""


class DenseRegression(ImageTask):
    """Models of one image, or of a left and a right one; samples are :class:`.MappedImage`, predictions
    :class:`DenseMap`."""

    name, domain = "dense_regression", "segmentation"
    template = sample_maps.DENSE_REGRESSION
    data_help = "folders of images and depth, or of left and right images and disparity, such as KITTI's, or images"
    flags = settings.FLAGS
    export_settings, metadata_key = settings.EXPORT_SETTINGS, settings.NOTE
    writes, writes_folder = "the maps as PNGs of 16 bits into a folder, 1000 levels per metre or 256 per pixel", True

    def check(self) -> None:
        """Check the options."""
        super().check()
        for key in ("value_scale", "most"):
            given = getattr(self.options, key)
            if given is not None and not given > 0:
                raise ConfigError(f"--{key} {given} must be above 0")

    def input_size(self) -> tuple[tuple[int | None, ...], ...] | None:
        """Return the shape of each input, if the size is given."""
        shapes = super().input_size()
        return None if shapes is None else shapes * self._views()

    def _views(self) -> int:
        """Return the number of images of a sample: the model's inputs, which is not opened yet in ``load``."""
        from engine.onnx import load_model, signature

        path = self.options.models["model"]
        inputs = signature(load_model(path))[0]
        if len(inputs) > 2:
            raise ConfigError(f"{path}: {len(inputs)} inputs; dense regression needs one image, or left and right")
        return len(inputs)

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, in ``valid`` with their true values (:func:`.load_maps`)."""
        found = load_maps(paths, self._views(), self.options.value_scale)
        if self.options.script == "valid":
            return found
        alone = [sample._replace(truth=None) for sample in found.samples]
        return self.selected(MappedImages(alone, next(iter(paths.values())), found.rejected))

    def setup(self, engines: Any, dataset: Dataset) -> None:
        """Check the metadata and the outputs. Raises ModelError or ConfigError for wrong ones."""
        super().setup(engines, dataset)
        for key in settings.USUAL:
            settings.now(key, self.model, self.options)
        settings.range_of(self.model, self.options)
        settings.places_of(self.model)

    def prepare(self, samples: Sequence[MappedImage]) -> Prepared:
        """Return the images, resized to the inputs; without a size, they are filled up to the stored ``multiple``.

        Raises:
            DataError: a file cannot be read, or the sizes of a sample's images and true values differ.
        """
        found = [prepared(sample, self.model, self.options, self.given_size) for sample in samples]
        columns = [list(column) for column in zip(*(arrays for arrays, _ in found), strict=True)]
        equal = all(len({array.shape for array in column}) == 1 for column in columns)
        return Prepared([np.stack(column) if equal else column for column in columns], [one for _, one in found])

    def decode(self, outputs: Any, contexts: Sequence[Context]) -> list[DenseMap]:
        """Return the map of each image at its own size; disparities of a resized image are scaled with its width.

        Raises InputError if an output is not N x 1 x h x w, N x h x w x 1 or N x h x w.
        """
        arrays = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        disparity = settings.now("quantity", self.model, self.options) == "disparity"
        place, second = settings.places_of(self.model)
        values = maps_of(arrays[place], len(contexts), self.model)
        sure = None if second is None else maps_of(arrays[second], len(contexts), self.model)
        found = []
        for row, view in enumerate(views_of(contexts, self.model)):
            factor = np.float32(view.size[1] / view.extent[1] if disparity else 1)
            own = None if sure is None else upsampled(sure[row][None], view)[0]
            found.append(DenseMap(upsampled(values[row][None], view)[0] * factor, own))
        return found

    def metric(self, dataset: Dataset) -> DenseErrors:
        """Return the errors of depth or disparity."""
        quantity, align, relation = (settings.now(key, self.model, self.options) for key in _MEASURED)
        limits = settings.range_of(self.model, self.options)
        return DenseErrors(quantity, self.options.metric or "", align, relation, *limits)

    def reference_answers(self, file: Path, dataset: Dataset) -> list[Array | None]:
        """Read maps of the source framework from a folder of ``.npy`` files, by the names of the (left) images."""
        if not file.is_dir():
            raise DataError(f"{file} is not a folder; pass one with an .npy file, H x W, named like each image")
        files = [file / f"{one.images[0].stem}.npy" for one in dataset.batch(range(len(dataset))).samples]
        return [TruthFile(one, 1.0).read() if one.is_file() else None for one in files]

    def agreement(self, prediction: DenseMap, answer: Array) -> float:
        """Return 1 minus the mean absolute difference over the mean of the answer, at least 0."""
        values = self._quantity(prediction.values)
        if values.shape != answer.shape:
            return 0.0
        scale = float(np.abs(answer).mean())
        return max(0.0, 1 - float(np.abs(values - answer).mean()) / scale) if scale else 0.0

    def _quantity(self, values: Array) -> Array:
        """Return predicted numbers as the quantity, without an alignment."""
        if settings.now("relation", self.model, self.options) == "same":
            return values
        with np.errstate(divide="ignore"):
            return np.where(values > 0, 1 / values, 0).astype(np.float32)

    def prediction_writer(self, path: Path, dataset: Dataset) -> MapFiles:
        """Return a writer of maps."""
        return MapFiles(path, dataset, LEVELS[settings.now("quantity", self.model, self.options)], self._quantity)

    def show(self, sample: MappedImage, prediction: DenseMap) -> Rendering:
        """Return the range and the median; saving draws image, map, confidence and true values in colours."""
        from utils.tasks.dense_regression.drawing import save

        quantity = settings.now("quantity", self.model, self.options)
        inverse = settings.now("relation", self.model, self.options) == "inverse"
        low, middle, high = np.nanpercentile(prediction.values, (0, 50, 100)).tolist()
        height, width = prediction.values.shape
        what = f"inverse {quantity}" if inverse else quantity
        answer = {"width": width, "height": height, "quantity": what, "min": low, "median": middle, "max": high}
        text = f"{what} {low:.4g} to {high:.4g}, median {middle:.4g}"
        truth = None if sample.truth is None or inverse else sample.truth.read()
        return Rendering(text, answer, partial(save, sample.images[0], prediction, truth, text))


_MEASURED = ("quantity", "align", "relation")


class MapFiles(ImageFiles):
    """Writer of maps as PNGs of 16 bits; 0 for what is not a positive number."""

    def __init__(self, folder: Path, dataset: Dataset, levels: float, quantity: Any) -> None:
        super().__init__(folder, dataset)
        self._levels, self._quantity = levels, quantity

    def image(self, prediction: DenseMap) -> Image.Image:
        """Return a map as an image of 16 bits, of values up to 65535 levels."""
        values = np.nan_to_num(self._quantity(prediction.values), nan=0.0, posinf=0.0, neginf=0.0)
        return Image.fromarray(np.rint(values * self._levels).clip(0, 65535).astype(np.uint16))
