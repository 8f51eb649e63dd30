"""Semantic segmentation: the class of every pixel of an image; the metric is the mean IoU."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError, ModelError, channels_last
from utils.datasets.base import Batch, Dataset
from utils.datasets.image.mask_codes import IGNORED
from utils.datasets.image.masks import (
    FOREGROUND,
    NOTHING,
    Labelled,
    MaskedImages,
    MaskFile,
    Reading,
    Truth,
    image_of,
    load_masks,
)
from utils.metrics.base import Metric
from utils.metrics.class_names import VOC_TO_COCO, hint
from utils.outputs import LABELS
from utils.postprocess.image.class_maps import View, best_classes, foreground, nearest_classes
from utils.preprocess.image.images import open_image
from utils.preprocess.image.letterbox import FILL
from utils.preprocess.pytorch.classification import preprocess
from utils.tasks import PredictionWriter, Prepared, Rendering, at_least
from utils.tasks.common.image_input import ImageTask
from utils.tasks.segmentation.input import FLAGS, KEEP, SHORT_SIDE, Geometry, form_of, geometry_of
from utils.tasks.segmentation.output import class_count, read
from utils.tasks.templates import sample_images

SHOWN = 8
"""Number of classes on the answer's line; the JSON has all."""

BACKGROUND = ("background", "__background__", "bg", "unlabelled", "unlabeled", "void")
"""Names of the class of pixels outside of all regions, which is not drawn."""

OTHER_NAMES = {coco: voc for voc, coco in VOC_TO_COCO.items()}
"""VOC's names of COCO's categories: torchvision's networks have VOC's labels."""


class Context(NamedTuple):
    """Context of an image."""

    view: View  # placement in the input
    truth: Array | None = None  # target classes in valid
    decided: str = ""  # meaning of 255 in its mask, if it was not given


