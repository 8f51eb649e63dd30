"""Train the tokenizer and the weights: tokenizer.json, config.json and model.safetensors, in transformers' layout.

The weights are rounded to float16 and stored as such. The text is the training part of ``corpus.py``: prose of the
running Python without the held-out pages.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from corpus import is_held_out, made_by, pages

from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.pipeline import cli

with needed(__file__):
    import torch
    from safetensors.torch import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from torch.nn import functional

    from utils.export.networks.gpt_decoder import Form, GptDecoder
    from utils.export.networks.training import Plan, fit, repeatable

HERE = Path(__file__).resolve().parent
END = "<|endoftext|>"
FORM = Form(vocabulary=768, positions=256, width=80, layers=3, heads=5, inner=320, begin=0, end=0)
BATCH = 16
PLAN = Plan(steps=2400, rate=0.004, warm=100, decay=0.1, clip=1.0, average=0.995, every=200)


def tokenizer_of(texts: list[str]) -> Tokenizer:
    """Train byte-level BPE on the texts; token 0 begins and ends a text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=FORM.vocabulary, special_tokens=[END], initial_alphabet=alphabet, show_progress=False
        ),
    )
    return made


def numbered(tokenizer: Tokenizer, texts: list[str]) -> torch.Tensor:
    """Return all texts as one row of tokens, the special one before each."""
    return torch.tensor([token for one in tokenizer.encode_batch(texts) for token in (0, *one.ids)])


def training_batches(tokens: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield windows of the text from random positions, one token longer than the model's input."""
    made = torch.Generator().manual_seed(1)
    length = FORM.positions + 1
    while True:
        starts = torch.randint(0, len(tokens) - length, (BATCH,), generator=made).tolist()
        yield torch.stack([tokens[start : start + length] for start in starts])


def loss(network: GptDecoder, batch: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of the next token."""
    return functional.cross_entropy(network.whole(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


@torch.no_grad()
def evaluate(network: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Return the perplexity of a row of tokens in windows without overlap, to monitor the training."""
    length = FORM.positions + 1
    rows = tokens[: len(tokens) // length * length].reshape(-1, length)
    return float(torch.stack([loss(network, part) for part in rows.split(16)]).mean().exp())  # type: ignore[arg-type]


def save(network: torch.nn.Module, folder: Path) -> None:
    """Write the weights as float16, and the config."""
    weights = {name: value.half().contiguous() for name, value in network.state_dict().items()}
    made = folder / "model.safetensors"
    save_file(weights, made, metadata={"format": "pt"})
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "vocab_size": FORM.vocabulary,
        "n_positions": FORM.positions,
        "n_embd": FORM.width,
        "n_layer": FORM.layers,
        "n_head": FORM.heads,
        "activation_function": FORM.activation,
        "layer_norm_epsilon": FORM.epsilon,
        "bos_token_id": FORM.begin,
        "eos_token_id": FORM.end,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copymode(folder / "config.json", made)  # the library makes it readable by the owner only


def main() -> int:
    """Train, and write the files that the export reads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the files")
    out = parser.parse_args().out
    repeatable()
    texts = pages()
    learned = [text for name, text in texts.items() if not is_held_out(name)]
    held = [text for name, text in texts.items() if is_held_out(name)]
    tokenizer = tokenizer_of(learned)
    tokenizer.save(str(out / "tokenizer.json"))
    tokens, rest = numbered(tokenizer, learned), numbered(tokenizer, held)
    print(made_by())
    print(f"{len(learned)} pages, {len(tokens)} tokens to learn; {len(held)} pages, {len(rest)} tokens held out")
    network = GptDecoder(FORM)
    print(f"{sum(one.numel() for one in network.parameters())} parameters")
    started = time.process_time()

    def mark(step: int, late: float, averaged: torch.nn.Module) -> None:
        save(averaged, out)
        minutes = (time.process_time() - started) / 60
        print(f"step {step}: {minutes:.1f} min, loss {late:.3f}, perplexity {evaluate(averaged, rest):.3f}", flush=True)

    averaged = fit(network, lambda batch: loss(network, batch), training_batches(tokens), PLAN, mark)
    save(averaged, out)
    return 0


if __name__ == "__main__":
    cli.run(main)
