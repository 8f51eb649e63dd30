"""Options of ``amp.initialize``: the four levels and their changes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch

DYNAMIC = "dynamic"


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of mixed precision.

    Attributes:
        opt_level: ``O0`` to ``O3``. cast_model_type: dtype of weights and inputs; ``None``: unchanged.
        patch_torch_functions: cast operators by autocast's lists. keep_batchnorm_fp32: keep batch norm in float32.
        master_weights: the optimizer updates float32 copies. loss_scale: a number, or ``dynamic``.
    """

    opt_level: str
    cast_model_type: torch.dtype | None
    patch_torch_functions: bool
    keep_batchnorm_fp32: bool | None
    master_weights: bool | None
    loss_scale: float | str

    def __str__(self) -> str:
        weights = "unchanged" if self.cast_model_type is None else str(self.cast_model_type).removeprefix("torch.")
        parts = [f"weights {weights}"]
        if self.patch_torch_functions:
            parts.append("operators cast by autocast's lists")
        if self.keep_batchnorm_fp32:
            parts.append("batch norm float32")
        if self.master_weights:
            parts.append("master weights float32")
        return f"{self.opt_level}: {', '.join(parts)}, loss scale {self.loss_scale}"


LEVELS = {
    "O0": Options("O0", torch.float32, False, None, False, 1.0),
    "O1": Options("O1", None, True, None, None, DYNAMIC),
    "O2": Options("O2", torch.float16, False, True, True, DYNAMIC),
    "O3": Options("O3", torch.float16, False, False, False, 1.0),
}


def chosen(opt_level: Any, changes: dict[str, Any]) -> Options:
    """Return a level with changed settings; those that are ``None`` stay.

    Raises:
        ValueError: the level does not exist, or a change is invalid.
    """
    if opt_level not in LEVELS:
        near = f"O{str(opt_level)[-1:]}"
        hint = f"; did you mean {near!r}?" if near in LEVELS else ""
        raise ValueError(f"opt_level={opt_level!r} must be 'O0', 'O1', 'O2' or 'O3' (the letter O and a digit){hint}")
    options = LEVELS[opt_level]
    given = {name: value for name, value in changes.items() if value is not None}
    if "loss_scale" in given:
        given["loss_scale"] = _loss_scale(given["loss_scale"])
    for name in ("keep_batchnorm_fp32", "master_weights", "patch_torch_functions"):
        if name in given:
            given[name] = _flag(name, given[name])
    if given.get("cast_model_type") not in (None, torch.float16, torch.float32):
        raise ValueError(f"cast_model_type={given['cast_model_type']!r} must be torch.float16 or torch.float32")
    if options.patch_torch_functions:
        for name in ("cast_model_type", "keep_batchnorm_fp32", "master_weights"):
            if given.get(name):
                raise ValueError(
                    f"{name}={given[name]!r} cannot be used with opt_level='O1', where weights stay float32 and each "
                    f"operator is cast: omit {name}, or use 'O2'"
                )
    elif given.get("patch_torch_functions"):
        raise ValueError(f"patch_torch_functions=True cannot be used with opt_level={opt_level!r}: use 'O1'")
    return replace(options, **given)


def _loss_scale(value: Any) -> float | str:
    if value == DYNAMIC:
        return DYNAMIC
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if number == -1:  # in scripts for such cards: --loss-scale, "default -1 means dynamic"
        return DYNAMIC
    if not (math.isfinite(number) and number > 0):
        raise ValueError(f"loss_scale={value!r} must be a number above 0, or 'dynamic' (or -1)")
    return number


def _flag(name: str, value: Any) -> bool:
    if value in (True, False):
        return bool(value)
    if value in ("True", "False"):
        return bool(value == "True")
    raise ValueError(f"{name}={value!r} must be True or False")
