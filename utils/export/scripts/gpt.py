"""Common ``export_onnx.py`` of GPT-2 style decoders: flags, a folder of weights or random ones, files.

Usage: ``cli.run(partial(export_gpt, __doc__, HERE, "gpt2_small", "random"))``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from engine import ConfigError, ModelError
from tecoinfer_modelzoo.extra import extra
from tecoinfer_modelzoo.text import reason_of
from utils.export.forms import add_common
from utils.export.networks.gpt_decoder import SIZES, Form, GptDecoder, cache_names, example, fitted_state, read_form
from utils.export.networks.random_weights import RANDOM
from utils.export.torch_export import export_onnx
from utils.export.weight_files import load_state, read_state

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Weights files of a folder; the first existing one is read."""

END = "<|endoftext|>"


def export_gpt(
    description: str | None,
    folder: Path,
    weights: str,
    *,
    begins: bool = False,
    source: str = "",
    argv: Sequence[str] | None = None,
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    Args:
        folder: default of ``--out``. weights: default of ``--weights``: a folder in transformers' layout, or
            ``random``.
        begins: the model was trained on texts that start with the begin token.
        source: origin of the weights, for the metadata.
    """
    args = _arguments(description, folder, weights, argv)
    if args.weights == RANDOM:
        form = _random_form(args)
        print("random weights: for functional and speed checks only")
        torch.manual_seed(0)
        network, text, stem = GptDecoder(form), byte_tokenizer(form), args.name or f"gpt2_{args.size}"
    else:
        given = Path(args.weights)
        if any(getattr(args, key) is not None for key in _SMALLER):
            raise ConfigError("--layers, --width, --heads, --vocabulary and --positions are for --weights random")
        form, network = read_folder(given)
        text, stem = tokenizer_text(given), args.name or given.resolve().name
    for result in export_onnx(
        network,
        list(example(form)),
        args.out / stem,
        input_names=["input_ids", "position_ids", "attention_mask", *cache_names(form.layers, "past")],
        output_names=["logits", *cache_names(form.layers, "new")],
        dynamic=_axes(form),
        provenance={"source": "GPT-2 style decoder", "weights": source or args.weights},
        notes={
            "tokenizer": json.loads(text),
            "vocabulary_size": form.vocabulary,
            "generation": {"positions": form.positions, "begin": form.begin, "end": form.end, "begins": begins},
        },
        forms=args.forms,
        exporter=args.exporter,
    ):
        print(result)
    return 0


def _axes(form: Form) -> dict[str, dict[int, str]]:
    """Return the dynamic axes: samples, new tokens, and slots of the caches."""
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "position_ids")}
    axes["attention_mask"] = {0: "batch", 1: "slots"}
    return axes | {name: {0: "batch", 2: "slots"} for name in cache_names(form.layers, "past")}


def read_folder(folder: Path) -> tuple[Form, GptDecoder]:
    """Return the sizes and the network of a folder in transformers' layout.

    Raises ModelError if a file is missing, damaged, or of another model; TargetError if safetensors is not installed.
    """
    form = read_form(folder / "config.json")
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        fix = "use a folder in the layout of transformers"
        raise ModelError(f"{folder}: contains neither {' nor '.join(WEIGHTS)}; {fix}")
    network = GptDecoder(form)
    load_state(network, fitted_state(read_state(file)), str(file))
    return form, network


def tokenizer_text(folder: Path) -> str:
    """Return the ``tokenizer.json`` of a folder, or one made of ``vocab.json`` and ``merges.txt``.

    Raises ModelError if they are missing or cannot be read, ConfigError if the package ``tokenizers`` is not installed.
    """
    whole, words, merges = (folder / name for name in ("tokenizer.json", "vocab.json", "merges.txt"))
    try:
        if whole.is_file():
            return whole.read_text(encoding="utf-8")
        if not (words.is_file() and merges.is_file()):
            fix = "add the tokenizer"
            raise ModelError(f"{folder}: contains neither tokenizer.json nor vocab.json and merges.txt; {fix}")
        with extra("a tokenizer", "text"):
            from tokenizers import ByteLevelBPETokenizer
        made = ByteLevelBPETokenizer.from_file(str(words), str(merges))
        made.add_special_tokens([one for one in (END,) if made.token_to_id(one) is not None])
        return str(made.to_str())
    except ModelError:
        raise
    except Exception as error:  # tokenizers raises plain Exception
        raise ModelError(f"{folder}: its tokenizer cannot be read ({reason_of(error)}); get the files again") from error


def byte_tokenizer(form: Form) -> str:
    """Return a byte-level tokenizer for random weights; raise ConfigError for a vocabulary below 257 tokens."""
    with extra("a tokenizer", "text"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    if form.vocabulary < 257:
        raise ConfigError(f"--vocabulary {form.vocabulary} must be at least 257: 256 bytes and the end token")
    signs = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*signs, *(f"<|{i}|>" for i in range(len(signs), form.vocabulary - 1)), END]
    made = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([END])
    return str(made.to_str())


_SMALLER = ("layers", "width", "heads", "vocabulary", "positions")


def _random_form(args: argparse.Namespace) -> Form:
    form = SIZES[args.size]
    given: dict[str, Any] = {key: getattr(args, key) for key in _SMALLER if getattr(args, key) is not None}
    low = next((key for key, value in given.items() if value < 1), None)
    if low is not None:
        raise ConfigError(f"--{low} {given[low]} must be at least 1")
    form = replace(form, **given)
    if form.width % form.heads:
        raise ConfigError(f"--width {form.width} must be a multiple of --heads {form.heads}")
    end = form.vocabulary - 1
    return replace(form, inner=4 * form.width, begin=end, end=end)


def _arguments(description: str | None, folder: Path, weights: str, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder, batch=False)
    parser.add_argument(
        "--weights", default=weights, help="folder in transformers' layout (config.json, model.safetensors or "
        "pytorch_model.bin, tokenizer.json or vocab.json and merges.txt), or random (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="of random weights (default: small)")
    for key in _SMALLER:
        parser.add_argument(f"--{key}", type=int, metavar="N", help="of random weights, for a quick check")
    parser.add_argument("--name", help="start of the file names (default: gpt2_SIZE, or the folder's name)")
    return parser.parse_args(argv)
