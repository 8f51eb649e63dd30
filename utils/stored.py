"""Metadata of a model, stored by its export.

Metadata is text by key. Ours is JSON, written by :class:`utils.export.onnx_files.ModelNotes`:

- ``class_labels``: a list of class names, in the order of the model's outputs.
- ``preprocess``: an object with ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation``, of images.
- ``provenance``: an object of text by name: source, weights, versions.
- ``vocabulary``: a list of tokens, in the order of their numbers.
- ``sample_rate``: samples of audio per second.
- ``outputs``: an object by output with ``kind`` and ``layout``, values of :mod:`utils.outputs`.

Without ``class_labels``, the class names of Ultralytics' exports are read: ``names``, a Python dict as text; these
models take samples in 0..1 without normalisation.

Domains store further values under their own keys: :meth:`ModelMetadata.json`.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from engine import ModelError
from tecoinfer_modelzoo.json_values import is_number, plain_json
from tecoinfer_modelzoo.text import one_line, shortened
from utils.preprocess.image.modes import CROP, INTERPOLATIONS, MEAN, RESIZE, STD, channel_numbers

LABELS, PREPROCESS, PROVENANCE = "class_labels", "preprocess", "provenance"
VOCABULARY, SAMPLE_RATE, OUTPUTS = "vocabulary", "sample_rate", "outputs"
NAMES, STRIDE = "names", "stride"

OUTPUT_KINDS = ("logits", "probabilities", "log_probabilities", "labels")
OUTPUT_LAYOUTS = ("channels_first", "channels_last")
"""Values of ``outputs``; see :mod:`utils.outputs`."""

LONGEST_LABEL = 250
"""Maximum characters of a class name, because an answer is one line."""

LONGEST = 1 << 16
"""Maximum side of an image in pixels."""

Pair: TypeAlias = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True, repr=False)
class ImageNotes:
    """Preprocessing of images. The defaults are those usual for ImageNet.

    Attributes:
        resize: the short side to resize to in pixels, or (height, width).
        crop: height and width of the central crop in pixels: the size of the exported input.
        mean: per channel, for samples in 0..1; RGB for three channels.
        std: divisor of samples per channel, after the mean is subtracted.
        interpolation: the filter to resize with, one of :data:`utils.preprocess.image.modes.INTERPOLATIONS`.
    """

    resize: int | Pair = RESIZE
    crop: Pair = (CROP, CROP)
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    interpolation: str = "bilinear"

    def scaled(self, size: int | Pair | None = None) -> dict[str, Any]:
        """Return keyword arguments of ``preprocess`` for a model input of another size.

        An image's short side is resized to ``max(size) * resize / max(crop)``, so that the crop shows the same part of
        it; a ``resize`` of height and width is scaled per axis.

        Args:
            size: side of the input in pixels, or its (height, width); ``None``: as exported.

        Returns:
            ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation``.
        """
        height, width = crop = self.crop if size is None else (size, size) if isinstance(size, int) else tuple(size)
        if isinstance(self.resize, int):
            resize: int | Pair = _grown(self.resize, max(self.crop), max(crop))
        else:
            tall, wide = map(_grown, self.resize, self.crop, crop)
            resize = tall, wide
        shapes = {"resize_shape": resize, "crop_shape": (height, width)}
        return {**shapes, "mean": self.mean, "std": self.std, "interpolation": self.interpolation}

    def fitted(self, sizes: Sequence[int | None]) -> dict[str, Any]:
        """Return the result of :meth:`scaled` for an input's (height, width); ``None``: as exported."""
        height, width = (size or side for size, side in zip(sizes, self.crop, strict=True))
        return self.scaled((height, width))


def _grown(resize: int, crop: int, new: int) -> int:
    """Return the resize for another crop that shows the same part of the image."""
    return max(1, round(new * resize / crop))


