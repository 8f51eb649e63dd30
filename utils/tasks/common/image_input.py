"""Base class of image tasks: size of the model's input, and a warning about unusual input formats."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import ClassVar

from engine import ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.forms import image_form
from utils.tasks import Flag, Task

SIZE_FLAG = Flag(
    "--input_size", "height (and width) of the input in pixels (default: the model's own)", None, int, nargs="+"
)


class ImageTask(Task):
    """Task whose model takes images as its first input, with the flag ``--input_size``."""

    image_inputs = True
    channels: ClassVar[int | None] = 3  # number of channels of the input; None: the model's

    @property
    def sides(self) -> list[int]:
        """Value of ``--input_size`` in pixels, by flag or script; empty if not given."""
        given = self.options.input_size
        return [] if given is None else [given] if isinstance(given, int) else list(given)

    @property
    def given_size(self) -> tuple[int, int] | None:
        """Height and width of the input in pixels, if given."""
        given = self.sides
        return (given[0], given[-1]) if given else None

    def check(self) -> None:
        """Check that ``--input_size`` has at most two numbers, each at least 1."""
        given = self.sides
        if self.given_size is not None and (len(given) > 2 or min(given) < 1):
            raise ConfigError(
                f"--input_size {self.options.input_size} must be one or two positive numbers: height and width"
            )

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
