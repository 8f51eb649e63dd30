"""Every error the zoo raises on purpose; a command line prints its text, one line, as it is."""

from __future__ import annotations

from tecoinfer_modelzoo.text import printable, shortened


class TecoInferError(Exception):
    """Base of every error the zoo raises on purpose; its text is one line that names the value and the fix.

    Each argument is a line. Names of files and values may hold anything: control characters are shown as escapes, and
    of a very long line the middle is left out.
    """

    def __str__(self) -> str:
        """Return the lines as people may read them."""
        return "\n".join(shortened(printable(str(line), keep="")) for line in self.args)


class ConfigError(TecoInferError, ValueError):
    """An option, environment variable or configuration file holds a value that cannot be used."""


class TargetError(TecoInferError, ValueError):
    """The target is unknown, or the package behind it is not installed."""


class ModelError(TecoInferError, ValueError):
    """The model file is missing, damaged, or uses something the target cannot run."""


class PassError(ModelError):
    """An optimisation pass is missing, malformed, or changed what the model computes."""


class InputError(TecoInferError, ValueError):
    """An array given to an engine has the wrong count, shape or dtype."""


class DataError(TecoInferError, ValueError):
    """A data set, picture or label file cannot be read or does not match."""


class PictureError(DataError, OSError):
    """A picture cannot be read; an ``OSError`` too, as Pillow's own are: scripts catch that and take the next one."""


class EngineError(TecoInferError, RuntimeError):
    """The engine failed while computing, or was used after :meth:`Engine.release`."""


class DeviceError(EngineError):
    """A device of the card failed; the text says what was done and at which sample to resume."""


class DeviceOutOfMemory(DeviceError):  # noqa: N818 -- the name the field uses
    """A model or batch does not fit a device's memory; the text says by how much and which batch would fit."""
