"""Print the perplexity of a unigram and of a trigram model on the held-out pages.

Both are estimated on the training pages of the network, with the same tokens. The trigram model backs off to shorter
histories with Witten-Bell smoothing (1991): P(w | h) = (count(h w) + kinds(h) P(w | shorter h)) / (count(h) +
kinds(h)).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from corpus import is_held_out, pages

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    from tokenizers import Tokenizer

HERE = Path(__file__).resolve().parent
LONGEST = 3


class Counts:
    """Counts of the tokens that follow each history of up to ``order - 1`` tokens."""

    def __init__(self, texts: list[list[int]], vocabulary: int, order: int) -> None:
        self._order, self._vocabulary = order, vocabulary
        self._after: dict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
        for text in texts:
            for place in range(1, len(text)):
                for length in range(order):
                    self._after[tuple(text[max(0, place - length) : place])][text[place]] += 1

    def probability(self, history: tuple[int, ...], token: int) -> float:
        """Return the probability of a token after a history."""
        history = history[-(self._order - 1) :] if self._order > 1 else ()
        shorter = self.probability(history[1:], token) if history else 1 / self._vocabulary
        after = self._after.get(history)
        if not after:
            return shorter
        return (after[token] + len(after) * shorter) / (after.total() + len(after))

    def cost(self, text: list[int]) -> float:
        """Return the negative log likelihood, in nats, of a text without its first token."""
        return -sum(math.log(self.probability(tuple(text[:i][-LONGEST:]), text[i])) for i in range(1, len(text)))


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.parse_args()
    tokenizer = Tokenizer.from_file(str(HERE / "tokenizer.json"))
    texts: dict[bool, list[list[int]]] = {True: [], False: []}
    size = 0
    for name, text in pages().items():
        texts[is_held_out(name)].append([0, *tokenizer.encode(text).ids])
        size += len(text.encode()) if is_held_out(name) else 0
    tokens = sum(len(text) - 1 for text in texts[True])
    for name, order in (("unigram", 1), ("bigram", 2), ("trigram", LONGEST)):
        counts = Counts(texts[False], tokenizer.get_vocab_size(), order)
        cost = sum(counts.cost(text) for text in texts[True])
        print(f"{name}: perplexity {math.exp(cost / tokens):.3f}, bits per byte {cost / math.log(2) / size:.4f}")
    return 0


if __name__ == "__main__":
    cli.run(main)
