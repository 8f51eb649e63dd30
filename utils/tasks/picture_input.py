"""What a task of pictures says once of an input that is not N x 3 x H x W floats."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from engine import ConfigError, Engine
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.forms import picture_form
from utils.tasks.base import Options


def report_form(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> None:
    """Warn of how pictures are brought into the only model's input, where that is not the usual way.

    An input that cannot take pictures is refused where they are prepared: a task with a ``prepare`` of its own may feed
    it something else.
    """
    for engine in engines.values():
        try:
            line = picture_form(engine.inputs[0], engine.spec.ckpt).line
        except ConfigError:
            continue
        if line and rank_and_size()[0] == 0:
            warnings.warn(f"{engine.spec.ckpt.name}: input {engine.inputs[0].name!r}: {line}", stacklevel=2)
