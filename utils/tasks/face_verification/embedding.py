"""Face embeddings: detection, alignment by five points, and description."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from engine import Array, ConfigError, DataError, ModelError
from tecoinfer_modelzoo.once import Once
from utils.postprocess.image.faces import Faces, decode_faces
from utils.preprocess.image.alignment import POINTS, TEMPLATE, chip
from utils.preprocess.image.letterbox import letterbox
from utils.preprocess.pytorch.classification import preprocess
from utils.stored import PREPROCESS
from utils.tasks import Model, Options
from utils.tasks.common.image_input import given_size
from utils.tasks.common.outputs import outputs_of

DETECTOR, DESCRIPTOR = "detector", "descriptor"
"""Names of the two models."""

NOTE = "verification"
"""Metadata key of the descriptor, optional: an object with ``compare`` (one of :data:`COMPARES`), ``threshold``
(largest distance, or least similarity, of one person) and ``points`` (five pairs x, y: shares of the chip's sides)."""

EUCLID, COSINE = COMPARES = ("euclid", "cosine")
"""``euclid``: the score is the negative distance of two descriptions. ``cosine``: the cosine of their angle."""

CHOICES = ("largest", "central", "surest")
"""Rules that choose one of several faces."""

FALLBACKS = ("fail", "center")
"""Treatment of an image without a detected face."""

OVERLAP = 0.3
"""Intersection over union above which two boxes are one face."""

DETECTOR_SIZE = 320
"""Height and width in pixels of the detector's input if both are open."""


class FaceResult(NamedTuple):
    """Result of one image; box, points and score are ``None`` without a detected face."""

    description: Array | None  # D float32; None if missing
    faces: int = 1  # number of detected faces; 1 without a detector
    box: tuple[float, ...] | None = None  # left, top, right and bottom of the chosen face in pixels
    points: Array | None = None  # 5 x 2, x and y in pixels
    score: float | None = None  # the detector's score of that face
    reason: str = ""  # reason of a missing description, else empty


NAN_RESULT = FaceResult(np.full(1, np.nan, np.float32))
"""Result of an image for which the detector outputs NaN: all its scores are NaN."""


class DecodedImage(NamedTuple):
    """A decoded image: its path, and pixels H x W x 3 uint8."""

    path: Path
    pixels: Array


@dataclass(frozen=True)
class Notes:
    """Settings of the comparison of two descriptions: the flags', else the stored ones."""

    compare: str  # one of COMPARES
    threshold: float | None  # of a distance or a similarity; None: unknown
    points: Array  # 5 x 2, positions of a face's points in a chip

    @classmethod
    def of(cls, model: Model, options: Options) -> Notes:
        """Read the settings of a descriptor. Raises ModelError if a stored value is invalid."""
        model = model.named.get(DESCRIPTOR, model)
        stored = model.notes(NOTE)
        compare = stored.get("compare", COSINE)
        if compare not in COMPARES:
            raise model.unusable(NOTE, f"compare {compare!r} must be one of {', '.join(COMPARES)}")
        threshold = stored.get("threshold")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, (int, float))):
            raise model.unusable(NOTE, f"threshold {threshold!r} must be a number")
        if options.compare not in (None, compare):
            compare, threshold = options.compare, None  # the stored one does not apply
        threshold = threshold if options.threshold is None else options.threshold
        return cls(compare, None if threshold is None else float(threshold), _points(stored.get("points"), model))

    def score(self, one: Array, other: Array) -> float:
        """Return the similarity of two descriptions; higher is more alike."""
        a, b = one.astype(np.float64), other.astype(np.float64)
        if self.compare == EUCLID:
            return -float(np.sqrt(((a - b) ** 2).sum()))
        size = float(np.sqrt((a**2).sum() * (b**2).sum()))
        return float((a * b).sum()) / size if size else float("nan")

    def same(self, score: float) -> bool | None:
        """Return whether a score means one person; ``None`` if the threshold is unknown or the score is NaN."""
        if self.threshold is None or score != score:  # NaN
            return None
        return score >= (-self.threshold if self.compare == EUCLID else self.threshold)


def _points(given: Any, model: Model) -> Array:
    if given is None:
        return np.array(TEMPLATE)
    try:
        points = np.array(given, np.float64)
    except (TypeError, ValueError):
        points = np.empty(0)
    if points.shape != (POINTS, 2) or not np.isfinite(points).all():
        raise model.unusable(NOTE, f"points must be {POINTS} pairs of x and y, as shares of the chip's sides")
    return points


