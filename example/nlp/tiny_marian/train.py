"""Train a tiny Marian from English to French on telephone prompts: seeded, one thread, the same weights every time.

One byte-level BPE vocabulary for both languages; English is lower-cased first. In training a tenth of the tokens on
both sides is replaced by ``<unk>``, because 278 pairs are few. The held-out pairs in ``data/val.tsv`` are only used to
print the loss on them at the end.
Writes ``config.json``, ``model.safetensors``, ``tokenizer.json`` and ``target_tokenizer.json``.
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
from utils.datasets.text.parallel import load_pairs
from utils.pipeline import cli

with needed(__file__):
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from torch.nn import functional

    from utils.export.networks.seq2seq import Seq2Seq, form_of
    from utils.export.networks.training import Plan, fit, repeatable

HERE = Path(__file__).resolve().parent

PLAN = Plan(900, rate=0.005, warm=100, decay=0.1, clip=1.0, average=0.99, every=100)
BATCH, SMOOTHING, LOST = 24, 0.1, 0.1
TOKENS, POSITIONS = 640, 96
END, UNKNOWN, PAD = "</s>", "<unk>", "<pad>"
IGNORED = -100

CONFIG = {
    "architectures": ["MarianMTModel"],
    "model_type": "marian",
    "vocab_size": TOKENS,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
    "max_position_embeddings": POSITIONS,
    "activation_function": "swish",
    "scale_embedding": True,
    "dropout": 0.2,
    "eos_token_id": 0,
    "pad_token_id": 2,
    "decoder_start_token_id": 2,
}

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def tokenizer(texts: Sequence[str]) -> Tokenizer:
    """Return a byte-level BPE of both languages, which appends the end token."""
    made = Tokenizer(models.BPE())
    made.normalizer = normalizers.NFC()
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=True), decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    how = trainers.BpeTrainer(
        vocab_size=TOKENS, special_tokens=[END, UNKNOWN, PAD], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(texts, how)
    made.post_processor = processors.TemplateProcessing(single=f"$A {END}", special_tokens=[(END, 0)])
    return made


def of_source(target: Tokenizer) -> Tokenizer:
    """Return the same tokenizer for lower-cased text."""
    made = Tokenizer.from_str(target.to_str())
    made.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Lowercase()])
    return made


def stacked(rows: Sequence[tuple[list[int], list[int]]]) -> Batch:
    """Return source tokens and mask, the decoder's input and the tokens to predict, N x L int64 each."""
    source = torch.full((len(rows), max(len(one) for one, _ in rows)), CONFIG["pad_token_id"])
    mask = torch.zeros_like(source)
    given = torch.full((len(rows), max(len(two) for _, two in rows)), CONFIG["pad_token_id"])
    wanted = torch.full_like(given, IGNORED)
    for row, (one, two) in enumerate(rows):
        source[row, : len(one)], mask[row, : len(one)] = torch.tensor(one), 1
        given[row, 1 : len(two)], wanted[row, : len(two)] = torch.tensor(two[:-1]), torch.tensor(two)
    return source, mask, given, wanted


def batches(pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[Batch]:
    """Yield batches without end, with some tokens replaced by the unknown one."""
    chance = np.random.default_rng(0)
    while True:
        order = chance.permutation(len(pairs))
        for start in range(0, len(order) - BATCH + 1, BATCH):
            source, mask, given, wanted = stacked([pairs[place] for place in order[start : start + BATCH]])
            for tokens in (source, given):
                lost = torch.from_numpy(chance.random(tokens.shape) < LOST) & (tokens > CONFIG["pad_token_id"])
                tokens[lost] = 1
            yield source, mask, given, wanted


def loss(network: Any, batch: Batch, smoothing: float = SMOOTHING) -> torch.Tensor:
    """Return the cross entropy of the target's tokens."""
    *inputs, wanted = batch
    logits = network(*inputs).flatten(0, 1)
    return functional.cross_entropy(logits, wanted.flatten(), ignore_index=IGNORED, label_smoothing=smoothing)


def main() -> int:
    """Train, print the loss on the held-out pairs, and write the model's folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE / "tiny_marian", help="output folder")
    out = parser.parse_args().out
    repeatable()
    train, held_out = (load_pairs({"data": HERE / "data" / name}) for name in ("train.tsv", "val.tsv"))
    texts = [(one, two[0]) for one, two in zip(train.samples, train.targets or (), strict=True)]
    target = tokenizer([one.lower() for one, _ in texts] + [two for _, two in texts])
    source = of_source(target)

    def encoded(rows: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        return [(source.encode(one).ids[:POSITIONS], target.encode(two).ids[:POSITIONS]) for one, two in rows]

    config = CONFIG | {"vocab_size": target.get_vocab_size()}
    network, started = Seq2Seq(form_of(config, "train.py")), time.process_time()
    torch.nn.init.normal_(network.shared.weight, std=CONFIG["d_model"] ** -0.5)
    others = [(one, two[0]) for one, two in zip(held_out.samples, held_out.targets or (), strict=True)]
    check = stacked(encoded(others))

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        with torch.no_grad():
            far = float(loss(averaged, check, 0.0))
        print(f"step {step}: loss {late:.3f}, held-out {far:.3f}, {time.process_time() - started:.0f} s", flush=True)

    averaged: Any = fit(network, lambda batch: loss(network, batch), batches(encoded(texts)), PLAN, mark)
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    weights = {
        name if name == "final_logits_bias" else f"model.{name}": value.contiguous()
        for name, value in averaged.state_dict().items()
    }
    save_file(weights, out / "model.safetensors")
    source.save(str(out / "tokenizer.json"))
    target.save(str(out / "target_tokenizer.json"))
    return 0


if __name__ == "__main__":
    cli.run(main)