class Segmentation(ImageTask):
    """Models with the outputs that :meth:`decode` describes; others override it.

    Samples are paths of images, or these with their masks; predictions are H x W int16.
    """

    name = "segmentation"
    domain = "segmentation"
    domain_default = True
    template = sample_images.SEGMENTATION
    data_help = "a folder with images/ and masks/, a known data set's folder, COCO's JSON, or images"
    flags = FLAGS
    writes = "the classes of every image as PNGs into a folder"
    writes_folder = True

    def check(self) -> None:
        """Check the options."""
        super().check()
        opt = self.options
        at_least(opt, short_side=1)
        if not 0 < opt.threshold < 1:
            raise ConfigError(f"--threshold {opt.threshold} must be above 0 and below 1")

    def load(self, paths: Mapping[str, Path]) -> Dataset:
        """Return the images, in ``valid`` with their masks (:func:`.load_masks`)."""
        opt = self.options
        found = load_masks(paths, Reading(opt.data_format, opt.split, opt.ignore_label, opt.overlap, opt.unlisted))
        if opt.script == "valid":
            return found
        source = paths.get("data") or paths["images"]
        return MaskedImages([image_of(sample) for sample in found.samples], source, found.rejected)

    @property
    def given_size(self) -> tuple[int, int] | None:
        """Height and width of the input by ``--input_size``; ``None`` if they differ by image."""
        return None if self.options.resize in (SHORT_SIDE, KEEP) else super().given_size

    def prepare(self, samples: Sequence[Labelled | Path], *, out: Array | None = None) -> Prepared:
        """Resize and normalise images by ``--resize`` and the metadata, and read their masks.

        Args:
            samples: paths of images, or these with their masks.
            out: an array to write into; used if it has the shape of the batch.

        Raises:
            DataError: An image or a mask cannot be read, or their sizes differ.
            ConfigError: The input's size is unknown.
        """
        model, geometry = self.model, geometry_of(self.model, self.options, self.given_size)
        if geometry.canvas is None or not form_of(model).plain:
            parts = [self._prepared(sample, geometry, None) for sample in samples]
            arrays = [array for array, _ in parts]
            return Prepared(
                [arrays if geometry.canvas is None else np.stack(arrays)], [context for _, context in parts]
            )
        shape = (len(samples), 3, *geometry.canvas)
        fits = out is not None and out.shape == shape and out.dtype == model.dtype
        result = out if out is not None and fits else np.empty(shape, model.dtype)
        contexts = [self._prepared(sample, geometry, result[i : i + 1])[1] for i, sample in enumerate(samples)]
        return Prepared([result], contexts)

    def _prepared(self, sample: Labelled | Path, geometry: Geometry, place: Array | None) -> tuple[Array, Context]:
        """Return one image as the model's input, and its context; written to ``place`` if given."""
        model, notes, form = self.model, self.model.stored.image, form_of(self.model)
        (image,) = form.opened([open_image(image_of(sample))])
        size = image.height, image.width
        view = geometry.placed(*size)
        if geometry.canvas is not None and view.extent != view.canvas:
            image = _within(image, view, Image.Resampling[notes.interpolation.upper()])
        target = view.canvas if geometry.canvas is not None else view.extent
        how: dict[str, Any] = {**form.scale(notes.mean, notes.std, model.ckpt), "interpolation": notes.interpolation}
        array = preprocess(image, model.dtype if form.plain else "float32", target, target, out=place, **how)[0]
        if target != view.canvas:
            rest = [(0, whole - part) for whole, part in zip(view.canvas, target, strict=True)]
            array = np.pad(array, [(0, 0), *rest])
        array = array if form.plain else form.given(array[None])[0]
        truth, decided = (None, "") if isinstance(sample, Path) else self._truth(sample, size)
        if self.options.evaluate_at == "model":
            view = view._replace(size=view.extent)
            if truth is not None:  # like Pillow's ``nearest``: the pixel that contains the centre
                truth = nearest_classes(truth, View(view.extent, (0, 0), truth.shape, truth.shape))
        return array, Context(view, truth, decided)

    def _truth(self, sample: Labelled, size: tuple[int, int]) -> tuple[Array, str]:
        """Return the target of an image, H x W int16, in the model's classes, and the meaning of 255."""
        truth: Truth = sample.truth
        count = self._class_count()
        found, decided = truth.read_for(size, count) if isinstance(truth, MaskFile) else (truth.read(size), "")
        if truth.classes is not None:
            labels = self.model.stored.labels
            table = _table(truth.classes, None if labels is None else tuple(labels), self.options.unlisted)
            found = np.where(found < 0, IGNORED, table[np.maximum(found, 0)]).astype(np.int16)
        if count is not None and found.max(initial=-1) >= count:
            row, column = np.argwhere(found >= count)[0]
            raise DataError(
                f"{truth.files[0]}: class {found[row, column]} at {column},{row} (column, row), and "
                f"{self.model.ckpt.name} has {count} classes (0 to {count - 1}); correct the mask, or pass "
                "--data_format"
            )
        return found, decided

    def _class_count(self) -> int | None:
        """Return the number of classes of the output, else of the labels; ``None`` if unknown."""
        found = class_count(self.model, self.options, self._place) if self.model.outputs else None
        labels = self.model.stored.labels
        return found if found is not None or labels is None else len(labels)

    @property
    def _place(self) -> int:
        """Index of the output with the classes: ``logits``, ``out``, or the first."""
        names = [spec.name for spec in self.model.outputs]
        return next((names.index(name) for name in ("logits", "out") if name in names), 0)

    def decode(self, outputs: Any, contexts: Any) -> Sequence[Array]:
        """Return the class of every pixel of each image, H x W int16; -1 for NaN.

        The output (``logits``, ``out``, or the first) has one of these forms, determined by :mod:`utils.outputs`:

        - N x C x h x w or N x h x w x C floats, one score per class: resized to the image (bilinear,
          ``align_corners=False``, as torchvision and mmsegmentation do), then the argmax. Of probabilities the
          logarithms are resized.
        - N x 1 x h x w, N x h x w x 1 or N x h x w floats, foreground scores: resized, and 1 where the probability is
          at least ``--threshold``. - N x h x w, N x 1 x h x w or N x h x w x 1 class numbers, of any dtype:
          nearest-neighbour resizing.

        Raises:
            InputError: The output has another shape.
            ModelError: The number of labels is not that of classes, or the kind of the output is unknown.
        """
        found = outputs[self._place] if isinstance(outputs, (list, tuple)) else outputs
        views = self._views(contexts)
        canvas = views[0].canvas if views else (1, 1)
        maps = read(found, len(contexts), canvas, self.model, self.options, self._place)
        pairs = zip(maps.values, views, strict=True)
        if maps.kind == LABELS:
            return [nearest_classes(one, view) for one, view in pairs]
        channels = maps.values.shape[1]
        self._refuse_classes(contexts, max(2, channels))
        if channels == 1:
            return [foreground(maps.scores(one[0]), view, self.options.threshold) for one, view in pairs]
        return [best_classes(maps.scores(one), view) for one, view in pairs]

    def _views(self, contexts: Sequence[Context]) -> list[View]:
        """Return the placement of the images in the input of their batch, which is padded to the largest image or
        plan."""
        model, views = self.model, [context.view for context in contexts]
        spec, canvas = model.inputs[0] if model.inputs else None, []
        first = 1 if spec is not None and channels_last(spec.shape) else 2
        for axis in (0, 1):
            longest = max(view.canvas[axis] for view in views)
            declared = spec.shape[first + axis] if spec is not None and len(spec.shape) == 4 else None
            symbol = spec.symbols[first + axis] if spec is not None and spec.symbols else None
            planned = [size for size in model.dims.get(symbol or "", ()) if size >= longest]
            canvas.append(declared or min(planned, default=longest))
        return [view._replace(canvas=(canvas[0], canvas[1])) for view in views]

    def _refuse_classes(self, contexts: Sequence[Context], count: int) -> None:
        """Raise DataError for masks with classes that the output lacks, if only the output defines their number."""
        if self._class_count() is not None:
            return
        top = max((int(one.truth.max(initial=-1)) for one in contexts if one.truth is not None), default=-1)
        if top >= count:
            raise DataError(
                f"a mask has class {top}, and {self.model.ckpt.name} has {count} classes (0 to {count - 1}); correct "
                "the masks, or pass --data_format"
            )

    def metric(self, dataset: Dataset) -> Metric:
        """Return the mean IoU; figures per class have the stored names."""
        from utils.metrics.segmentation import MeanIoU

        return MeanIoU(self.model.stored.labels)

    def warning_counts(self, contexts: Sequence[Context] | None) -> Mapping[str, int]:
        """Count the masks of 0 and 255 by the meaning of 255."""
        return Counter(context.decided for context in contexts or () if context.decided)

    def format_warnings(self, counts: Mapping[str, int], samples: int) -> list[str]:
        """Return lines about the meaning of 255 in masks of 0 and 255, and the flag that changes it."""
        said = {
            FOREGROUND: "is read as class 1, the foreground; --ignore_label 255 ignores it",
            NOTHING: "is ignored; --data_format binary reads it as class 1",
        }
        return [
            f"{counts[key]} of {samples} masks are of a data set with masks of 0 and 255 only: 255 {what}"
            for key, what in said.items()
            if counts.get(key)
        ]

    def show(self, sample: Labelled | Path, prediction: Array) -> Rendering:
        """Return the classes with their share of the pixels; saving draws them over the image and writes the mask.
        ``answer["mask"]`` is the path of the palette PNG after saving."""
        names = self.model.stored.labels
        places, pixels = np.unique(prediction[prediction >= 0], return_counts=True)
        if names is not None and max(places.tolist(), default=-1) >= len(names):
            raise ModelError(
                f"{self.model.ckpt}: stores {len(names)} labels and found class {places.max()}; export it with all "
                "labels"
            )
        order = np.argsort(-pixels, kind="stable")
        classes = [
            {
                "class": place,
                "label": names[place] if names else str(place),
                "pixels": count,
                "share": round(count / prediction.size, 6),
            }
            for place, count in zip(places[order].tolist(), pixels[order].tolist(), strict=True)
        ]
        answer = {"width": prediction.shape[1], "height": prediction.shape[0], "classes": classes}
        save = partial(_save, image_of(sample), prediction, answer, names)
        return Rendering(_in_words(classes), answer, save)

    def summary(self, predictions: Sequence[Array]) -> str:
        """Return the shares of the most frequent classes in all images."""
        names = self.model.stored.labels
        counts = np.zeros(1 + max(int(one.max(initial=0)) for one in predictions), np.int64)
        for one in predictions:
            counts += np.bincount(one[one >= 0], minlength=len(counts))
        order = np.argsort(-counts, kind="stable")[:SHOWN]
        total = max(1, int(counts.sum()))
        return ", ".join(
            f"{names[i] if names and i < len(names) else i} {100 * counts[i] / total:.1f} %" for i in order if counts[i]
        )

    def prediction_writer(self, path: Path, dataset: Dataset) -> PredictionWriter:
        """Return a writer of masks."""
        return MaskFiles(path, dataset)


