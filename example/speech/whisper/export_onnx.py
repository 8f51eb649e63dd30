"""Export Whisper as two ONNX models, NAME_encoder*.onnx and NAME_decoder*.onnx, of a folder of weights or random."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError, ModelError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli
from utils.preprocess.audio.features import KEY, WHISPER, settings_to_json

with needed(__file__):
    import torch
    from model import SIZES, Form, Listening, Whisper, Writing, cache_names, example, fitted_state, read_form
    from special import notes_of, random_tokens, tokenizer_of

    from utils.export.networks.random_weights import RANDOM
    from utils.export.torch_export import export_onnx
    from utils.export.weight_files import load_state, read_state

HERE = Path(__file__).resolve().parent
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
SMALLER = ("layers", "width", "heads", "vocabulary", "positions")


def main() -> int:
    """Write the files and print the largest relative error of each."""
    args = _arguments()
    if args.weights == RANDOM:
        form, stem = _random_form(args), args.name or f"whisper_{args.size}"
        print("random weights: for functional and speed checks only; what they write means nothing")
        torch.manual_seed(0)
        whole, (tokenizer, notes) = Whisper(form), random_tokens(form)
    else:
        folder = Path(args.weights)
        if any(getattr(args, key) is not None for key in SMALLER):
            raise ConfigError(f"{', '.join(f'--{key}' for key in SMALLER)} are for --weights random")
        form, stem = read_form(folder / "config.json"), args.name or folder.resolve().name
        whole, tokenizer, notes = read_folder(folder, form), tokenizer_of(folder), notes_of(folder, form)
    provenance = {"source": "Whisper", "weights": args.weights}
    write(whole, tokenizer, notes, args.out / stem, provenance=provenance, forms=args.forms, exporter=args.exporter)
    return 0


def read_folder(folder: Path, form: Form) -> Whisper:
    """Return the network with a folder's weights.

    Raises:
        ModelError: they are missing, or do not fit the network.
    """
    file = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if file is None:
        raise ModelError(f"{folder}: holds neither {' nor '.join(WEIGHTS)}; give a folder as transformers writes it")
    whole = Whisper(form)
    load_state(whole, fitted_state(read_state(file)), str(file))
    return whole


def write(whole: Whisper, tokenizer: str, notes: dict[str, Any], stem: Path, **how: Any) -> None:
    """Write both models; ``how``: provenance, forms and exporter, as export_onnx takes them."""
    form = whole.form
    heard = json.loads(settings_to_json(replace(WHISPER, bands=form.bands)))
    frames = 2 * form.frames
    mels = torch.randn((2, form.bands, frames), generator=torch.Generator().manual_seed(0))
    axes = {name: {0: "batch", 1: "tokens"} for name in ("input_ids", "position_ids")}
    axes |= {"attention_mask": {0: "batch", 1: "slots"}, "cross_keys": {0: "batch"}, "cross_values": {0: "batch"}}
    axes |= {name: {0: "batch", 2: "slots"} for name in cache_names(form.decoder_layers, "past")}
    results = export_onnx(
        Listening(whole),
        [mels],
        f"{stem}_encoder",
        input_names=["mels"],
        output_names=["cross_keys", "cross_values"],
        notes={KEY: heard},
        **how,
    )
    results += export_onnx(
        Writing(whole),
        example(form),
        f"{stem}_decoder",
        input_names=[*list(axes)[:5], *cache_names(form.decoder_layers, "past")],
        output_names=["logits", *cache_names(form.decoder_layers, "new")],
        dynamic=axes,
        notes={"tokenizer": json.loads(tokenizer), "vocabulary_size": form.vocabulary, "transcription": notes},
        **how,
    )
    for result in results:
        print(result, flush=True)


def _random_form(args: argparse.Namespace) -> Form:
    given = {key: getattr(args, key) for key in SMALLER if getattr(args, key) is not None}
    low = next((key for key, value in given.items() if value < 1), None)
    if low is not None:
        raise ConfigError(f"--{low} {given[low]} must be at least 1")
    for key in ("layers", "heads"):
        if key in given:
            given[f"decoder_{key}"] = given[key]
    if "width" in given:
        given["inner"] = given["decoder_inner"] = 4 * given["width"]
    form = Form(**{**asdict(SIZES[args.size]), **given})
    if form.width % form.heads:
        raise ConfigError(f"--width {form.width} must be a multiple of --heads {form.heads}")
    return form


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument(
        "--weights", default=RANDOM, help="folder in transformers' layout (config.json, generation_config.json, "
        "tokenizer.json, model.safetensors or pytorch_model.bin), or random (default)",
    )  # fmt: skip
    parser.add_argument("--size", choices=tuple(SIZES), default="tiny", help="of random weights (default: tiny)")
    for key in SMALLER:
        parser.add_argument(f"--{key}", type=int, metavar="N", help="of random weights, for a quick check")
    parser.add_argument("--name", help="start of the files' names (default: whisper_SIZE, or the folder's name)")
    parser.add_argument("--exporter", choices=("dynamo", "torchscript"), help="of PyTorch (default: dynamo)")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    return parser.parse_args()


if __name__ == "__main__":
    cli.run(main)
