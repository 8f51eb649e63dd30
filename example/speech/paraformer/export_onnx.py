"""Export Paraformer as two ONNX models, NAME_encoder*.onnx and NAME_decoder*.onnx, of a folder of weights or random."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError, ModelError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli
from utils.preprocess.audio.features import KEY, FilterBank, settings_to_json
from utils.tasks.nonautoregressive_asr import NOTE

with needed(__file__):
    import torch
    from folder import SPECIAL, UNUSED, Folder, read_folder
    from model import Form, Listening, Paraformer, example

    from utils.export.networks.random_weights import RANDOM
    from utils.export.torch_export import export_onnx
    from utils.export.weight_files import load_state, read_state

HERE = Path(__file__).resolve().parent
WEIGHTS = ("model.pt", "model.pb")
SIZES = {
    "tiny": Form(width=128, layers=4, inner=512, decoder_layers=2, decoder_inner=512, vocabulary=500),
    "large": Form(),
}
"""Sizes of random weights: a small one, and that of the published Paraformer-large."""

SMALLER = ("layers", "decoder_layers", "width", "heads", "vocabulary")
RARE = -1.1
"""Bias of the predictor of random weights: a frame has a weight of about a quarter of a token, as in speech."""


def main() -> int:
    """Write the files and print the largest relative error of each."""
    args = _arguments()
    given = [key for key in SMALLER if getattr(args, key) is not None]
    if args.weights == RANDOM:
        print("random weights: for functional and speed checks only; what they write means nothing")
        read, stem = _random(_random_form(args)), args.name or f"paraformer_{args.size}"
        torch.manual_seed(0)
        whole = Paraformer(read.form)
        torch.nn.init.constant_(whole.predictor.cif_output.bias, RARE)
    else:
        if given:
            raise ConfigError(f"{', '.join(f'--{key}' for key in given)} are for --weights random")
        folder = Path(args.weights)
        read, stem = read_folder(folder), args.name or folder.resolve().name
        whole = load_folder(folder, read.form)
    provenance = {"source": "Paraformer", "weights": args.weights}
    write(whole, read, args.out / stem, provenance=provenance, forms=args.forms, exporter=args.exporter)
    return 0


def load_folder(folder: Path, form: Form) -> Paraformer:
    """Return the network with a folder's weights.

    Raises:
        ModelError: they are missing, or do not fit the network.
    """
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise ModelError(f"{folder}: holds no model.pt; give a folder in FunASR's layout")
    whole = Paraformer(form)
    load_state(whole, {key: value.float() for key, value in read_state(file).items()}, str(file), UNUSED)
    return whole


def write(whole: Paraformer, read: Folder, stem: Path, **how: Any) -> None:
    """Write both models; ``how``: provenance, forms and exporter, as export_onnx takes them."""
    form = read.form
    whole.eval()
    heard, written = example(form)
    frames, tokens = {0: "batch", 1: "frames"}, {0: "batch", 1: "tokens"}
    note = {"together": form.together, "step": form.step, "shift": read.shift, "scale": read.scale}
    results = export_onnx(
        Listening(whole),
        heard,
        f"{stem}_encoder",
        input_names=["features", "mask"],
        output_names=["states", "weights"],
        dynamic={"features": frames, "mask": frames},
        notes={
            KEY: json.loads(settings_to_json(read.features)),
            NOTE: {**note, "tail": form.tail, "positions": form.positions},
        },
        **how,
    )
    results += export_onnx(
        whole.decoder,
        written,
        f"{stem}_decoder",
        input_names=["tokens", "token_mask", "states", "mask"],
        output_names=["logits"],
        dynamic={"tokens": tokens, "token_mask": tokens, "states": frames, "mask": frames},
        vocabulary=read.tokens,
        notes={NOTE: {"silent": [one for one in SPECIAL if one in read.tokens]}},
        **how,
    )
    for result in results:
        print(result, flush=True)


def _random(form: Form) -> Folder:
    """Return tokens, Chinese characters in code point order, and typical means of the features of speech."""
    tokens = [*SPECIAL[:3], *(chr(0x4E00 + i) for i in range(form.vocabulary - 4)), SPECIAL[3]]
    return Folder(form, tokens, FilterBank(shape="hamming"), [-12.0] * form.inputs, [0.25] * form.inputs)


def _random_form(args: argparse.Namespace) -> Form:
    given = {key: getattr(args, key) for key in SMALLER if getattr(args, key) is not None}
    low = next((key for key, value in given.items() if value < 1), None)
    if low is not None:
        raise ConfigError(f"--{low} {given[low]} must be at least 1")
    if "heads" in given:
        given["decoder_heads"] = given["heads"]
    if "width" in given:
        given["inner"] = given["decoder_inner"] = 4 * given["width"]
    form = replace(SIZES[args.size], **given)
    if form.width % form.heads or form.width == form.inputs:
        raise ConfigError(f"--width {form.width} must be a multiple of --heads {form.heads}, and not {form.inputs}")
    if not 5 <= form.vocabulary <= 20000:
        raise ConfigError(f"--vocabulary {form.vocabulary} must be 5 to 20000")
    return form


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument(
        "--weights", default=RANDOM, help="folder in FunASR's layout (config.yaml, model.pt, am.mvn, tokens.json or "
        "tokens.txt), or random (default)",
    )  # fmt: skip
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny", help="of random weights (default: tiny)")
    for key in SMALLER:
        parser.add_argument(f"--{key}", type=int, metavar="N", help="of random weights, for a quick check")
    parser.add_argument("--name", help="start of the files' names (default: paraformer_SIZE, or the folder's name)")
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), help="of PyTorch (default: dynamo)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    return parser.parse_args()


if __name__ == "__main__":
    cli.run(main)
