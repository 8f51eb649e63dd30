"""Fine-tune MiniLM with two classes on rated snippets of film reviews, and write minilm_sentiment.pth.

Weights and snippets are fetched. The test snippets are drawn first, with all others that seem to be about the same
film. Test and validation snippets are written to data/test.tsv and data/validation.tsv. Neither the snippets nor the
weights may be redistributed: git ignores both.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import Array, ConfigError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.text.rated_snippets import Snippet, divided, grouped, read_snippets
from utils.fetch import fetched
from utils.pipeline import cli

with needed(__file__):
    import torch
    from model import pretrained, tokenizer
    from torch import nn
    from torch.nn import functional

    from utils.export.networks.bert_heads import Classified
    from utils.export.networks.training import Plan, fit, repeatable, save

HERE = Path(__file__).resolve().parent
DATA, WEIGHTS = HERE / "data", HERE / "minilm_sentiment.pth"
RATINGS = "vaderSentiment-3.2.1/additional_resources/hutto_ICWSM_2014.tar.gz/hutto_ICWSM_2014"
"""Path of the snippets in their package."""

PARTS = {"test": 1000, "validation": 800}
"""Number of snippets held out of training."""

FEW = 64
"""Number of test snippets in data/few.tsv, a small sample for quick runs."""

EPOCHS, BATCH, TOKENS = 3, 32, 64
"""Epochs, batch size, and largest number of tokens of a snippet."""

RATE, STEEP = 1e-4, 1.5
"""The peak learning rate, and the slope of the target probability over the mean rating."""

DTYPES = ("bfloat16", "float32")
"""The first takes a third of the time on a processor that supports it, and longer on others."""

ALIKE = 40
"""Number of batches whose snippets are sorted by length together, to reduce padding."""


def parts() -> dict[str, list[tuple[Snippet, int]]]:
    """Return the snippets of each part with their groups, and write the test and validation snippets."""
    folder = fetched("vader_reviews") / RATINGS
    snippets = read_snippets(folder / "movieReviewSnippets_GroundTruth.txt")
    groups = grouped([one.text for one in snippets])
    found: dict[str, list[tuple[Snippet, int]]] = {part: [] for part in (*PARTS, "train")}
    for one, group, part in zip(snippets, groups, divided(groups, PARTS, "train", seed=0), strict=True):
        found[part].append((one, snippets[group].number))
    DATA.mkdir(exist_ok=True)
    for name, part, count in (*((part, part, None) for part in PARTS), ("few", "test", FEW)):
        rows = [f"{one.text}\t{one.label}\t{one.rating:.4f}\t{group}\n" for one, group in found[part][:count]]
        (DATA / f"{name}.tsv").write_text("text\tlabel\trating\tunit\n" + "".join(rows), encoding="utf-8")
    return found


def numbered(texts: list[str]) -> list[list[int]]:
    """Return the token ids of each text, at most :data:`TOKENS`."""
    import json

    from tokenizers import Tokenizer

    found = Tokenizer.from_str(json.dumps(tokenizer()))
    found.no_padding()
    found.enable_truncation(TOKENS)
    return [one.ids for one in found.encode_batch(texts)]


def padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return padded token ids and their mask, both N x L."""
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for i, row in enumerate(rows):
        ids[i, : len(row)], mask[i, : len(row)] = row, 1
    return torch.from_numpy(ids), torch.from_numpy(mask)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def batches(rows: list[list[int]], ratings: Array, seed: int) -> Iterator[Batch]:
    """Yield token ids, masks and ratings of snippets of similar length; each epoch covers all snippets once."""
    chance = np.random.default_rng(seed)
    while True:
        order = chance.permutation(len(rows))
        drawn: list[list[int]] = []
        for start in range(0, len(order), BATCH * ALIKE):
            block = sorted(order[start : start + BATCH * ALIKE].tolist(), key=lambda i: len(rows[i]))
            drawn += [block[i : i + BATCH] for i in range(0, len(block), BATCH)]
        for place in chance.permutation(len(drawn)).tolist():
            chosen = drawn[place]
            yield *padded([rows[i] for i in chosen]), torch.from_numpy(ratings[chosen])


def scores(learner: nn.Module, ids: torch.Tensor, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return the logit of the second class minus that of the first; matrices are multiplied in ``dtype``."""
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        logits = learner(ids, mask).float()
    return logits[:, 1] - logits[:, 0]


def loss(learner: nn.Module, dtype: torch.dtype, batch: Batch) -> torch.Tensor:
    """Return the cross entropy to a target that rises with the mean rating; it is 0.5 at a rating of 0."""
    ids, mask, ratings = batch
    wanted = torch.sigmoid(STEEP * ratings)
    return functional.binary_cross_entropy_with_logits(scores(learner, ids, mask, dtype), wanted)


def right(learner: nn.Module, dtype: torch.dtype, rows: list[list[int]], ratings: Array) -> float:
    """Return the accuracy on snippets."""
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    found = np.zeros(len(rows), bool)
    with torch.no_grad():
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            found[chosen] = scores(learner, *padded([rows[i] for i in chosen]), dtype).numpy() > 0
    return float((found == (ratings > 0)).mean())


def train(epochs: float, out: Path = WEIGHTS, dtype: torch.dtype = torch.bfloat16) -> None:
    """Fetch, split, train and write the weights, which are float32 with every ``dtype`` of the matrix products.

    Raises:
        ConfigError: the number of steps is 0.
    """
    divided_in = parts()
    repeatable()
    learner, started = pretrained(), time.process_time()
    learner.base.embeddings.requires_grad_(False)  # half of the weights, and most words are seen once or twice
    rows = {part: numbered([one.text for one, _ in found]) for part, found in divided_in.items()}
    ratings = {part: np.array([one.rating for one, _ in found], np.float32) for part, found in divided_in.items()}
    steps = round(epochs * -(-len(rows["train"]) // BATCH))
    if steps < 1:
        raise ConfigError(f"--epochs {epochs} is less than one step; give more")

    def mark(step: int, late: float, averaged: nn.Module) -> None:
        some = slice(min(PARTS["validation"], steps * BATCH))  # a training of seconds is not looked at for longer
        good = right(averaged, dtype, rows["validation"][some], ratings["validation"][some])
        progress = f"{(time.process_time() - started) / 60:.1f} CPU min, loss {late:.3f}, validation {good:.4f}"
        print(f"step {step}: {progress}", flush=True)

    plan = Plan(steps, RATE, warm=steps // 10 + 1, decay=0.01, clip=1.0, average=0.99, every=steps // 3 + 1)
    averaged = fit(learner, partial(loss, learner, dtype), batches(rows["train"], ratings["train"], 0), plan, mark)
    assert isinstance(averaged, Classified)  # noqa: S101 - it is what was trained
    save(averaged, out)
    print(f"{out}: {steps} steps on {len(rows['train'])} snippets")


def main() -> int:
    """Train and write the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--epochs", type=float, default=EPOCHS, help=f"of all snippets, or a share (default: {EPOCHS})")
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    parser.add_argument(
        "--dtype", choices=DTYPES, default=DTYPES[0], help=f"matrices are multiplied in it (default: {DTYPES[0]})"
    )
    args = parser.parse_args()
    train(args.epochs, args.out, getattr(torch, args.dtype))
    return 0


if __name__ == "__main__":
    cli.run(main)