class Describer:
    """Description of images, each computed once, in the batch where it occurs first.

    Every call of an engine has the same number of rows (the last row is repeated), so the result of an image does not
    depend on the other images, their order, the process, or whether the run was resumed.

    Attributes:
        notes: settings of the comparison.

    Args:
        engines: by name; without a detector images are cropped faces.
        options: the flags.

    Raises:
        ConfigError: A model has other inputs or outputs, or its input size is unknown.
    """

    def __init__(self, engines: Mapping[str, Any], options: Options) -> None:
        self._engines, self._options = engines, options
        models = {name: Model.of(engine) for name, engine in engines.items()}
        self._models, self._rows = models, {name: model.batch or options.batch_size for name, model in models.items()}
        self.notes = Notes.of(models[DESCRIPTOR], options)
        self._sizes = {name: _image_size(name, model, options) for name, model in models.items()}
        self._seen: Once[Path, FaceResult] = Once()

    def of(self, images: Sequence[DecodedImage]) -> list[FaceResult]:
        """Return the result of each image."""
        pixels = {one.path: one.pixels for one in images}
        return self._seen.of([one.path for one in images], lambda new: self._made([pixels[path] for path in new]))

    def _made(self, images: Sequence[Array]) -> list[FaceResult]:
        """Describe new images."""
        found, chips = self._found(images)
        places = [place for place, one in enumerate(chips) if one is not None]
        inputs = [self._input(one) for one in chips if one is not None]
        for place, row in zip(places, self._descriptions(inputs), strict=True):
            found[place] = found[place]._replace(description=row)
        return found

    def _descriptions(self, inputs: Sequence[Array]) -> list[Array]:
        """Return the descriptions of faces, D float32 each, of inputs 1 x C x H x W."""
        if not inputs:
            return []
        found = outputs_of(self._engines[DESCRIPTOR], np.concatenate(inputs), self._rows[DESCRIPTOR])[0]
        if found.ndim < 2 or found.dtype.kind != "f" or found.size != len(found) * max(found.shape[1:]):
            raise ModelError(
                f"{self._models[DESCRIPTOR].ckpt}: its first output is {list(found.shape)} {found.dtype}; expected "
                "N x D floats"
            )
        return list(found.reshape(len(found), -1).astype(np.float32))

    def _found(self, images: Sequence[Array]) -> tuple[list[FaceResult], list[Image.Image | None]]:
        """Return the detector's result of each image, and the cropped face or ``None``."""
        if DETECTOR not in self._engines:
            return [FaceResult(None) for _ in images], [Image.fromarray(pixels) for pixels in images]
        laid = [letterbox(Image.fromarray(pixels), self._sizes[DETECTOR]) for pixels in images]
        raw = [self._normalised(Image.fromarray(canvas), self._models[DETECTOR]) for canvas, _ in laid]
        outputs = outputs_of(self._engines[DETECTOR], np.concatenate(raw), self._rows[DETECTOR])
        geometries = [geometry for _, geometry in laid]
        found = decode_faces(outputs, geometries, self._options.score_threshold, OVERLAP)
        made = [self._cut(faces, pixels) for faces, pixels in zip(found, images, strict=True)]
        for place in np.flatnonzero([any(np.isnan(one[i]).any() for one in outputs) for i in range(len(images))]):
            made[place] = (NAN_RESULT, None)
        return [seen for seen, _ in made], [one for _, one in made]

    def _cut(self, faces: Faces, pixels: Array) -> tuple[FaceResult, Image.Image | None]:
        """Choose a face of an image, and crop it."""
        least = self._options.score_threshold
        if not len(faces):
            if self._options.no_face == "center":
                return FaceResult(None, 0), Image.fromarray(_middle(pixels))
            return FaceResult(None, 0, reason=f"no face with a score of {least:g} or more"), None
        which = _chosen(faces, pixels.shape[:2], self._options.face)
        box, points = tuple(faces.boxes[which].tolist()), np.asarray(faces.landmarks[which])
        seen = FaceResult(None, len(faces), box, points, float(faces.scores[which]))
        try:
            return seen, Image.fromarray(chip(pixels, points, self.notes.points, self._sizes[DESCRIPTOR]))
        except DataError as error:
            return seen._replace(reason=str(error)), None

    def _input(self, face: Image.Image) -> Array:
        """Return a face as the descriptor's input, 1 x C x H x W."""
        model, size = self._models[DESCRIPTOR], self._sizes[DESCRIPTOR]
        notes = model.stored.image
        resize = notes.scaled(size)["resize_shape"] if model.stored.text(PREPROCESS) is not None else size
        return self._normalised(face, model, size if face.size == size[::-1] else resize, size)

    def _normalised(self, image: Image.Image, model: Model, resize: Any = None, size: Any = None) -> Array:
        """Return an image, resized and cropped if sizes are given, as a model's input."""
        own, notes, channels = (image.height, image.width), model.stored.image, model.inputs[0].shape[1]
        image, dtype = image.convert("L") if channels == 1 else image, model.float_dtype
        how: dict[str, Any] = {"mean": notes.mean, "std": notes.std, "interpolation": notes.interpolation}
        made = preprocess(image, "float32" if dtype == "float64" else dtype, resize or own, size or own, **how)
        return (made[:, :1] if channels == 1 else made).astype(model.dtype, copy=False)


def _middle(pixels: Array) -> Array:
    """Return the largest square in the middle of an image."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])


def _chosen(faces: Faces, size: tuple[int, int], rule: str) -> int:
    """Return the index of the face chosen by a rule; faces are sorted by falling score."""
    sides = faces.boxes[:, 2:] - faces.boxes[:, :2]
    if rule == "largest":
        return int(np.argmax(sides[:, 0] * sides[:, 1]))
    if rule == "central":
        middles = (faces.boxes[:, :2] + faces.boxes[:, 2:]) / 2
        return int(np.argmin(((middles - (size[1] / 2, size[0] / 2)) ** 2).sum(axis=1)))
    return int(np.argmax(faces.scores))


def _image_size(name: str, model: Model, options: Options) -> tuple[int, int]:
    """Return height and width of a model's input.
    Raises ConfigError if it does not take images, or its size is unknown."""
    shape = model.inputs[0].shape if len(model.inputs) == 1 else ()
    if len(shape) != 4 or shape[1] not in (1, 3, None):
        shapes = ", ".join(str(list(one.shape)) for one in model.inputs)
        raise ConfigError(f"{model.ckpt}: takes {shapes}; {name} must have one input N x 3 x H x W (or N x 1 x H x W)")
    height, width = shape[2:]
    if height is not None and width is not None:
        return height, width
    if name == DETECTOR:
        return given_size(options) or (DETECTOR_SIZE, DETECTOR_SIZE)
    if model.stored.text(PREPROCESS) is None:
        raise ConfigError(f"{model.ckpt}: its input size is open; export it with a fixed size, or its preprocessing")
    return model.stored.image.crop
