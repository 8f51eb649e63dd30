"""Historical interface of BGE's preprocessing: a data loader's batch as the inputs of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine import ConfigError, InputError
from utils.torch_array import as_array, like

__all__ = ["ORDER", "is_reranker", "preprocess"]

ORDER = ("input_ids", "attention_mask", "token_type_ids")
"""Order of a BERT's inputs in its exports, which differs from that of transformers' tokenizers."""


def is_reranker(model_name: str | None) -> bool:
    """Return whether a model, by its name, scores both texts of a pair together."""
    return "reranker" in str(model_name).lower()


def preprocess(inputs: Mapping[str, Any] | Sequence[Any], batch_size: int, batch_padding: bool = True) -> list[Any]:
    """Return the inputs of a call, in the order of :data:`ORDER`, N (or ``batch_size``) x L int64 each.

    Inputs are arrays or torch tensors N x L by name, from ``create_dataloader`` or a tokenizer of transformers; or a
    list of them, which keeps its order. With ``batch_padding``, fewer rows are padded to ``batch_size`` by repeating
    the last one. Torch tensors give torch tensors. Raises InputError if the inputs are not token numbers with equally
    many rows, and ConfigError if the batch size is invalid.
    """
    if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")
    if hasattr(inputs, "keys"):  # transformers' own mapping is not a Mapping
        names = [name for name in ORDER if name in inputs.keys()]  # noqa: SIM118
        strange = sorted(set(inputs.keys()) - set(ORDER))
        if strange or not names:
            raise InputError(f"inputs are named {', '.join(inputs.keys()) or 'nothing'}; pass {', '.join(ORDER)}")
        values = [inputs[name] for name in names]  # type: ignore[call-overload]
    else:
        values = list(inputs)
    arrays = [as_array(value, "an input") for value in values]
    if any(array.dtype.kind == "f" for array in arrays):
        raise InputError("inputs are token numbers; pass integers, not floats")
    shapes = {array.shape for array in arrays}
    if len(shapes) != 1 or arrays[0].ndim != 2 or not len(arrays[0]):
        found = ", ".join("x".join(map(str, shape)) for shape in sorted(shapes)) or "none"
        raise InputError(
            f"inputs are of shape {found}; pass at least one row, with as many rows and tokens in each input"
        )
    missing = max(0, batch_size - len(arrays[0])) if batch_padding else 0
    return [
        like(np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]).astype(np.int64), value)
        for array, value in zip(arrays, values, strict=True)
    ]
