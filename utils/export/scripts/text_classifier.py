"""Common ``export_onnx.py`` of classifiers of text: flags, network, files.

Usage: ``cli.run(partial(export_text_classifier, __doc__, HERE, ARCHS, HERE / "data/sentences.tsv"))``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine import ConfigError
from utils.datasets.text.texts import load_texts
from utils.export.forms import add_common
from utils.export.networks.bert_encoder import Sizes
from utils.export.networks.bert_heads import POOLINGS, Classified
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.export.networks.text_models import (
    TextModel,
    classifier_model,
    export_text_model,
    random_model,
    read_tokenizer,
    tokens_of,
)


def export_text_classifier(
    description: str | None, folder: Path, archs: Mapping[str, Sizes], texts: Path, argv: Sequence[str] | None = None
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``; ``archs``: sizes of random networks by name, the default first; ``texts``:
    labelled texts, the vocabulary and labels of a random network.
    """
    args = _arguments(description, folder, archs, argv)
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only")
        found, name = _random(args, archs[args.arch], texts), args.arch
    else:
        found = classifier_model(
            args.weights, tokenizer=args.tokenizer, max_length=args.max_length, pooling=args.pooling
        )
        name = Path(args.weights).resolve().name
    results = export_text_model(
        found,
        args.out / name,
        source=f"{found.sizes.kind}, {found.sizes.layers} layers of {found.sizes.width}",
        length=min(args.length, found.max_length),
        batch=args.batch_size,
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


def _arguments(
    description: str | None, folder: Path, archs: Mapping[str, Sizes], argv: Sequence[str] | None
) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    first = next(iter(archs))
    parser.add_argument(
        "--weights", required=True, help="folder with config.json, model.safetensors and tokenizer.json, or random"
    )
    parser.add_argument("--arch", choices=list(archs), default=first, help=f"of random weights (default: {first})")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, if it is not in the folder")
    parser.add_argument("--max_length", type=int, help="maximum tokens of a text (default: the model's positions)")
    parser.add_argument(
        "--pooling", choices=POOLINGS, help="pooling of the token vectors, if the classifier uses the pooled vector"
    )
    parser.add_argument("--length", type=int, default=64, help="tokens of a text in the static file (default: 64)")
    return parser.parse_args(argv)


def _random(args: argparse.Namespace, sizes: Sizes, texts: Path) -> TextModel:
    """Return a network of random weights with the words and labels of some texts."""
    data = load_texts(texts)
    batch = data.batch(range(len(data)))
    labels = sorted({str(label) for label in batch.targets or ()})
    if not labels:
        raise ConfigError(f"{texts}: does not contain labels; add a column label")
    if args.tokenizer is None:
        description = small_tokenizer(sizes.kind, batch.samples)
    else:
        description = read_tokenizer(args.tokenizer, None)
    fitted = replace(sizes, vocabulary=tokens_of(description, str(args.tokenizer)))
    make = partial(Classified, classes=len(labels), pooling=args.pooling)
    return random_model(fitted, make, description, labels=labels, max_length=args.max_length)
