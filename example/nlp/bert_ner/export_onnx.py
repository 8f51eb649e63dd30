"""Export BERT or RoBERTa for token classification: <name>.onnx, <name>_dyn.onnx and <name>_float16_dyn.onnx.

``--weights`` is a folder as transformers' ``save_pretrained`` writes it, with ``classifier`` among the weights and the
tags in ``config.json`` (``id2label``).
"""

import argparse
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.synthetic.tagged_sentences import LABELS, vocabulary
from utils.export.forms import add_exporter, add_forms
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.bert_encoder import Sizes
    from utils.export.networks.bert_heads import TokenClassified
    from utils.export.networks.random_weights import RANDOM
    from utils.export.networks.text_models import TextModel, export_text_model, random_model, tagger_model, tokens_of

ARCHS = {
    "bert_base": Sizes("bert", vocabulary=28996, width=768, layers=12, heads=12, inner=3072),
    "bert_large": Sizes("bert", vocabulary=28996, width=1024, layers=24, heads=16, inner=4096),
    "roberta_base": Sizes("roberta", 50265, 768, 12, 12, 3072, places=514, types=1, pad=1, epsilon=1e-5),
    "xlm_roberta_base": Sizes("xlm-roberta", 250002, 768, 12, 12, 3072, places=514, types=1, pad=1, epsilon=1e-5),
}


def main() -> int:
    """Write the requested forms, and print the largest relative error of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument(
        "--weights", default=HERE / "small_bert_ner", help="a model's folder, or random (default: %(default)s)"
    )
    parser.add_argument("--arch", choices=list(ARCHS), default="bert_base", help="of random weights")
    parser.add_argument("--layers", type=int, help="of random weights, where fewer are to be computed")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, if it is not in the folder")
    parser.add_argument("--max_length", type=int, help="maximum tokens of a sentence (default: the model's positions)")
    parser.add_argument("--case", choices=("kept", "lower"), help="case of letters in training, if not the tokenizer's")
    parser.add_argument("--subword", choices=("first", "last"), help="token of a word that has its tag in training")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    parser.add_argument("--length", type=int, default=64, help="tokens of a sentence in the static file")
    parser.add_argument("--batch_size", type=int, default=1, help="batch of the static file")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    if str(args.weights) == RANDOM:
        print("random weights: for functional and speed checks only")
        model, name = random(args), args.arch
    else:
        model = tagger_model(args.weights, tokenizer=args.tokenizer, max_length=args.max_length)
        name = Path(args.weights).resolve().name
    settings = {key: getattr(args, key) for key in ("case", "subword") if getattr(args, key) is not None}
    for form in args.forms:
        # a dynamic file is compared with its source at twice the length too, for which there have to be places
        most = model.max_length if form == "static" else max(1, model.max_length // 2)
        results = export_text_model(
            model,
            args.out / name,
            source=f"{model.sizes.kind}, {model.sizes.layers} layers of {model.sizes.width}, token classification",
            length=min(args.length, most),
            batch=args.batch_size,
            forms=[form],
            notes={"token_classification": settings} if settings else {},
            exporter=args.exporter,
        )
        for result in results:
            print(result)
    return 0


def random(args: argparse.Namespace) -> TextModel:
    """Return a network with random weights, and a small tokenizer over the sentences' words unless one is given."""
    sizes = ARCHS[args.arch]
    tokenizer = args.tokenizer or small_tokenizer(sizes.kind, [" ".join(vocabulary())])
    if args.tokenizer is None:
        sizes = replace(sizes, vocabulary=tokens_of(tokenizer, "the tokenizer"))
    sizes = replace(sizes, layers=args.layers or sizes.layers)
    make = partial(TokenClassified, classes=len(LABELS))
    return random_model(sizes, make, tokenizer, labels=LABELS, max_length=args.max_length)


if __name__ == "__main__":
    cli.run(main)
