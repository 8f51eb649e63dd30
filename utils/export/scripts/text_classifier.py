"""What the ``export_onnx.py`` of classifiers of text does: flags, network, files.

A folder names its networks and makes one call::

    cli.run(partial(export_text_classifier, __doc__, HERE, ARCHS, HERE / "data/sentences.tsv"))
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from engine import ConfigError, add_version
from utils.datasets.text.texts import load_texts
from utils.export.forms import add_exporter, add_forms
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
    description: str | None,
    folder: Path,
    archs: Mapping[str, Sizes],
    texts: Path,
    argv: Sequence[str] | None = None,
) -> int:
    """Run an export script: write the forms asked for, and print the largest relative error of each.

    Args:
        description: the script's docstring.
        folder: where the files go unless ``--out`` says so.
        archs: sizes of random networks by name, the default first.
        texts: labelled texts, whose words and labels a random network gets.
        argv: the command line; ``None``: the process's own.

    Returns:
        The exit code, 0.

    Raises:
        ConfigError: a flag cannot be used. ModelError, ExportError: weights or a form cannot be made.
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
    add_version(parser)
    first = next(iter(archs))
    parser.add_argument(
        "--weights",
        required=True,
        help="folder with config.json, model.safetensors and tokenizer.json, or random",
    )
    parser.add_argument("--arch", choices=list(archs), default=first, help=f"of random weights (default: {first})")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, where it is not in the folder")
    parser.add_argument("--max_length", type=int, help="tokens of a text at most (default: the model's places)")
    parser.add_argument(
        "--pooling", choices=POOLINGS, help="where the classes' matrix stands on the pooled vectors of the tokens"
    )
    parser.add_argument("--out", type=Path, default=folder, help="folder of the ONNX files")
    parser.add_argument("--length", type=int, default=64, help="tokens of a text in the static file (default: 64)")
    parser.add_argument("--batch_size", type=int, default=1, help="batch of the static file")
    add_forms(parser)
    add_exporter(parser)
    return parser.parse_args(argv)


def _random(args: argparse.Namespace, sizes: Sizes, texts: Path) -> TextModel:
    """Return a network of random weights that knows the words and labels of some texts."""
    data = load_texts(texts)
    batch = data.batch(range(len(data)))
    labels = sorted({str(label) for label in batch.targets or ()})
    if not labels:
        raise ConfigError(f"{texts}: holds no labels; give it a column label")
    if args.tokenizer is None:
        description = small_tokenizer(sizes.kind, batch.samples)
    else:
        description = read_tokenizer(args.tokenizer, None)
    fitted = replace(sizes, vocabulary=tokens_of(description, str(args.tokenizer)))
    make = partial(Classified, classes=len(labels), pooling=args.pooling)
    return random_model(fitted, make, description, labels=labels, max_length=args.max_length)
