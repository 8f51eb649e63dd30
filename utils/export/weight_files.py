"""Weights from files as people have them: state dicts, checkpoints that hold one, ``.pth`` and ``.safetensors``."""

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
"""What the name of a file of weights ends with."""

_HOLDERS = ("state_dict", "model_state_dict", "model", "net", "network", "weights", "module")
"""Keys that training scripts keep a state dict under."""

_PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""What wrappers (DataParallel, torch.compile, Lightning) write before every key."""

_COUNTERS = ("n_averaged",)
"""Keys that are no weights: ``torch.optim.swa_utils.AveragedModel`` counts its updates."""

_DENSE_LAYER = re.compile(r"(.*denselayer\d+\.(?:norm|relu|conv))\.([12]\..*)")
"""Keys of DenseNet's published files, which are older than its code: ``denselayer1.norm.1.weight``."""


def is_weights_file(text: str) -> bool:
    """Say whether a value of ``--weights`` is a file rather than a name."""
    return text.lower().endswith(ENDINGS) or Path(text).is_file()


def load_weights(model: torch.nn.Module, path: str | Path, ignored: Sequence[str] = ()) -> torch.nn.Module:
    """Load a file of weights into the model and return the model.

    The file holds a state dict, or a checkpoint with one under ``state_dict``, ``model`` or the like; a prefix that all
    keys share (``module.``) is taken off. Only tensors and plain containers are read (``weights_only=True``), so a file
    from elsewhere cannot run code.

    Args:
        model: what the weights are for.
        path: ``.safetensors``, or anything that ``torch.save`` wrote.
        ignored: beginnings of keys that are passed over, such as those of heads that only training needs.

    Raises:
        ModelError: the file is missing or damaged, holds no state dict, or its keys or shapes do not fit the model.
        TargetError: a ``.safetensors`` file, and the package is not installed.
    """
    return load_state(model, _state_dict(_read(Path(path)), path), str(path), ignored)


def load_state(
    model: torch.nn.Module, state: Mapping[str, Any], told: str, ignored: Sequence[str] = ()
) -> torch.nn.Module:
    """Load weights by key into the model, as :func:`load_weights` does; ``told``: what an error calls them."""
    fitted = _fitted(model, dict(state), ignored)
    _check_state(model, fitted, told)
    model.load_state_dict(fitted)
    return model


def _read(path: Path) -> Any:
    if not path.is_file():
        raise ModelError(f"weights file {path} does not exist; check the path")
    if path.suffix.lower() == ".safetensors":
        return _read_safetensors(path)
    try:
        # reference scripts keep their flags beside the weights; a Namespace holds values and does nothing
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files make torch's unpickler raise anything
        raise ModelError(
            f"{path}: damaged, or holds more than tensors; save the weights as model.state_dict()"
        ) from error


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
    """Return the weights by key, out of whatever holds them."""
    while isinstance(found, Mapping):
        inner = next((found[key] for key in _HOLDERS if isinstance(found.get(key), Mapping)), None)
        if inner is None:
            break
        found = inner
    if not isinstance(found, Mapping):
        raise ModelError(f"{path}: holds a {type(found).__name__}, not a state dict; save model.state_dict()")
    return {str(key): value for key, value in found.items() if key not in _COUNTERS}


def _fitted(model: torch.nn.Module, state: dict[str, Any], ignored: Sequence[str]) -> dict[str, Any]:
    """Return the weights by the model's own names, as far as they differ only in how they were kept."""
    own = model.state_dict()
    while state and not own.keys() & state.keys():
        prefix = next((one for one in _PREFIXES if all(key.startswith(one) for key in state)), None)
        if prefix is None:
            break
        state = {key.removeprefix(prefix): value for key, value in state.items()}
    renamed = {_DENSE_LAYER.sub(r"\1\2", key): value for key, value in state.items()}
    kept = {key: value for key, value in renamed.items() if key in own or not key.startswith(tuple(ignored))}
    # files older than PyTorch 0.4.1 lack the counters of batch norms, which nothing reads in inference
    counters = {key: value for key, value in own.items() if key.endswith("num_batches_tracked")}
    return (counters | kept) if own.keys() & kept.keys() else kept


def _check_state(model: torch.nn.Module, state: Mapping[str, Any], path: str | Path) -> None:
    """Raise one line naming the first keys or shapes that do not fit."""
    own = model.state_dict()
    missing, extra = [k for k in own if k not in state], [k for k in state if k not in own]
    shaped = [k for k in own if k in state and getattr(state[k], "shape", None) != own[k].shape]
    found = [
        f"{what} {', '.join(keys[:3])}{f' and {len(keys) - 3} more' if len(keys) > 3 else ''}"
        for what, keys in (("missing", missing), ("unknown", extra), ("of another shape", shaped))
        if keys
    ]
    if found:
        raise ModelError(f"{path} does not fit {type(model).__name__}: {'; '.join(found)}; use the matching model")
