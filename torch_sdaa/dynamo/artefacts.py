"""Files of compiled graphs if option ``keep`` is set: models, and the values of a first run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from engine import ConfigError
from tecoinfer_modelzoo.files import write_file
from torch_sdaa.dynamo.options import Options

Array = np.ndarray[tuple[int, ...], np.dtype[np.generic]]


def keep_model(options: Options, name: str, model: bytes) -> None:
    """Write a partition's ONNX model; raise ConfigError if the folder cannot be written."""
    if options.keep:
        try:
            _folder(options).mkdir(parents=True, exist_ok=True)
            write_file(_folder(options) / f"{name}.onnx", model)
        except OSError as error:
            raise _unwritten(options, error) from error


def arrays(tensors: Sequence[torch.Tensor]) -> list[Array]:
    """Return copies of tensors on the host; bfloat16 as float32, the dtype of the model."""
    values = [value.detach().cpu() for value in tensors]
    return [(value.float() if value.dtype is torch.bfloat16 else value).numpy() for value in values]


def keep_values(options: Options, name: str, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Write the inputs and outputs of a plan's first run: ``input_0``, ..., ``output_0``, ...

    Raises:
        ConfigError: the folder cannot be written.
    """
    path = _folder(options) / f"{name}.npz"
    values = {f"input_{i}": value for i, value in enumerate(inputs)}
    values |= {f"output_{i}": value for i, value in enumerate(outputs)}
    try:
        np.savez(path, allow_pickle=False, **values)
    except OSError as error:
        raise _unwritten(options, error) from error


def _folder(options: Options) -> Path:
    return Path(options.keep)


def _unwritten(options: Options, error: OSError) -> ConfigError:
    return ConfigError(f"option keep of backend 'sdaa': {options.keep}: {error.strerror}; choose another folder")
