"""The access log: a JSON line for each request."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from engine import ConfigError
from tecoinfer_modelzoo.flags import STDOUT

SCHEMA_VERSION = 1  # version of a line; raised when a field is removed or changes its meaning


class AccessLog:
    """Writes a line per request to a file that grows, or to standard output; ``None``: nothing is written.

    Raises ConfigError if the file cannot be written.
    """

    def __init__(self, path: Path | None) -> None:
        self._own = False
        self._stream: TextIO | None = sys.stdout if path == STDOUT else None
        if path is None or path == STDOUT:
            return
        try:
            self._stream, self._own = path.open("a", encoding="utf-8", buffering=1), True
        except OSError as error:
            raise ConfigError(
                f"--access_log {path} cannot be written ({error.strerror}); choose another file"
            ) from error

    @property
    def is_on(self) -> bool:
        """Whether anything is written."""
        return self._stream is not None

    def write(self, entry: dict[str, Any]) -> None:
        """Write a request: ``time`` (UTC, ISO 8601) and the given fields."""
        if self._stream is None:
            return
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        self._stream.write(json.dumps({"schema_version": SCHEMA_VERSION, "time": now, **entry}) + "\n")
        if not self._own:
            self._stream.flush()

    def close(self) -> None:
        """Close the file."""
        if self._own and self._stream is not None:
            self._stream.close()

    def __enter__(self) -> AccessLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
