"""What a task of pictures says once of an input that is not N x 3 x H x W floats."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from engine import Engine
from utils.datasets.base import Dataset
from utils.datasets.sharding import rank_and_size
from utils.preprocess.image.forms import picture_form
from utils.tasks.base import Options


def report_form(engines: Mapping[str, Engine], dataset: Dataset, options: Options) -> None:
    """Warn of how pictures are brought into the only model's input, where that is not the usual way.

    Raises:
        ConfigError: the input takes no pictures by its shape or its dtype.
    """
    for engine in engines.values():
        line = picture_form(engine.inputs[0], engine.spec.ckpt).line
        if line and rank_and_size()[0] == 0:
            warnings.warn(f"{engine.spec.ckpt.name}: input {engine.inputs[0].name!r}: {line}", stacklevel=2)
