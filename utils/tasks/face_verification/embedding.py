"""From images to descriptions of the faces on them: find the face, put its points in place, describe it."""

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
from utils.stored import PREPROCESS, PictureNotes
from utils.tasks.base import Options
from utils.tasks.common.fixed_rows import outputs_of
from utils.tasks.model import Model

DETECTOR, DESCRIPTOR = "detector", "descriptor"
"""Names of the two models."""

NOTE = "verification"
"""Key of what a descriptor's export may store: an object with ``compare`` (one of :data:`COMPARES`), ``threshold`` (the
largest distance, or least similarity, of one person) and ``points`` (five pairs x, y: shares of the chip's sides)."""

EUCLID, COSINE = COMPARES = ("euclid", "cosine")
"""``euclid``: the distance of two descriptions; a score is less that. ``cosine``: the cosine of their angle."""

CHOICES = ("largest", "central", "surest")
"""Which of several faces is meant."""

FALLBACKS = ("fail", "center")
"""What happens to an image on which no face is found."""

OVERLAP = 0.3
"""Intersection over union above which two boxes are one face."""


DETECTOR_SIZE = 320
"""Height and width in pixels that images have for a detector whose input may have any."""


class Seen(NamedTuple):
    """What was made of one image.

    Attributes:
        description: D float32; ``None`` where there is none.
        faces: how many faces were found; 1 where nobody looked.
        box: left, top, right and bottom of the chosen one in pixels; ``None`` where there is none.
        points: 5 x 2, x and y in pixels, likewise.
        score: of the detector, for that face; NaN where there is none.
        reason: why there is no description; empty where there is one.
    """

    description: Array | None
    faces: int = 1
    box: tuple[float, ...] | None = None
    points: Array | None = None
    score: float | None = None
    reason: str = ""


LOST = Seen(np.full(1, np.nan, np.float32))
"""An image for which a detector's output holds NaN: so does every score of it."""


class Looked(NamedTuple):
    """An image by its path, and its pixels, H x W x 3 uint8."""

    path: Path
    pixels: Array


@dataclass(frozen=True)
class Notes:
    """How two descriptions are compared: what the flags say, else what the export stored.

    Attributes:
        compare: one of :data:`COMPARES`. threshold: of a distance or a similarity; ``None``: nobody said one.
        points: 5 x 2, where a face's points lie in a chip.
    """

    compare: str
    threshold: float | None
    points: Array

    @classmethod
    def of(cls, model: Model, options: Options) -> Notes:
        """Read them of a descriptor.

        Raises:
            ModelError: what is stored is none of that.
        """
        model = model.named.get(DESCRIPTOR, model)
        stored = model.stored.json(NOTE, {})
        if not isinstance(stored, dict):
            raise _wrong(model, f"{stored!r} is not a JSON object")
        compare = stored.get("compare", COSINE)
        if compare not in COMPARES:
            raise _wrong(model, f"compare {compare!r} must be one of {', '.join(COMPARES)}")
        threshold = stored.get("threshold")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, (int, float))):
            raise _wrong(model, f"threshold {threshold!r} must be a number")
        if options.compare not in (None, compare):
            compare, threshold = options.compare, None  # a stored one is of the other way
        threshold = threshold if options.threshold is None else options.threshold
        return cls(compare, None if threshold is None else float(threshold), _points(stored.get("points"), model))

    def score(self, one: Array, other: Array) -> float:
        """Return how alike two descriptions are; higher is more."""
        a, b = one.astype(np.float64), other.astype(np.float64)
        if self.compare == EUCLID:
            return -float(np.sqrt(((a - b) ** 2).sum()))
        size = float(np.sqrt((a**2).sum() * (b**2).sum()))
        return float((a * b).sum()) / size if size else float("nan")

    def same(self, score: float) -> bool | None:
        """Say whether a score is of one person; ``None`` where nothing says so: no threshold, NaN."""
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
        raise _wrong(model, f"points must be {POINTS} pairs of x and y, as shares of the chip's sides")
    return points


def _wrong(model: Model, what: str) -> ModelError:
    return ModelError(f"{model.ckpt}: metadata {NOTE!r}: {what}; export the model again")


