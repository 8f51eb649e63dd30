"""Metadata of an exported model file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine import ConfigError, ModelError
from utils.stored import LABELS, PREPROCESS, PROVENANCE, SAMPLE_RATE, VOCABULARY, ModelMetadata

ERROR = "max_relative_error"
"""Metadata key of the file's largest relative error."""


@dataclass(frozen=True, slots=True)
class ModelNotes:
    """Metadata written to a file's ``metadata_props``; :class:`utils.stored.ModelMetadata` reads it.

    Values are stored as JSON with sorted keys, and are checked as the reader checks them.

    Attributes:
        labels: class names in the order of the model's outputs (``class_labels``, a JSON list).
        preprocess: ``resize_shape``, ``crop_shape``, ``mean``, ``std`` and ``interpolation`` (``preprocess``, a JSON
            object).
        provenance: source, weights, versions (``provenance``, a JSON object); no dates, so exports are reproducible.
        vocabulary: tokens in the order of their ids (``vocabulary``, a JSON list).
        sample_rate: audio sample rate in Hz (``sample_rate``).
        notes: other values of the model's domain by key; any JSON value.

    Raises ConfigError: a value is invalid, or a key of ``notes`` is empty or one of the above.
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
            raise ConfigError(f"notes: key {wrong!r} is empty or reserved; use another than {', '.join(own)}")
        try:
            ModelMetadata(self.metadata(None), fix="pass another to the export").check()
        except ModelError as error:
            raise ConfigError(str(error)) from error

    def metadata(self, error: float | None) -> dict[str, str]:
        """Return the ``metadata_props`` of a file with this largest relative error (``None``: not run)."""
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
        raise ConfigError(f"note {key!r} cannot be stored as JSON: {error}; use numbers, strings, lists") from error
