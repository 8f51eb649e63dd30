"""Train a small BERT that answers questions on composed stories: seeded, one thread, the same weights every time.

The stories are generated during training (``utils/datasets/synthetic/fact_stories.py``) and share no person with the
held-out ones. Writes ``config.json``, ``model.safetensors`` and ``tokenizer.json`` in transformers' layout.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.fact_stories import Story, story, vocabulary

with needed(__file__):
    import torch
    from safetensors.torch import save_file
    from torch.nn import functional

    from utils.export.networks.bert_encoder import MASKED, sizes_of
    from utils.export.networks.bert_heads import Spanned
    from utils.export.networks.training import Plan, fit, repeatable

HERE = Path(__file__).resolve().parent
LENGTH = 128
"""Largest number of tokens of the network's input, and of a training story."""

PLAN = Plan(2600, rate=0.002, warm=100, decay=0.01, clip=1.0, every=200)
UNKNOWN = "[UNK]"
BATCH = 10
"""Stories per batch, each with a question per person."""
EASY = 1000
"""Batches of stories of two people, which precede those of up to four."""


CONFIG = {
    "architectures": ["BertForQuestionAnswering"],
    "model_type": "bert",
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 192,
    "max_position_embeddings": LENGTH,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "no_answer": True,
}


def network_of(config: Mapping[str, Any]) -> Spanned:
    """Return the network before training."""
    network = Spanned(sizes_of(config, "train.py"))
    width = config["hidden_size"]
    for name, weights in network.named_parameters():
        if weights.ndim == 2:
            torch.nn.init.normal_(weights, std=0.5 if "embeddings" in name else width**-0.5)
    # waves, which are shifted by a rotation: looking some tokens back is learnt at once (Vaswani et al., 2017)
    places = torch.arange(config["max_position_embeddings"])[:, None]
    angles = places * 10000.0 ** (-torch.arange(0, width, 2) / width)
    waves = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
    network.base.embeddings.position_embeddings.weight.data = waves * 0.5
    return network


def logits(network: Any, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return start and end logits of every token, N x L each; -1e4 for padding."""
    ids, mask, types = arrays
    return [found + (1 - mask.float()) * MASKED for found in network(ids, mask, types)]


def tokenizer() -> Any:
    """Return BERT's tokenizer over the stories' words."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    words = {word: number for number, word in enumerate(vocabulary())}
    found = Tokenizer(models.WordPiece(words, unk_token=UNKNOWN, max_input_chars_per_word=100))
    found.normalizer = normalizers.BertNormalizer(lowercase=True)
    found.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", words["[CLS]"]), ("[SEP]", words["[SEP]"])],
    )
    found.decoder = decoders.WordPiece()
    return found


def encoded(stories: Sequence[Story], tokens: Any) -> tuple[torch.Tensor, ...]:
    """Return token numbers, mask, types (N x L each), and first and last token of each answer (N; 0 if none)."""
    pairs = [(question, story.text) for story in stories for question in story.questions]
    found = tokens.encode_batch([(question.text, text) for question, text in pairs])
    longest = max(len(one.ids) for one in found)
    arrays = np.zeros((3, len(found), longest), np.int64)
    ends = np.zeros((2, len(found)), np.int64)
    for row, (one, (question, _)) in enumerate(zip(found, pairs, strict=True)):
        arrays[:, row, : len(one.ids)] = one.ids, one.attention_mask, one.type_ids
        if question.answer:
            first = one.char_to_token(question.start, 1)
            last = one.char_to_token(question.start + len(question.answer) - 1, 1)
            ends[:, row] = first, last
    return tuple(map(torch.from_numpy, (*arrays, *ends)))


def batches(tokens: Any) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield batches of new stories without end: short ones first, to learn which person a question is about."""
    chance = np.random.default_rng(0)
    for step in count():
        easy = step < EASY
        people = [2 if easy else int(chance.integers(2, 5)) for _ in range(BATCH)]
        yield encoded([story(chance, False, some, 0.1 if easy else 0.25) for some in people], tokens)


def loss(network: Any, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """Return the cross entropy of the first and the last token of the answer."""
    ids, mask, types, first, last = batch
    starts, ends = logits(network, (ids, mask, types))
    return functional.cross_entropy(starts, first) + functional.cross_entropy(ends, last)


@torch.no_grad()
def evaluate(network: Any, tokens: Any, stories: int = 60) -> float:
    """Return the share of held-out questions whose first and last token are both correct."""
    chance = np.random.default_rng(1)
    *arrays, first, last = encoded([story(chance, True) for _ in range(stories)], tokens)
    starts, ends = logits(network, arrays)
    right = (starts.argmax(-1) == first) & (ends.argmax(-1) == last)
    return float(right.float().mean())


def main() -> int:
    """Train, print the accuracy on the held-out questions and write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "small_bert_qa", help="output folder")
    out = parser.parse_args().out
    repeatable()
    tokens = tokenizer()
    config = CONFIG | {"vocab_size": tokens.get_vocab_size()}
    network = network_of(config)
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        right, took = evaluate(averaged, tokens), time.process_time() - started
        print(f"step {step}: loss {late:.3f}, held-out {right:.3f}, {took:.0f} s", flush=True)

    averaged: Any = fit(network, lambda batch: loss(network, batch), batches(tokens), PLAN, mark)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = {name.replace("base.", "bert.", 1): value for name, value in averaged.state_dict().items()}
    save_file({name: value.contiguous() for name, value in weights.items()}, out / "model.safetensors")
    tokens.save(str(out / "tokenizer.json"))
    (out / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizerFast", "model_max_length": LENGTH}) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
