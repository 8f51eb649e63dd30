"""Choice of the next token from logits: the best one, or a random one, after a repetition penalty, top k and top p.

Each setting has the effect of transformers' processor of the same name, in their order, as verified by tests. Random
choices depend only on the sample, not on its batch: each has its own stream of random numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from engine import Array


@dataclass(frozen=True)
class Sampling:
    """Settings of the choice of tokens.

    Attributes:
        random: draw a token; ``False``: take the best.
        temperature: divisor of logits before drawing, above 0.
        top_k: draw from this number of the best; 0: all.
        top_p: draw from the fewest of the best whose probabilities add up to this; 1: all.
        penalty: divisor of logits of tokens in the text, or factor of negative ones; 1: none.
    """

    random: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    penalty: float = 1.0


def penalized(logits: Array, texts: Sequence[Sequence[int]], penalty: float) -> Array:
    """Return N x V logits with a penalty on the tokens of each row's text (Keskar et al. 2019, "CTRL", section 4.1)."""
    if penalty == 1:
        return logits
    changed = logits.copy()
    for row, text in zip(changed, texts, strict=True):
        places = np.unique(np.asarray(text, np.intp))
        found = row[places]
        row[places] = np.where(found < 0, found * penalty, found / penalty)
    return changed


def best_k(logits: Array, count: int) -> Array:
    """Return N x V logits with all below the ``count`` best of a row set to -inf; those equal to the last one stay."""
    if not 0 < count < logits.shape[1]:
        return logits
    least = np.partition(logits, -count, axis=1)[:, -count]
    return np.where(logits < least[:, None], -np.inf, logits).astype(logits.dtype, copy=False)


def nucleus(logits: Array, share: float) -> Array:
    """Return N x V logits with all set to -inf except the fewest of the best whose probabilities reach ``share``.

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
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def processed(logits: Array, texts: Sequence[Sequence[int]], how: Sampling) -> Array:
    """Return the N x V logits from which a token is drawn, or the best is taken."""
    found = penalized(logits, texts, how.penalty)
    if not how.random:
        return found
    found = found / np.asarray(how.temperature, found.dtype)
    return nucleus(best_k(found, how.top_k), how.top_p)


class Chooser:
    """Chooses tokens; see :data:`utils.tasks.common.generation.Choose`. Only random choices need a seed per prompt."""

    def __init__(self, how: Sampling, seeds: Sequence[int] = ()) -> None:
        self._how = how
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds] if how.random else []

    def __call__(self, logits: Array, places: Sequence[int], texts: Sequence[Sequence[int]]) -> Array:
        """Return a token for each row; the first of equal ones."""
        found = processed(logits, texts, self._how)
        if not self._how.random:
            return np.asarray(np.argmax(found, axis=1))
        sums = np.cumsum(_softmax(found), axis=1)
        drawn = [self._streams[place].random() for place in places]
        tokens = [int(np.searchsorted(row, one * row[-1], side="right")) for row, one in zip(sums, drawn, strict=True)]
        return np.asarray(np.minimum(tokens, logits.shape[1] - 1))


def seed_of(seed: int, text: str, again: int = 0) -> int:
    """Return a seed (128 bits) that depends on the run's seed and a prompt, but not on the prompt's position.

    ``again`` is the number of equal prompts before it, so that each has another seed.
    """
    digest = sha256(f"{seed} {again} ".encode() + text.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:16], "little")