def _within(image: Image.Image, view: View, resample: Image.Resampling) -> Image.Image:
    """Return an image on a grey canvas."""
    inner = image if image.size == view.extent[::-1] else image.resize(view.extent[::-1], resample)
    canvas = Image.new("RGB", view.canvas[::-1], (FILL,) * 3)
    canvas.paste(inner, view.start[::-1])
    return canvas


@lru_cache
def _table(names: tuple[str, ...], labels: tuple[str, ...] | None, unlisted: str) -> Array:
    """Return the model's class of each class of a data set, int16; the same number if the model has no labels.
    Pixels outside of all regions are ignored if the model has no background class."""
    if labels is None:
        return np.arange(len(names), dtype=np.int16)
    known = {label: place for place, label in enumerate(labels)}
    empty = next((place for place, label in enumerate(labels) if label.lower() in BACKGROUND), IGNORED)
    table = [empty]
    for name in names[1:]:
        place = known.get(name, known.get(OTHER_NAMES.get(name, name)))
        if place is None and unlisted == "refuse":
            raise ConfigError(
                f"category {name!r} of the data set is not among the model's {len(labels)} labels"
                f"{hint(name, labels)}; rename it, or pass --unlisted background or --unlisted ignore"
            )
        table.append(place if place is not None else empty if unlisted == "background" else IGNORED)
    return np.array(table, np.int16)


