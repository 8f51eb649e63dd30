"""Exceptions of the zoo, which commands print as one line, and the warning of a former name."""

from __future__ import annotations

import warnings

from tecoinfer_modelzoo.distribution import with_page_paths
from tecoinfer_modelzoo.text import printable, shortened


class TecoInferError(Exception):
    """Base class of all exceptions raised by the zoo; the text is one line that names the value and the fix.

    Each argument is a line. File names and values may contain any characters: control characters are escaped, and very
    long lines are shortened in the middle. Pages of the documentation are named by their path in an installed wheel.
    """

    def __str__(self) -> str:
        """Return the lines, made safe for terminals."""
        return "\n".join(with_page_paths(shortened(printable(str(line), keep=""))) for line in self.args)


class ConfigError(TecoInferError, ValueError):
    """An option, environment variable or configuration file has an invalid value."""


class TargetError(TecoInferError, ValueError):
    """The target is unknown, or its package is not installed."""


class ModelError(TecoInferError, ValueError):
    """The model file is missing or damaged, or uses a feature that the target does not support."""


class PassError(ModelError):
    """A graph pass is missing or invalid, or changed the model's results."""


class InputError(TecoInferError, ValueError):
    """The number, shape or dtype of an engine's input arrays is wrong."""


class DataError(TecoInferError, ValueError):
    """A data set, image or label file cannot be read, or does not match the others."""


class ImageError(DataError, OSError):
    """An image cannot be read; also an ``OSError`` like Pillow's errors, so that scripts can skip the image."""


PictureError = ImageError
"""The earlier name, for code that catches it."""


class EngineError(TecoInferError, RuntimeError):
    """The engine failed during computation, or was used after :meth:`Engine.release`."""


class DeviceError(EngineError):
    """A device of the card failed; the text names the operation and the sample to resume at."""


class DeviceOutOfMemory(DeviceError):  # noqa: N818 -- the established name
    """A model or batch exceeds a device's memory; the text states by how much and which batch size fits."""


def warn_renamed(former: str, name: str) -> None:
    """Warn that code outside the zoo uses a former name.

    Args:
        former, name: the names, as in source code.
    """
    warnings.warn(f"deprecated: {former} is {name} now", FutureWarning, stacklevel=3)
