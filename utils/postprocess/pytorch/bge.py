"""Historical interface of BGE's postprocessing: similarities of sentences, and scores of rerankers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from engine import Array, ConfigError, InputError
from tecoinfer_modelzoo.text import shape_text
from utils.preprocess.pytorch.bge import is_reranker
from utils.torch_array import as_array, like

__all__ = ["LEAST", "postprocess"]

LEAST = 1e-12
"""Minimum norm of an embedding in its normalisation, as in torch's ``normalize``."""


def postprocess(outputs: Any, batch_size: int, model_name: str | None, demo: bool = False) -> Any:
    """Return a number per pair: the cosine of both sentences' embeddings, or a reranker's score.

    A sentence's embedding is that of its first token, ``[CLS]`` (Xiao et al. 2023), if the model returns one per token.
    A name with ``reranker`` denotes a reranker. Returns float32, one for each of the first ``batch_size`` pairs; a
    torch tensor for torch tensors. Raises InputError if the outputs have another form, and ConfigError if the batch
    size is invalid.

    Args:
        outputs: of a reranker: N x 1 or N. Else two entries, for the first and for the second sentences: N x L x D per
            token, or N x D per sentence; of a list with both, the latter is used. With ``demo`` each entry is for one
            sentence: L x D or D; or the two entries are a model's outputs for two sentences. Arrays or torch tensors.
    """
    if not isinstance(batch_size, (int, np.integer)) or batch_size < 1:
        raise ConfigError(f"batch_size {batch_size!r} must be a whole number of at least 1")
    if is_reranker(model_name):
        return like(_scores(outputs)[:batch_size], outputs)
    if not isinstance(outputs, (list, tuple)) or len(outputs) != 2:
        raise InputError("outputs must be two entries: the model's outputs for the first and for the second sentences")
    first, second = _two_sentences(outputs) if demo else [_embeddings(entry) for entry in outputs]
    if first.shape != second.shape:
        raise InputError(f"embeddings are {shape_text(first.shape)} and {shape_text(second.shape)}; pass equally many")
    return like(_cosines(first, second)[:batch_size], outputs)


def _scores(outputs: Any) -> Array:
    """Return a reranker's scores, N."""
    one = outputs[0] if isinstance(outputs, (list, tuple)) and len(outputs) == 1 else outputs
    found = as_array(one, "scores")
    if found.ndim not in (1, 2) or (found.ndim == 2 and found.shape[1] != 1):
        raise InputError(f"scores are {shape_text(found.shape)}; a reranker gives N x 1")
    return found.reshape(-1).astype(np.float32)


def _embeddings(entry: Any) -> Array:
    """Return the embeddings of sentences, N x D."""
    if isinstance(entry, (list, tuple)) and len(entry) == 2:
        entry = entry[1]
    elif isinstance(entry, (list, tuple)) and len(entry) == 1:
        entry = entry[0]
    found = as_array(entry, "embeddings")
    if found.ndim not in (2, 3):
        raise InputError(f"embeddings are {shape_text(found.shape)}; pass N x D, or N x L x D per token")
    return found[:, 0] if found.ndim == 3 else found


def _two_sentences(outputs: Sequence[Any]) -> tuple[Array, Array]:
    """Return the embeddings of two sentences, 1 x D each."""
    first, second = (as_array(entry, "embeddings") for entry in outputs)
    if (first.ndim, second.ndim) == (3, 2) and len(second) >= 2:  # a model's two outputs, of two sentences
        return second[:1], second[1:2]
    if first.ndim != second.ndim or first.ndim not in (1, 2):
        shapes = f"{shape_text(first.shape)} and {shape_text(second.shape)}"
        raise InputError(f"embeddings are {shapes}; pass D, or L x D per token, of each sentence")
    return (first[:1], second[:1]) if first.ndim == 2 else (first[None], second[None])


def _cosines(first: Array, second: Array) -> Array:
    """Return the cosine of each pair of rows, N float32."""
    wide = [array.astype(np.float64) for array in (first, second)]
    units = [array / np.maximum(np.linalg.norm(array, axis=1, keepdims=True), LEAST) for array in wide]
    return np.asarray((units[0] * units[1]).sum(axis=1).astype(np.float32))
