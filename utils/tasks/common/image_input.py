"""Base class of image tasks: size of the model's input, and a warning about unusual input formats."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from engine import ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.forms import image_form
from utils.tasks import Flag, Options, Task

SIZE_FLAG = Flag(
    "--input_size", "height (and width) of the input in pixels (default: the model's own)", None, int, nargs="+"
)


def given_sides(options: Options) -> list[int]:
    """Return the value of ``--input_size`` in pixels, one or two numbers; empty if not given. Raises ConfigError if it
    has more numbers, or one below 1."""
    given = options.input_size
    sides = [] if given is None else [given] if isinstance(given, int) else list(given)
    if len(sides) > 2 or min(sides, default=1) < 1:
        raise ConfigError(f"--input_size {given} must be one or two positive numbers: height and width")
    return sides


def given_size(options: Options) -> tuple[int, int] | None:
    """Return height and width of the input by ``--input_size``; ``None`` if not given."""
    sides = given_sides(options)
    return (sides[0], sides[-1]) if sides else None


def save_lines(image: Path, lines: Sequence[str], folder: Path) -> Path:
    """Draw lines of text below an image into a folder, and return the file."""
    from utils.draw import save_drawn

    return save_drawn(image, lines, folder)


class ImageTask(Task):
    """Task whose model takes images as its first input, with the flag ``--input_size``."""

    image_inputs = image_samples = True
    channels: ClassVar[int | None] = 3  # number of channels of the input; None: the model's

    @property
    def given_size(self) -> tuple[int, int] | None:
        """Height and width of the input in pixels, if given."""
        return given_size(self.options)

    def check(self) -> None:
        """Check that ``--input_size`` has at most two numbers, each at least 1."""
        _ = self.given_size  # raises ConfigError

    def input_size(self) -> tuple[tuple[int | None, ...], ...] | None:
        """Return the shape of the first input, if its size is given."""
        given = self.given_size
        return None if given is None else ((None, self.channels, *given),)

    def setup(self, engines: Mapping[str, Engine], dataset: Dataset) -> None:
        """Warn if a model's first input takes images in an unusual format.

        An input that cannot take images is an error in ``prepare`` only: a task that overrides it may feed other data.
        """
        for engine in engines.values():
            try:
                line = image_form(engine.inputs[0], engine.spec.ckpt).line
            except ConfigError:
                continue
            if line and rank_and_size()[0] == 0:
                warnings.warn(f"{engine.spec.ckpt.name}: input {engine.inputs[0].name!r}: {line}", stacklevel=2)
