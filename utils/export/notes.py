"""What a model file says about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import ConfigError, ModelError
from utils.stored import LABELS, PREPROCESS, PROVENANCE, SAMPLE_RATE, VOCABULARY, ModelMetadata

ERROR = "max_relative_error"
"""The key a file's own largest relative error is stored under."""


@dataclass(frozen=True, slots=True)
class ModelNotes:
    """What a file says about itself in its ``metadata_props``; :class:`utils.stored.ModelMetadata` reads it.

    All is stored as JSON, mappings with sorted keys. What the reader would refuse is refused here.

    Attributes:
        labels: class names in the order of the model's outputs (``class_labels``, a JSON list).
        preprocess: ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation`` (``preprocess``, a JSON
            object).
        provenance: source, weights, versions (``provenance``, a JSON object); no dates, so an export can be repeated.
        vocabulary: tokens in the order of their numbers (``vocabulary``, a JSON list).
        sample_rate: samples of audio per second (``sample_rate``).
        notes: what else the model's domain needs, by key: anything that JSON holds.

    Raises:
        ConfigError: a value cannot be stored, or a key of ``notes`` is empty or one of the others.
    """

    labels: Sequence[str] | None = None
    preprocess: Mapping[str, Any] | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    vocabulary: Sequence[str] | None = None
    sample_rate: int | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        own = (LABELS, PREPROCESS, PROVENANCE, VOCABULARY, SAMPLE_RATE, ERROR)
        wrong = next((key for key in self.notes if not isinstance(key, str) or not key or key in own), None)
        if wrong is not None:
            raise ConfigError(f"notes: key {wrong!r} cannot be taken; use another than {', '.join(own)}")
        try:
            ModelMetadata(self.metadata(None), fix="pass another to the export").check()
        except ModelError as error:
            raise ConfigError(str(error)) from error

    def metadata(self, error: float | None) -> dict[str, str]:
        """Return the ``metadata_props`` of a file with this largest relative error (``None``: it could not be run)."""
        found: dict[str, str] = {PROVENANCE: _json(PROVENANCE, dict(self.provenance), ascii_only=True)}
        if self.preprocess is not None:
            found[PREPROCESS] = _json(PREPROCESS, dict(self.preprocess), ascii_only=True)
        for key, names in ((LABELS, self.labels), (VOCABULARY, self.vocabulary)):
            if names is not None:
                found[key] = _json(key, list(names))
        if self.sample_rate is not None:
            found[SAMPLE_RATE] = _json(SAMPLE_RATE, self.sample_rate)
        found |= {key: _json(key, value) for key, value in self.notes.items()}
        if error is not None:
            found[ERROR] = f"{error:.1e}"
        return found


def _json(key: str, value: Any, *, ascii_only: bool = False) -> str:
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=ascii_only, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"note {key!r} cannot be stored as JSON: {error}; pass plain numbers, text, lists") from error