def _in_words(classes: Sequence[Mapping[str, Any]]) -> str:
    parts = [f"{one['label']} {100 * one['share']:.1f} %" for one in classes[:SHOWN]]
    rest = [f"and {len(classes) - SHOWN} more"] if len(classes) > SHOWN else []
    return f"{len(classes)} class{'' if len(classes) == 1 else 'es'}: {', '.join(parts + rest)}"


def _save(image: Path, prediction: Array, answer: dict[str, Any], names: Sequence[str] | None, folder: Path) -> Path:
    """Draw the classes over the image, write the mask into ``masks/`` next to it, and add its path to the answer."""
    from utils.draw import save_drawn
    from utils.postprocess.image.drawn_masks import overlay, palette_mask

    empty = 0 if names is None or names[0].lower() in BACKGROUND else None
    drawn = save_drawn(image, [], folder, overlay(open_image(image), prediction, answer["classes"], empty))
    mask = drawn.parent / "masks" / drawn.name
    try:
        mask.parent.mkdir(exist_ok=True)
        palette_mask(prediction).save(mask, optimize=True)
    except OSError as error:
        raise ConfigError(f"cannot write {mask} ({error.strerror or error}); choose another folder") from error
    answer["mask"] = str(mask)
    return drawn


class MaskFiles:
    """Writer of the classes of each image as a palette PNG, at its path below the common folder of all images.

    If images differ only in their endings, a hash of the path is appended to the stem. A missing folder is created.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self.folder = folder
        names = dataset.batch(range(len(dataset))).names
        self._top = os.path.commonpath([os.path.dirname(name) for name in names]) if names else ""
        self._times = Counter(self._below(name).with_suffix("") for name in names)

    def _below(self, name: str) -> Path:
        return Path(os.path.relpath(name, self._top))

    def _file(self, name: str) -> Path:
        from utils.draw import file_name

        below = self._below(name)
        again = self._times[below.with_suffix("")] > 1
        ending = f"-{sha256(os.fsencode(below)).hexdigest()[:12]}.png" if again else ".png"
        return self.folder / below.with_name(file_name(below.stem, ending))

    def see(self, batch: Batch, predictions: Sequence[Array]) -> None:
        """Write the masks of a batch."""
        from utils.postprocess.image.drawn_masks import palette_mask

        for name, prediction in zip(batch.names, predictions, strict=True):
            file = self._file(name)
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                palette_mask(prediction).save(file, optimize=True)
            except OSError as error:
                reason = error.strerror or error
                raise ConfigError(f"--save_predictions: {file} cannot be written ({reason})") from error

    def close(self) -> None:
        """Do nothing: ``see`` writes all files."""
