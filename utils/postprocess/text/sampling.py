"""How the next token is chosen from logits: the best one, or one drawn at random; after a penalty, top k and top p.

What each setting does to the logits is what transformers' processors of the same names do, in their order; tests
compare them. What is drawn depends on the sample alone, not on the batch it is in: each has a stream of random numbers
of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from engine import Array


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen.

    Attributes:
        random: draw one; ``False``: take the best.
        temperature: what logits are divided by before drawing, above 0.
        top_k: draw from so many of the best; 0: all.
        top_p: draw from the fewest of the best whose probabilities sum up to this; 1: all.
        penalty: what logits of tokens that the text has are divided by, or multiplied by below 0; 1: nothing.
    """

    random: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    penalty: float = 1.0


def penalized(logits: Array, texts: Sequence[Sequence[int]], penalty: float) -> Array:
    """Return N x V logits with those of tokens that occur in each row's text made less likely.

    As in Keskar et al., "CTRL: A Conditional Transformer Language Model" (2019), section 4.1.
    """
    if penalty == 1:
        return logits
    changed = logits.copy()
    for row, text in zip(changed, texts, strict=True):
        places = np.unique(np.asarray(text, np.intp))
        found = row[places]
        row[places] = np.where(found < 0, found * penalty, found / penalty)
    return changed


def best_k(logits: Array, count: int) -> Array:
    """Return N x V logits with all below the ``count`` best of a row at -inf; those equal to the last one stay."""
    if not 0 < count < logits.shape[1]:
        return logits
    least = np.partition(logits, -count, axis=1)[:, -count]
    return np.where(logits < least[:, None], -np.inf, logits).astype(logits.dtype, copy=False)


def nucleus(logits: Array, share: float) -> Array:
    """Return N x V logits with all at -inf but the fewest of the best whose probabilities reach ``share``.

    As in Holtzman et al., "The Curious Case of Neural Text Degeneration" (2020). The best one always stays.
    """
    if share >= 1:
        return logits
    order = np.argsort(logits, axis=1, kind="stable")
    rising = np.take_along_axis(logits, order, axis=1)
    drop = np.cumsum(_softmax(rising), axis=1) <= 1 - share
    drop[:, -1] = False
    removed = np.zeros_like(drop)
    np.put_along_axis(removed, order, drop, axis=1)
    return np.where(removed, -np.inf, logits).astype(logits.dtype, copy=False)


def _softmax(logits: Array) -> Array:
    """Return probabilities of N x V logits, float64."""
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    shares: Array = powers / powers.sum(axis=1, keepdims=True)
    return shares


def processed(logits: Array, texts: Sequence[Sequence[int]], how: Sampling) -> Array:
    """Return the N x V logits that a token is drawn from, or of which the best is taken."""
    found = penalized(logits, texts, how.penalty)
    if not how.random:
        return found
    found = found / np.asarray(how.temperature, found.dtype)
    return nucleus(best_k(found, how.top_k), how.top_p)


class Chooser:
    """Chooses tokens, as :data:`utils.tasks.common.generation.Choose` says.

    Args:
        how: greedy or drawn. seeds: one per prompt of the batch, whatever tells it apart (:func:`seed_of`); only where
            tokens are drawn.
    """

    def __init__(self, how: Sampling, seeds: Sequence[int] = ()) -> None:
        self._how = how
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds] if how.random else []

    def __call__(self, logits: Array, places: Sequence[int], texts: Sequence[Sequence[int]]) -> Array:
        """Return a token for each row; of equally good ones the first."""
        found = processed(logits, texts, self._how)
        if not self._how.random:
            best: Array = np.argmax(found, axis=1)
            return best
        sums = np.cumsum(_softmax(found), axis=1)
        drawn = [self._streams[place].random() for place in places]
        tokens = [int(np.searchsorted(row, one * row[-1], side="right")) for row, one in zip(sums, drawn, strict=True)]
        chosen: Array = np.minimum(tokens, logits.shape[1] - 1)
        return chosen


def seed_of(seed: int, text: str, again: int = 0) -> int:
    """Return a seed (128 bits) that depends on a prompt and not on where it stands.

    Args:
        seed: of the run. text: the prompt. again: how many equal ones came before it, so that each goes on its own way.
    """
    digest = sha256(f"{seed} {again} ".encode() + text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16], "little")
