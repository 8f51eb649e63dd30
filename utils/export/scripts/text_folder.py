"""Common ``export_onnx.py`` of a folder of transformers: the head follows from the architecture in ``config.json``.

Usage: ``cli.run(partial(export_text_folder, __doc__, HERE, "my_tagger", "where it comes from"))``
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from engine import ConfigError
from utils.export.forms import STATIC, add_common
from utils.export.networks.bert_encoder import Sizes, read_config, sizes_of
from utils.export.networks.bert_heads import Classified, Headed, Spanned, TokenClassified
from utils.export.networks.random_weights import RANDOM
from utils.export.networks.text_models import (
    WEIGHTS,
    TextModel,
    classifier_model,
    encoder_model,
    export_text_model,
    labels_of,
    random_model,
    tagger_model,
)


class Head(NamedTuple):
    """A head: ``read`` returns the model of a folder with weights; ``make`` its module, with ``classes`` if it has."""

    read: Callable[[Path], TextModel]
    make: Callable[..., Headed]
    has_classes: bool = True


HEADS: Mapping[str, Head] = {
    "ForTokenClassification": Head(tagger_model, TokenClassified),
    "ForSequenceClassification": Head(classifier_model, Classified),
    "ForQuestionAnswering": Head(partial(encoder_model, make=Spanned), Spanned, has_classes=False),
}
"""Heads by the end of an architecture's name."""


def folder_model(folder: Path) -> TextModel:
    """Return the model of a folder with ``config.json`` and ``tokenizer.json``; without weights they are random.

    Raises:
        ConfigError: the architecture has no head here. ModelError: a file is missing or damaged, or does not fit.
    """
    config = read_config(folder / "config.json")
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    head = next((head for end, head in HEADS.items() if architecture.endswith(end)), None)
    if head is None:
        raise ConfigError(f"{folder / 'config.json'}: architecture {architecture!r}; use one of {', '.join(HEADS)}")
    if any((folder / name).is_file() for name in WEIGHTS):
        return head.read(folder)
    sizes = sizes_of(config, str(folder / "config.json"))
    labels = labels_of(config, folder / "config.json") if head.has_classes else None
    make: Callable[[Sizes], Headed] = head.make if labels is None else partial(head.make, classes=len(labels))
    return random_model(sizes, make, folder / "tokenizer.json", labels=labels)


def export_text_folder(
    description: str | None, folder: Path, name: str, source: str, argv: Sequence[str] | None = None
) -> int:
    """Run an export script: write the requested forms, print the largest relative error of each, and return 0.

    ``folder``: default of ``--out``, whose ``weights/`` is the default of ``--weights``; ``name``: start of the file
    names; ``source``: for the provenance. Raises the errors of :func:`folder_model` and ``export_text_model``.
    """
    parser = argparse.ArgumentParser(description=description)
    add_common(parser, folder)
    parser.add_argument(
        "--weights", type=Path, default=folder / "weights", help="folder with config.json and tokenizer.json"
    )
    parser.add_argument("--length", type=int, default=64, help="tokens of a text in the static file (default: 64)")
    args = parser.parse_args(argv)
    model = folder_model(args.weights)
    if model.weights == RANDOM:
        print("random weights: for functional and speed checks only")
    for form in args.forms:
        # a dynamic file is compared with its source at twice the length too, for which there have to be places
        most = model.max_length if form == STATIC else max(1, model.max_length // 2)
        results = export_text_model(
            model,
            args.out / name,
            source=source,
            length=min(args.length, most),
            batch=args.batch_size,
            forms=[form],
            exporter=args.exporter,
        )
        for result in results:
            print(result)
    return 0
