"""Train tokenizer and network of language_id: one thread, about a minute.

The tokenizer is a byte-level BPE of the training texts. A training sample is a random run of words of a text,
tokenized with BPE dropout (arXiv:1910.13267), because held-out texts contain words that are not in the training texts.
Everything else is seeded, but the package ``tokenizers`` has no seed for the dropout: another run gives other weights
of about the same accuracy.
The held-out texts in ``data/val.tsv`` are only used to print the accuracy at the end.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.text.texts import load_texts
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import LONGEST, TOKENS, LanguageId
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from torch.nn import functional

    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent

PLAN = Plan(2000, rate=0.003, warm=100, clip=1.0, decay=0.05, average=0.995)
BATCH, DROPOUT, SMOOTHING = 64, 0.2, 0.05
LETTERS = 3
"""Fewest letters of a run of words; a shorter text is used whole."""


def byte_pairs(texts: Sequence[str]) -> Tokenizer:
    """Return a tokenizer trained on texts: lower case, byte-level BPE, number 0 for padding."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    how = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=["<pad>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, how)
    return made


def stacked(rows: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token numbers and their mask, N x L int64, padded with 0."""
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, : len(row)], mask[place, : len(row)] = torch.tensor(row), 1
    return ids, mask


Batch = tuple[tuple[torch.Tensor, torch.Tensor], torch.Tensor]


def batches(texts: Sequence[str], classes: Sequence[int], tokenizer: Tokenizer) -> Iterator[Batch]:
    """Yield batches of runs of words without end, grouped by length."""
    chance = np.random.default_rng(0)
    while True:
        order = chance.permutation(len(texts))
        for start in range(0, len(order), 16 * BATCH):
            some = order[start : start + 16 * BATCH].tolist()
            rows = [(tokenizer.encode(_piece(texts[place], chance)).ids[:LONGEST], classes[place]) for place in some]
            rows.sort(key=lambda row: len(row[0]))
            for first in chance.permutation(range(0, len(rows), BATCH)).tolist():
                part = rows[first : first + BATCH]
                yield stacked([ids for ids, _ in part]), torch.tensor([label for _, label in part])


def _piece(text: str, chance: np.random.Generator) -> str:
    """Return a text or, more often, a run of its words with enough letters."""
    words = text.split()
    if len(words) < 2 or chance.random() < 0.4:
        return text
    count = int(chance.integers(1, len(words) + 1))
    start = int(chance.integers(0, len(words) - count + 1))
    piece = " ".join(words[start : start + count])
    return piece if sum(letter.isalpha() for letter in piece) >= LETTERS else text


@torch.no_grad()
def found(network: torch.nn.Module, texts: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    """Return the predicted class of each text."""
    classes: list[int] = []
    for start in range(0, len(texts), 128):
        rows = [tokenizer.encode(text).ids[:LONGEST] for text in texts[start : start + 128]]
        classes += network(*stacked(rows)).argmax(1).tolist()
    return classes


def by_length(texts: Sequence[str], right: Sequence[bool]) -> Iterator[str]:
    """Yield a line with the accuracy on texts of one, two, three to five, and more words."""
    words = np.array([len(text.split()) for text in texts])
    for least, most, name in ((1, 1, "1 word"), (2, 2, "2 words"), (3, 5, "3 to 5 words"), (6, 999, "6 or more words")):
        some = np.array(right)[(words >= least) & (words <= most)]
        yield f"{name}: {some.sum()} of {len(some)}, accuracy {some.mean():.4f}"


def main() -> int:
    """Train, print the held-out accuracy, and write tokenizer and weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of tokenizer and weights")
    args = parser.parse_args()
    repeatable()
    train, held_out = load_texts(HERE / "data" / "train.tsv"), load_texts(HERE / "data" / "val.tsv")
    labels = sorted(set(train.targets or ()))
    texts, classes = list(train.samples), [labels.index(label) for label in train.targets or ()]
    plain = byte_pairs(texts)
    plain.save(str(args.out / "tokenizer.json"))
    dropping = Tokenizer.from_str(plain.to_str())
    dropping.model.dropout = DROPOUT
    network, started = LanguageId(len(labels)), time.process_time()

    def loss(batch: Batch) -> torch.Tensor:
        return functional.cross_entropy(network(*batch[0]), batch[1], label_smoothing=SMOOTHING)

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, args.out / "language_id.pth")
        print(f"step {step}: {(time.process_time() - started) / 60:.1f} min, loss {late:.4f}", flush=True)

    averaged = fit(network, loss, batches(texts, classes, dropping), PLAN, mark)
    save(averaged, args.out / "language_id.pth")
    names = [labels[one] for one in found(averaged, held_out.samples, plain)]
    right = [one == known for one, known in zip(names, held_out.targets or (), strict=True)]
    print(f"{args.out / 'language_id.pth'}: accuracy {sum(right) / len(right):.6f} held out")
    print("\n".join(by_length(held_out.samples, right)))
    other = [one for one, known in zip(right, held_out.targets or (), strict=True) if known != "Russian"]
    share = f"{sum(other)} of {len(other)}, accuracy {sum(other) / len(other):.4f}"
    print(f"without Russian, which its letters tell: {share}")
    return 0


if __name__ == "__main__":
    cli.run(main)
