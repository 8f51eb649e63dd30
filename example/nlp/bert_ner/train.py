"""Train a small BERT that tags entities in composed sentences: seeded, one thread, the same weights every time.

The sentences are generated during training (``utils/datasets/synthetic/tagged_sentences.py``). The tokenizer knows the
words of training sentences; any other word, such as a held-out name, becomes letters. So that the network learns to
read those, half of the names in training are spelled in letters too.
Writes ``config.json``, ``model.safetensors`` and ``tokenizer.json`` in transformers' layout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.tagged_sentences import LABELS, Tagged, tagged_sentence, vocabulary

with needed(__file__):
    import torch
    from safetensors.torch import save_file
    from torch.nn import functional

    from utils.export.networks.bert_encoder import sizes_of
    from utils.export.networks.bert_heads import TokenClassified
    from utils.export.networks.training import Plan, fit, repeatable

HERE = Path(__file__).resolve().parent
LENGTH = 128
"""Largest number of tokens of a sentence."""

PLAN = Plan(1600, rate=0.003, warm=100, decay=0.01, clip=1.0, average=0.995, every=200)
BATCH = 48
SPELLED = 0.5
"""Share of entities' words that are spelled in letters in training."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,;:!?'\"()-"
IGNORED = -100
"""Class of tokens without a tag: special ones, and those that continue a word."""

CONFIG = {
    "architectures": ["BertForTokenClassification"],
    "model_type": "bert",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": LENGTH,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "id2label": {str(number): label for number, label in enumerate(LABELS)},
}


def tokenizer() -> Any:
    """Return BERT's tokenizer over the words of training sentences and single letters."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    known = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    known += [word for word in vocabulary() if word not in known]
    numbers = {word: number for number, word in enumerate(known)}
    found = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))  # noqa: S106
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    found.decoder = decoders.WordPiece()
    return found


def encoded(sentence: Tagged, tokens: Any, chance: np.random.Generator | None = None) -> tuple[list[int], list[int]]:
    """Return token numbers and classes: the tag of a word is that of its first token.

    ``chance``: spells entities' words in letters, as unknown words are; ``None``: the tokenizer's own pieces.
    """
    ids, classes = [2], [IGNORED]
    for word, tag in zip(sentence.words, sentence.tags, strict=True):
        low = word.lower()
        spelled = chance is not None and tag != "O" and chance.random() < SPELLED
        pieces = [low[0], *(f"##{letter}" for letter in low[1:])] if spelled else None
        own = (
            [tokens.token_to_id(piece) for piece in pieces]
            if pieces
            else tokens.encode(word, add_special_tokens=False).ids
        )
        ids += own
        classes += [LABELS.index(tag), *[IGNORED] * (len(own) - 1)]
    return [*ids, 3], [*classes, IGNORED]


def stacked(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, ...]:
    """Return token numbers, their mask and classes, N x L int64 each."""
    longest = max(len(ids) for ids, _ in rows)
    ids, mask = torch.zeros(2, len(rows), longest, dtype=torch.int64)
    classes = torch.full((len(rows), longest), IGNORED)
    for row, (own, tags) in enumerate(rows):
        ids[row, : len(own)], mask[row, : len(own)] = torch.tensor(own), 1
        classes[row, : len(own)] = torch.tensor(tags)
    return ids, mask, classes


def batches(tokens: Any) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield batches of new sentences without end."""
    chance = np.random.default_rng(0)
    while True:
        yield stacked([encoded(tagged_sentence(chance), tokens, chance) for _ in range(BATCH)])


def loss(network: Any, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the cross entropy over the words' first tokens."""
    ids, mask, classes = batch
    return functional.cross_entropy(network(ids, mask).flatten(0, 1), classes.flatten(), ignore_index=IGNORED)


@torch.no_grad()
def evaluate(network: Any, tokens: Any, sentences: int = 300) -> float:
    """Return the share of words of other sentences, with held-out names, whose tag is correct."""
    chance = np.random.default_rng(1)
    ids, mask, classes = stacked([encoded(tagged_sentence(chance, 0.5), tokens) for _ in range(sentences)])
    known = classes != IGNORED
    return float((network(ids, mask).argmax(-1) == classes)[known].float().mean())


def main() -> int:
    """Train, print the share of correct tags on held-out sentences and write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "small_bert_ner", help="output folder")
    out = parser.parse_args().out
    repeatable()
    tokens = tokenizer()
    config = CONFIG | {"vocab_size": tokens.get_vocab_size()}
    network = TokenClassified(sizes_of(config, "train.py"), len(LABELS))
    for name, weights in network.named_parameters():
        if weights.ndim == 2:
            torch.nn.init.normal_(weights, std=0.1 if "embeddings" in name else CONFIG["hidden_size"] ** -0.5)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        right, took = evaluate(averaged, tokens), time.process_time() - started
        print(f"step {step}: loss {late:.4f}, held-out tags {right:.4f}, {took:.0f} s", flush=True)

    averaged: Any = fit(network, lambda batch: loss(network, batch), batches(tokens), PLAN, mark)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    weights = {name.replace("base.", "bert.", 1): value for name, value in averaged.state_dict().items()}
    save_file({name: value.contiguous() for name, value in weights.items()}, out / "model.safetensors")
    tokens.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizerFast", "model_max_length": LENGTH}) + "\n", encoding="utf-8"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
