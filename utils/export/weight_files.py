"""Weights from files: state dicts and checkpoints with one, as ``.pth`` or ``.safetensors``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from engine import ModelError, TargetError
from utils.export.graphs import first_line

ENDINGS = (".pth", ".pt", ".pth.tar", ".bin", ".ckpt", ".safetensors")
"""File name suffixes of weights files."""

_HOLDERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "module")
"""Keys of a state dict in a checkpoint."""

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""Prefixes that wrappers (DataParallel, torch.compile, Lightning) add to every key."""

_COUNTERS = ("n_averaged",)
"""Keys that are not weights: the update counter of ``torch.optim.swa_utils.AveragedModel``."""

_DENSE_LAYER = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)")
"""Old keys in DenseNet's published files: ``denselayer1.norm.1.weight``."""


def is_weights_file(text: str) -> bool:
    """Return whether a value of ``--weights`` is a file rather than a name."""
    return text.lower().endswith(ENDINGS) or Path(text).is_file()


def load_weights(model: torch.nn.Module, path: str | Path, ignored: Sequence[str] = ()) -> torch.nn.Module:
    """Load a file of weights into the model and return the model.

    The file has a state dict, or a checkpoint with one under ``state_dict``, ``model`` or the like; a common prefix of
    the keys (``module.``) is removed. It is read with ``weights_only=True``, so that it cannot run code.

    Args:
        path: ``.safetensors``, or written by ``torch.save``.
        ignored: prefixes of keys to skip, such as those of training heads.

    Raises ModelError: the file is missing, damaged or without a state dict, or keys or shapes do not match the model;
    TargetError: the package safetensors is not installed.
    """
    return load_state(model, read_state(path), str(path), ignored)


def read_state(path: str | Path) -> dict[str, Any]:
    """Return the weights in a file by key; errors as of :func:`load_weights`."""
    return _state_dict(_read(Path(path)), path)


def load_state(
    model: torch.nn.Module, state: Mapping[str, Any], origin: str, ignored: Sequence[str] = ()
) -> torch.nn.Module:
    """Load weights by key into the model as :func:`load_weights` does; ``origin``: their name in errors."""
    fitted = _fitted(model, dict(state), ignored)
    _check_state(model, fitted, origin)
    model.load_state_dict(fitted)
    return model


def _read(path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"weights file {path} does not exist; check the path")
    if path.suffix.lower() == ".safetensors":
        return _read_safetensors(path)
    try:
        # reference scripts store their flags as a Namespace, which runs no code
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's unpickler raises any exception for damaged files
        fix = "save the weights as model.state_dict()"
        raise ModelError(f"{path}: damaged, or contains more than tensors; {fix}") from error


def _read_safetensors(path: Path) -> Any:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise TargetError(f"{path}: {error.name} is not installed; run: pip install safetensors") from error
    try:
        return load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise ModelError(f"{path}: damaged ({first_line(error)}); get the file again") from error


def _state_dict(found: Any, path: str | Path) -> dict[str, Any]:
    """Return the weights by key from a state dict or a nested checkpoint."""
    while isinstance(found, Mapping):
        inner = next((found[key] for key in _HOLDERS if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping):
        raise ModelError(f"{path}: contains a {type(found).__name__}, not a state dict; save model.state_dict()")
    return {str(key): value for key, value in found.items() if key not in _COUNTERS}


def _fitted(model: torch.nn.Module, state: dict[str, Any], ignored: Sequence[str]) -> dict[str, Any]:
    """Return the weights under the model's keys: without wrapper prefixes and ignored keys."""
    own = model.state_dict()
    while state and not own.keys() & state.keys():
        prefix = next((one for one in _PREFIXES if all(key.startswith(one) for key in state)), None)
        if prefix is None:
            break
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    renamed = {_DENSE_LAYER.sub(r"\1\2", key): value for key, value in state.items()}
    kept = {key: value for key, value in renamed.items() if key in own or not key.startswith(tuple(ignored))}
    # files older than PyTorch 0.4.1 lack the batch norms' counters, which inference does not use
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    return (counters | kept) if own.keys() & kept.keys() else kept


def _check_state(model: torch.nn.Module, state: Mapping[str, Any], path: str | Path) -> None:
    """Raise ModelError with the first missing, unknown or mismatching keys."""
    own = model.state_dict()
    missing, extra = [k for k in own if k not in state], [k for k in state if k not in own]
    shaped = [k for k in own if k in state and getattr(state[k], "shape", None) != own[k].shape]
    found = [
        f"{what} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for what, keys in (("missing", missing), ("unknown", extra), ("of another shape", shaped))
        if keys
    ]
    if found:
        raise ModelError(f"{path} does not match {type(model).__name__}: {'; '.join(found)}; use the matching model")
