"""What an export stored in a model (a stand-in, to be dropped at merge)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engine.base import ModelError


class Stored:
    """Reads a model's metadata."""

    def __init__(self, metadata: Mapping[str, str], ckpt: Path) -> None:
        self._metadata, self._ckpt = metadata, ckpt

    def json(self, key: str) -> Any:
        """Return a value that was stored as JSON, ``None`` where there is none."""
        try:
            return json.loads(self._metadata.get(key, "null"))
        except ValueError as error:
            raise ModelError(f"{self._ckpt}: metadata {key!r} is not JSON; export the model again") from error

    @property
    def labels(self) -> list[str] | None:
        """Return the class names."""
        return self._strings("class_labels")

    @property
    def vocabulary(self) -> list[str] | None:
        """Return the words by their id."""
        return self._strings("vocabulary")

    def _strings(self, key: str) -> list[str] | None:
        found = self.json(key)
        return None if found is None else [str(one) for one in found]

    @property
    def picture(self) -> PictureNotes:
        """Return mean and standard deviation of pictures."""
        found = self.json("preprocess") or {}
        return PictureNotes(
            tuple(found.get("mean", (0.485, 0.456, 0.406))), tuple(found.get("std", (0.229, 0.224, 0.225)))
        )


class PictureNotes(NamedTuple):
    """Mean and standard deviation."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