class Describer:
    """Describes images, each once, in whichever batch it comes first.

    Every call of an engine has the same number of rows (the last ones repeated where there are fewer), so what is found
    on an image does not hang on the images beside it: not in another order, another process or a resumed run.

    Attributes:
        notes: how descriptions are compared.

    Args:
        engines: by name; without a detector images are faces cut out already.
        options: the flags.

    Raises:
        ConfigError: a model has other inputs or outputs than such a model, or its size is not known.
    """

    def __init__(self, engines: Mapping[str, Any], options: Options) -> None:
        self._engines, self._options = engines, options
        models = {name: Model.of(engine) for name, engine in engines.items()}
        self._models, self._rows = models, {name: model.batch or options.batch_size for name, model in models.items()}
        self.notes = Notes.of(models[DESCRIPTOR], options)
        self._sizes = {name: _picture_size(name, model, options) for name, model in models.items()}
        self._seen: Once[Path, Seen] = Once()

    def of(self, pictures: Sequence[Looked]) -> list[Seen]:
        """Return what is on each image."""
        pixels = {one.path: one.pixels for one in pictures}
        return self._seen.of([one.path for one in pictures], lambda new: self._made([pixels[path] for path in new]))

    def _made(self, pictures: Sequence[Array]) -> list[Seen]:
        """Describe new images."""
        found, chips = self._found(pictures)
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
                f"{self._models[DESCRIPTOR].ckpt}: its first output is {list(found.shape)} {found.dtype}; a descriptor "
                "gives N x D floats"
            )
        return list(found.reshape(len(found), -1).astype(np.float32))

    def _found(self, pictures: Sequence[Array]) -> tuple[list[Seen], list[Image.Image | None]]:
        """Return what a detector says of each image, and the face cut out of it, where there is one."""
        if DETECTOR not in self._engines:
            return [Seen(None) for _ in pictures], [Image.fromarray(pixels) for pixels in pictures]
        model = self._models[DETECTOR]
        notes = model.stored.picture
        laid = [letterbox(Image.fromarray(pixels), self._sizes[DETECTOR]) for pixels in pictures]
        raw = [self._normalised(Image.fromarray(canvas), notes, model) for canvas, _ in laid]
        outputs = outputs_of(self._engines[DETECTOR], np.concatenate(raw), self._rows[DETECTOR])
        geometries = [geometry for _, geometry in laid]
        found = decode_faces(outputs, geometries, self._options.score_threshold, OVERLAP)
        made = [self._cut(faces, pixels) for faces, pixels in zip(found, pictures, strict=True)]
        for place in np.flatnonzero([any(np.isnan(one[i]).any() for one in outputs) for i in range(len(pictures))]):
            made[place] = (LOST, None)
        return [seen for seen, _ in made], [one for _, one in made]

    def _cut(self, faces: Faces, pixels: Array) -> tuple[Seen, Image.Image | None]:
        """Choose a face of an image, and cut it out."""
        least = self._options.score_threshold
        if not len(faces):
            if self._options.no_face == "center":
                return Seen(None, 0), Image.fromarray(_middle(pixels))
            return Seen(None, 0, reason=f"no face with a score of {least:g} or more"), None
        which = _chosen(faces, pixels.shape[:2], self._options.face)
        box, points = tuple(faces.boxes[which].tolist()), np.asarray(faces.landmarks[which])
        seen = Seen(None, len(faces), box, points, float(faces.scores[which]))
        try:
            return seen, Image.fromarray(chip(pixels, points, self.notes.points, self._sizes[DESCRIPTOR]))
        except DataError as error:
            return seen._replace(reason=str(error)), None

    def _input(self, face: Image.Image) -> Array:
        """Return a face as the descriptor takes it, 1 x C x H x W."""
        model, size = self._models[DESCRIPTOR], self._sizes[DESCRIPTOR]
        notes = model.stored.picture
        resize = notes.scaled(size)["resize_shape"] if model.stored.text(PREPROCESS) is not None else size
        return self._normalised(face, notes, model, size if face.size == size[::-1] else resize, size)

    def _normalised(
        self,
        picture: Image.Image,
        notes: PictureNotes,
        model: Model,
        resize: int | tuple[int, int] | None = None,
        size: tuple[int, int] | None = None,
    ) -> Array:
        own = picture.height, picture.width
        channels = model.inputs[0].shape[1]
        made = preprocess(
            picture.convert("L") if channels == 1 else picture,
            "float32" if model.float_dtype == "float64" else model.dtype,
            own if resize is None else resize,
            own if size is None else size,
            mean=notes.mean,
            std=notes.std,
            interpolation=notes.interpolation,
        )
        return (made[:, :1] if channels == 1 else made).astype(model.dtype, copy=False)


def _middle(pixels: Array) -> Array:
    """Return the largest square in the middle of an image."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])


def _chosen(faces: Faces, size: tuple[int, int], rule: str) -> int:
    """Return which face a rule means; of equal ones the surer."""
    sides = faces.boxes[:, 2:] - faces.boxes[:, :2]
    if rule == "largest":
        return int(np.argmax(sides[:, 0] * sides[:, 1]))
    if rule == "central":
        middles = (faces.boxes[:, :2] + faces.boxes[:, 2:]) / 2
        return int(np.argmin(((middles - (size[1] / 2, size[0] / 2)) ** 2).sum(axis=1)))
    return int(np.argmax(faces.scores))


def _picture_size(name: str, model: Model, options: Options) -> tuple[int, int]:
    """Return height and width of a model's input.

    Raises:
        ConfigError: it takes no images, or its size is not known.
    """
    shape = model.inputs[0].shape if len(model.inputs) == 1 else ()
    if len(shape) != 4 or shape[1] not in (1, 3, None):
        shapes = ", ".join(str(list(one.shape)) for one in model.inputs)
        raise ConfigError(f"{model.ckpt}: takes {shapes}; a {name} takes one input N x 3 x H x W (or N x 1 x H x W)")
    height, width = shape[2:]
    if height is not None and width is not None:
        return height, width
    if name == DETECTOR:
        return given_size(options) or (DETECTOR_SIZE, DETECTOR_SIZE)
    if model.stored.text(PREPROCESS) is None:
        raise ConfigError(f"{model.ckpt}: its input may have any size; export it with one, or with its preprocessing")
    return model.stored.picture.crop


def given_size(options: Options) -> tuple[int, int] | None:
    """Return height and width as ``--input_size`` says them."""
    given = options.input_size
    if given is None:
        return None
    sides = [given] if isinstance(given, int) else list(given)
    return sides[0], sides[-1]
