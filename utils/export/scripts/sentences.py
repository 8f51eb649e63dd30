"""Common ``export_onnx.py`` of embedders and rerankers: flags, network, files.

Usage: ``cli.run(partial(export_sentences, __doc__, HERE, Wanted(make=..., archs=..., note=...), texts))``
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from utils.export.forms import add_common
from utils.export.networks.bert_encoder import Sizes, sizes_of
from utils.export.networks.bert_heads import Headed
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.text_models import TextModel, encoder_model, export_text_model, random_model, tokens_of
from utils.fetch import fetched_path, is_fetched_path


@dataclass(frozen=True)
class Wanted:
    """The models that a folder exports.

    Attributes:
        make: returns the module for its sizes, such as ``partial(Embedded, pooling="cls")``.
        archs: sizes of random networks by name, the default first; may be empty.
        read: returns the sizes in a ``config.json``.
        note: metadata ``embedding``: pooling, normalize, compare, prefixes; empty for a reranker.
        weights: default of ``--weights``; ``None``: required.
        name: of the files; ``None``: that of the folder or architecture.
        max_length: default of ``--max_length``; ``None``: the model's positions.
    """

    make: Callable[[Sizes], Headed]
    archs: Mapping[str, Sizes] = field(default_factory=dict)
    read: Callable[[Mapping[str, Any], str], Sizes] = sizes_of
    note: Mapping[str, Any] = field(default_factory=dict)
    weights: str | None = None
    name: str | None = None
    max_length: int | None = None


def export_sentences(
    description: str | None, folder: Path, wanted: Wanted, texts: Path | None = None, argv: Sequence[str] | None = None
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``. ``texts``: a ``.jsonl`` whose ``text`` is the vocabulary of a random network's
    tokenizer. Raises ConfigError for an invalid flag; ModelError, ExportError: weights or a form cannot be made;
    FetchError: weights cannot be downloaded.
    """
    args = _arguments(description, folder, wanted, argv)
    length = args.max_length or wanted.max_length
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
        found, name = _random(wanted, args.arch, texts, length), args.arch
    else:
        place = fetched_path(args.weights) if is_fetched_path(args.weights) else Path(args.weights)
        found = encoder_model(place, wanted.make, tokenizer=args.tokenizer, max_length=length, read=wanted.read)
        name = wanted.name or place.resolve().name
    note = dict(wanted.note)
    for key in ("query_prefix", "passage_prefix"):
        if wanted.note and getattr(args, key) is not None:
            note[key] = getattr(args, key)
    results = export_text_model(
        found,
        args.out / name,
        source=f"{args.weights}: {found.sizes.layers} layers of {found.sizes.width}",
        length=min(args.length, found.max_length),
        forms=args.forms,
        notes={"embedding": note} if note else {},
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


def _arguments(description: str | None, folder: Path, wanted: Wanted, argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder, batch=False)
    random = ", or random" if wanted.archs else ""
    parser.add_argument(
        "--weights",
        required=wanted.weights is None,
        default=wanted.weights,
        help=f"folder with config.json, model.safetensors or pytorch_model.bin, and tokenizer.json{random}",
    )
    if wanted.archs:
        first = next(iter(wanted.archs))
        parser.add_argument("--arch", choices=list(wanted.archs), default=first, help=f"of random weights ({first})")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, if it is not in the folder")
    parser.add_argument("--max_length", type=int, help="maximum tokens of a text (default: the model's positions)")
    if wanted.note:
        parser.add_argument("--query_prefix", help="prefix of queries, stored in the files")
        parser.add_argument("--passage_prefix", help="prefix of passages, stored in the files")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text in the static file (default: 64)")
    return parser.parse_args(argv)


def _random(wanted: Wanted, arch: str, texts: Path | None, length: int | None) -> TextModel:
    """Return a network of random weights with a tokenizer for the words of some texts."""
    sizes = wanted.archs[arch]
    lines = [] if texts is None else texts.read_text(encoding="utf-8").splitlines()
    description = small_tokenizer(sizes.kind, [str(json.loads(line)["text"]) for line in lines if line.strip()])
    fitted = replace(sizes, vocabulary=tokens_of(description, "the tokenizer"))
    return random_model(fitted, wanted.make, description, max_length=min(length or sizes.longest, sizes.longest))
