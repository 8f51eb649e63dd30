"""What an export stored in a model's metadata, read in one place.

A model's metadata is text by key. Ours is JSON, written by :class:`utils.export.onnx_files.ModelNotes`:

- ``class_labels``: a list of class names, in the order of the model's outputs.
- ``preprocess``: an object with ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation``, of images.
- ``provenance``: an object of text by name: source, weights, versions.
- ``vocabulary``: a list of tokens, in the order of their numbers.
- ``sample_rate``: samples of audio per second.
- ``outputs``: an object by output with ``kind`` and ``layout``, words of :mod:`utils.outputs`.

Where there are none, the class names that Ultralytics' exports store as ``names`` are read, a Python dict as text; such
a model takes samples in 0..1 as they are.

A domain keeps what else it needs under keys of its own: :meth:`Stored.json`.
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
"""What ``outputs`` may hold; :mod:`utils.outputs` says what the words mean."""

LONGEST_LABEL = 250
"""Characters of a class name: those of an answer stand in one line."""

LONGEST = 1 << 16
"""Longest side of an image that is believed, in pixels."""

Pair: TypeAlias = tuple[int, int]
"""Height and width in pixels."""


@dataclass(frozen=True)
class PictureNotes:
    """How images become a model's input. The defaults are ImageNet's usual ones.

    Attributes:
        resize: the short side to resize to in pixels, or (height, width).
        crop: height and width of what is cut from the centre, in pixels: the size of the input that was exported.
        mean: per channel, of samples in 0..1; RGB unless the model has another number of channels.
        std: what samples are divided by, per channel, after the mean is subtracted.
        interpolation: the filter to resize with, one of :data:`utils.preprocess.image.modes.INTERPOLATIONS`.
    """

    resize: int | Pair = RESIZE
    crop: Pair = (CROP, CROP)
    mean: tuple[float, ...] = MEAN
    std: tuple[float, ...] = STD
    interpolation: str = "bilinear"

    def scaled(self, size: int | Pair | None = None) -> dict[str, Any]:
        """Return keyword arguments of ``preprocess`` for a model input of another size.

        An image's short side is resized to ``max(size) * resize / max(crop)``, so the same part of it is seen; where
        ``resize`` is a height and a width, each grows as the crop's does.

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
        """Do what :meth:`scaled` does for an input's (height, width); ``None``: as exported."""
        height, width = (size or side for size, side in zip(sizes, self.crop, strict=True))
        return self.scaled((height, width))


def _grown(resize: int, crop: int, new: int) -> int:
    """Return what to resize to for another crop, so that the same part of the image is seen."""
    return max(1, round(new * resize / crop))


@dataclass(frozen=True, eq=False, repr=False)
class Stored:
    """What an export stored, checked as it is read; each value is read once.

    Attributes:
        metadata: text by key.
        ckpt: the file it comes from; ``None`` where that is not known.
        fix: what an error advises.

    Every property and method raises :class:`~tecoinfer_modelzoo.errors.ModelError` with one line that names file, key,
    value and fix where the text cannot be what it should be.
    """

    metadata: Mapping[str, str]
    ckpt: Path | None = None
    fix: str = "export the model again"

    def text(self, key: str) -> str | None:
        """Return what is stored under a key, as it is; ``None`` where nothing is."""
        return self.metadata.get(key)

    def json(self, key: str, default: Any = None, numbers: bool = True) -> Any:
        """Return the value of the JSON under a key; ``default`` where nothing is stored.

        ``numbers``: refuse those that are not finite, or whole and beyond 64 bits; ``False``: the caller does.
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
        """Class names in the order of the model's outputs; ``None`` where none are stored."""
        key = LABELS if self.text(LABELS) is not None else NAMES
        found = self._strings(LABELS) if key == LABELS else self._names()
        longest = max(found or (), key=len, default="")
        if len(longest) > LONGEST_LABEL:
            what = f"the name {_short(longest)} has {len(longest)} characters, and at most {LONGEST_LABEL} are taken"
            raise self._error(key, what)
        return found

    @property
    def is_ultralytics(self) -> bool:
        """Whether another project's export, Ultralytics', stored what there is: names of classes, and a stride."""
        return NAMES in self.metadata and STRIDE in self.metadata

    @cached_property
    def vocabulary(self) -> list[str] | None:
        """Tokens in the order of their numbers; ``None`` where none are stored."""
        return self._strings(VOCABULARY)

    @cached_property
    def sample_rate(self) -> int | None:
        """Samples of audio per second; ``None`` where none is stored."""
        rate = self.json(SAMPLE_RATE, numbers=False)
        if self.text(SAMPLE_RATE) is None:
            return None
        if not _is_whole(rate):
            raise self._error(SAMPLE_RATE, f"{_short(rate)} must be a whole number of samples per second, above 0")
        return int(rate)

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Source, weights and versions, by name; empty where nothing is stored. Weights ``random`` mean nothing."""
        return self._object(PROVENANCE)

    @cached_property
    def outputs(self) -> dict[str, dict[str, str]]:
        """What outputs are, by their names: ``kind`` and ``layout``; empty where nothing is stored."""
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
    def picture(self) -> PictureNotes:
        """How images become the model's input: what is stored, and ImageNet's usual values for the rest.

        Where only the crop is stored, the resize is 256/224 of it.
        """
        found = self._object(PREPROCESS)
        if not found and self.is_ultralytics:
            return PictureNotes(mean=(0.0,) * 3, std=(1.0,) * 3)
        crop = self._side(found, "crop_shape", CROP)
        crop = (crop, crop) if isinstance(crop, int) else crop
        resize = self._side(found, "resize_shape", _grown(RESIZE, CROP, max(crop)) if "crop_shape" in found else RESIZE)
        mean, std = self._channels(found, "mean", MEAN), self._channels(found, "std", STD)
        if len(mean) != len(std):
            raise self._error(PREPROCESS, f"mean has {len(mean)} channels and std {len(std)}; both need equally many")
        interpolation = found.get("interpolation", "bilinear")
        if interpolation not in INTERPOLATIONS:
            known = ", ".join(INTERPOLATIONS)
            raise self._error(PREPROCESS, f"interpolation {_short(interpolation)} must be one of {known}")
        return PictureNotes(resize, crop, mean, std, interpolation)

    def check(self) -> None:
        """Read everything that has a type of its own, for its errors."""
        for value in ("labels", "vocabulary", "sample_rate", "provenance", "outputs", "picture"):
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
            raise self._error(key, f"{_short(found)} must be a JSON list of strings, one at least")
        return found

    def _names(self) -> list[str] | None:
        """Return the class names in Ultralytics' form: ``{0: 'cat', 1: 'dog'}``."""
        text = self.text(NAMES)
        if text is None:
            return None
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError) as error:
            raise self._error(NAMES, f"{_short(text)} is no Python dict of names") from error
        by_number = dict(enumerate(found)) if isinstance(found, (list, tuple)) else found
        whole = isinstance(by_number, dict) and sorted(map(repr, by_number)) == sorted(map(repr, range(len(by_number))))
        if not by_number or not whole or not all(isinstance(name, str) for name in by_number.values()):
            raise self._error(NAMES, f"{_short(text)} must be a dict of text by the numbers from 0 on")
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
    """Return a value as an error shows it: on one line, and not all of a long one."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = shortened(one_line(text), 60, end=False)
    return repr(text) if isinstance(value, str) else text