@dataclass(frozen=True, eq=False, repr=False)
class ModelMetadata:
    """Metadata of an export, checked when it is read; each value is read once.

    Attributes:
        metadata: text by key.
        ckpt: the model file; ``None`` if it is not known.
        fix: last part of error messages.

    Every property and method raises :class:`~tecoinfer_modelzoo.errors.ModelError` for an invalid value, with file,
    key, value and fix in one line.
    """

    metadata: Mapping[str, str]
    ckpt: Path | None = None
    fix: str = "export the model again"

    def text(self, key: str) -> str | None:
        """Return the text of a key, or ``None``."""
        return self.metadata.get(key)

    def json(self, key: str, default: Any = None, numbers: bool = True) -> Any:
        """Return the JSON value of a key, or ``default`` if it is missing.

        Args:
            key: of the metadata. default: for a missing key.
            numbers: whether numbers that are not finite, or integers beyond 64 bits, are invalid.
        """
        text = self.text(key)
        if text is None:
            return default
        try:
            return plain_json(text, numbers)
        except ValueError as error:
            raise self._error(key, f"{_short(text)} is not JSON ({error})") from error

    @cached_property
    def labels(self) -> list[str] | None:
        """Class names in the order of the model's outputs; ``None`` if none are stored."""
        key = LABELS if self.text(LABELS) is not None else NAMES
        found = self._strings(LABELS) if key == LABELS else self._names()
        longest = max(found or (), key=len, default="")
        if len(longest) > LONGEST_LABEL:
            what = f"the name {_short(longest)} has {len(longest)} characters, more than {LONGEST_LABEL}"
            raise self._error(key, what)
        return found

    @property
    def is_ultralytics(self) -> bool:
        """Whether the model is an export of Ultralytics, with names of classes and a stride."""
        return NAMES in self.metadata and STRIDE in self.metadata

    @cached_property
    def vocabulary(self) -> list[str] | None:
        """Tokens in the order of their numbers; ``None`` if none are stored."""
        return self._strings(VOCABULARY)

    @cached_property
    def sample_rate(self) -> int | None:
        """Samples of audio per second; ``None`` if it is not stored."""
        rate = self.json(SAMPLE_RATE, numbers=False)
        if self.text(SAMPLE_RATE) is None:
            return None
        if not _is_whole(rate):
            raise self._error(SAMPLE_RATE, f"{_short(rate)} must be a whole number of samples per second, above 0")
        return int(rate)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Source, weights and versions, by name; empty if not stored. ``random`` weights are untrained."""
        return self._object(PROVENANCE)

    @cached_property
    def outputs(self) -> dict[str, dict[str, str]]:
        """``kind`` and ``layout`` of outputs by their names; empty if not stored."""
        if self.text(OUTPUTS) is None:
            return {}
        found = self._object(OUTPUTS)
        for name, words in found.items():
            known = {"kind": OUTPUT_KINDS, "layout": OUTPUT_LAYOUTS}
            if not isinstance(words, dict):
                raise self._error(OUTPUTS, f"{_short(words)} of {_short(name)} is not a JSON object")
            for key, word in words.items():
                if key not in known or word not in known[key]:
                    takes = f"one of {', '.join(known[key])}" if key in known else "left out"
                    raise self._error(OUTPUTS, f"{_short(key)} {_short(word)} of {_short(name)} must be {takes}")
        return found

    @cached_property
    def image(self) -> ImageNotes:
        """Preprocessing of images: the stored values, and ImageNet's usual ones for missing ones.

        If only the crop is stored, the resize is 256/224 of it.
        """
        found = self._object(PREPROCESS)
        if not found and self.is_ultralytics:
            return ImageNotes(mean=(0.0,) * 3, std=(1.0,) * 3)
        crop = self._side(found, "crop_shape", CROP)
        crop = (crop, crop) if isinstance(crop, int) else crop
        resize = self._side(found, "resize_shape", _grown(RESIZE, CROP, max(crop)) if "crop_shape" in found else RESIZE)
        mean, std = self._channels(found, "mean", MEAN), self._channels(found, "std", STD)
        if len(mean) != len(std):
            raise self._error(PREPROCESS, f"mean has {len(mean)} channels, but std {len(std)}")
        interpolation = found.get("interpolation", "bilinear")
        if interpolation not in INTERPOLATIONS:
            known = ", ".join(INTERPOLATIONS)
            raise self._error(PREPROCESS, f"interpolation {_short(interpolation)} must be one of {known}")
        return ImageNotes(resize, crop, mean, std, interpolation)

    def check(self) -> None:
        """Read all typed values, to raise their errors."""
        for value in ("labels", "vocabulary", "sample_rate", "provenance", "outputs", "image"):
            getattr(self, value)

    def _error(self, key: str, what: str) -> ModelError:
        return ModelError(f"{self.ckpt or 'the model'}: metadata {key!r}: {what}; {self.fix}")

    def _object(self, key: str) -> dict[str, Any]:
        found = self.json(key, {}, numbers=False)
        if not isinstance(found, dict):
            raise self._error(key, f"{_short(found)} is not a JSON object")
        return found

    def _strings(self, key: str) -> list[str] | None:
        found = self.json(key, numbers=False)
        if self.text(key) is None:
            return None
        if not isinstance(found, list) or not found or not all(isinstance(item, str) for item in found):
            raise self._error(key, f"{_short(found)} must be a JSON list of at least one string")
        return found

    def _names(self) -> list[str] | None:
        """Return the class names in Ultralytics' form: ``{0: 'cat', 1: 'dog'}``."""
        text = self.text(NAMES)
        if text is None:
            return None
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
            raise self._error(NAMES, f"{_short(text)} is not a Python dict of names") from error
        by_number = dict(enumerate(found)) if isinstance(found, (list, tuple)) else found
        whole = isinstance(by_number, dict) and sorted(map(repr, by_number)) == sorted(map(repr, range(len(by_number))))
        if not by_number or not whole or not all(isinstance(name, str) for name in by_number.values()):
            raise self._error(NAMES, f"{_short(text)} must be a dict of text by the numbers from 0")
        return [by_number[number] for number in range(len(by_number))]

    def _side(self, found: Mapping[str, Any], name: str, default: int) -> int | Pair:
        value = found.get(name, default)
        sides = value if isinstance(value, list) else [value]
        if len(sides) not in (1, 2) or not all(_is_whole(side) and side <= LONGEST for side in sides):
            wanted = f"a whole number of pixels from 1 to {LONGEST}, or a [height, width] pair of them"
            raise self._error(PREPROCESS, f"{name} {_short(value)} must be {wanted}")
        return (int(sides[0]), int(sides[1])) if len(sides) == 2 else int(sides[0])

    def _channels(self, found: Mapping[str, Any], name: str, default: tuple[float, ...]) -> tuple[float, ...]:
        value = found.get(name, default)
        numbers = channel_numbers(value, name)
        if numbers is None:
            wanted = f"finite numbers{' above 0' if name == 'std' else ''}, one per channel"
            raise self._error(PREPROCESS, f"{name} {_short(value)} must be {wanted}")
        return numbers


def _is_whole(value: Any) -> bool:
    return is_number(value) and value >= 1 and value == int(value)


def _short(value: object) -> str:
    """Return a value for an error message: on one line, and shortened."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = shortened(one_line(text), 60, end=False)
    return repr(text) if isinstance(value, str) else text
