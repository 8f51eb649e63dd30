"""Export a Marian or T5 model as two ONNX models, NAME_encoder*.onnx and NAME_decoder*.onnx.

``--weights`` is a folder as transformers' ``save_pretrained`` writes it, with ``tokenizer.json`` and, if translations
have another one, ``target_tokenizer.json``; or with Marian's ``source.spm``, ``target.spm`` and ``vocab.json``.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2]))
from engine import add_version
from tecoinfer_modelzoo.extra import needed
from utils.datasets.text.parallel import load_pairs
from utils.export.forms import add_exporter, add_forms
from utils.export.networks.small_tokenizers import small_tokenizer
from utils.pipeline import cli

with needed(__file__):
    from utils.export.networks.random_weights import RANDOM
    from utils.export.networks.seq2seq import SIZES
    from utils.export.networks.translation_models import (
        TranslationModel,
        export_translation_model,
        random_translation_model,
        translation_model,
    )


def main() -> int:
    """Write the requested forms, and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_version(parser)
    parser.add_argument(
        "--weights", default=HERE / "tiny_marian", help="a model's folder, or random (default: %(default)s)"
    )
    parser.add_argument("--arch", choices=list(SIZES), default="marian", help="of random weights")
    parser.add_argument("--layers", type=int, help="of random weights, where fewer are to be computed")
    parser.add_argument("--tokenizer", type=Path, help="tokenizer.json, if it is not in the folder")
    parser.add_argument("--target_tokenizer", type=Path, help="that of the translations, if it is another file")
    parser.add_argument("--prefix", help="text before each source, as in training; stored for inference")
    parser.add_argument("--case", choices=("kept", "lower"), help="case of the source in training; stored")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    add_exporter(parser)
    args = parser.parse_args()
    if str(args.weights) == RANDOM:
        print("random weights: for functional and speed checks only")
        model, name = random(args), f"{args.arch}_random"
    else:
        given = {"tokenizer": args.tokenizer, "target_tokenizer": args.target_tokenizer}
        model, name = translation_model(args.weights, **given), Path(args.weights).resolve().name
    form = model.module.form
    results = export_translation_model(
        model,
        args.out / name,
        source=f"{form.kind}, {form.layers} + {form.decoder_layers} layers of {form.width}, translation",
        settings={key: getattr(args, key) for key in ("prefix", "case") if getattr(args, key) is not None},
        forms=args.forms,
        exporter=args.exporter,
    )
    for result in results:
        print(result)
    return 0


def random(args: argparse.Namespace) -> TranslationModel:
    """Return a network with random weights and a small tokenizer over the prompts' words."""
    form = SIZES[args.arch]
    data = load_pairs({"data": HERE / "data" / "train.tsv"})
    tokenizer = small_tokenizer("roberta", data.samples)
    count = {"layers": args.layers, "decoder_layers": args.layers} if args.layers else {}
    return random_translation_model(replace(form, start=1, pad=1, end=2, **count), tokenizer)


if __name__ == "__main__":
    cli.run(main)
