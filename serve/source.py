"""Where a served model comes from: a model's script, or an ONNX file. Sent to the engine processes as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from engine import ConfigError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Names of served models: they are parts of URLs and of metrics."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model to serve.

    Attributes:
        name: in URLs.
        script: its ``example_single_batch.py``, whose task and defaults are used; empty: an ONNX file without a task.
        ckpt: the ONNX file of a model without a script; empty: that of the script.
        target: the engine.
        flags: values of the script's flags by name, such as ``{"topk": 5}``.
        rows: most rows of a call, for which the engine is opened.
    """

    name: str
    script: str = ""
    ckpt: str = ""
    target: str = "onnx"
    flags: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 1

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            raise ConfigError(
                f"model name {self.name[:80]!r} cannot be part of a URL; give one of letters, digits, _ . and -, "
                "such as mine=FILE"
            )
        if bool(self.script) == bool(self.ckpt):
            raise ConfigError(f"model {self.name}: give either a script or an ONNX file")

    def to_json(self) -> dict[str, Any]:
        """Return the source in JSON types."""
        return asdict(self)

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> ModelSource:
        """Read the result of :meth:`to_json`."""
        return cls(**entry)

    @property
    def file(self) -> Path:
        """The file that it is read from, for messages."""
        return Path(self.script or self.ckpt)
