"""Export a Conformer with CTC to ONNX: conformer_ctc.onnx, conformer_ctc_dyn.onnx, conformer_ctc_float16_dyn.onnx."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
from engine import ConfigError, add_version
from tecoinfer_modelzoo.extra import needed
from utils.export.forms import add_forms
from utils.pipeline import cli
from utils.preprocess.audio.features import LogMel, settings_to_json
from utils.tasks.common.recognised_text import lines_of

with needed(__file__):
    import torch
    from model import SIZES, ConformerCTC, Size

    from utils.export.torch_export import export_onnx

HERE = Path(__file__).resolve().parent
FRAMES = 400
"""Frames of the static file's input: 4 seconds."""

LETTERS = " 'abcdefghijklmnopqrstuvwxyz"
"""Default tokens of a network of 29 classes without a token list."""


def features_of(size: Size, rate: int) -> LogMel:
    """Return NeMo's feature settings: 25 ms of a symmetric Hann window every 10 ms, 512 points at 16 kHz."""
    return LogMel(
        rate=rate,
        fft=512 * rate // 16000,
        window=rate // 40,
        hop=rate // 100,
        bands=size.bands,
        pad="constant",
        periodic=False,
        preemphasis=0.97,
        log="ln",
        floor=2.0**-24,
        guard="add",
    )


def tokens_of(size: Size, known: list[str] | None, file: Path | None) -> list[str]:
    """Return a token per class except the blank, which is the last class.

    Raises:
        ConfigError: their number differs from the number of classes.
    """
    tokens = lines_of(file, "--tokens") if file is not None else known
    if tokens is None:
        tokens = list(LETTERS) if size.classes == len(LETTERS) + 1 else [f"▁{one}" for one in range(size.classes - 1)]
    if len(tokens) != size.classes - 1:
        raise ConfigError(f"{file or 'the model'}: {len(tokens)} tokens for {size.classes} classes; give --tokens FILE")
    return tokens


def main() -> int:
    """Export and print the largest relative error of each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_version(parser)
    parser.add_argument("--size", choices=tuple(SIZES), default="small", help="of a network with random weights")
    parser.add_argument("--weights", type=Path, help="NeMo's .nemo archive, or a folder of transformers' Parakeet")
    parser.add_argument("--tokens", type=Path, help="file with a token per line, if the weights have none")
    parser.add_argument("--rate", type=int, default=16000, choices=(8000, 16000), help="of the recordings, in Hz")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the ONNX files")
    add_forms(parser)
    args = parser.parse_args()
    torch.manual_seed(0)
    known, source = None, "random"
    if args.weights is None:
        size = SIZES[args.size]
        network = ConformerCTC(size)
        print(f"random weights of size {args.size}: their output is meaningless", flush=True)
    else:
        from weights import load, put_in

        loaded = load(args.weights)
        size, known, source = loaded.size, loaded.tokens, args.weights.name
        network = put_in(loaded, args.weights)
    notes = {
        "features": json.loads(settings_to_json(features_of(size, args.rate))),
        "speech_recognition": {"blank": -1, "stride": size.factor, "normalize": "bands"},
    }
    results = export_onnx(
        network.eval(),
        {
            "features": torch.randn(2, FRAMES, size.bands, generator=torch.Generator().manual_seed(0)),
            "lengths": torch.tensor([FRAMES, FRAMES - 77]),
        },
        args.out / "conformer_ctc",
        output_names=["logits"],
        dynamic={"features": {0: "batch", 1: "frames"}, "lengths": {0: "batch"}},
        vocabulary=tokens_of(size, known, args.tokens),
        sample_rate=args.rate,
        provenance={"source": "example/speech/conformer_ctc/model.py", "weights": source},
        notes=notes,
        forms=args.forms,
    )
    for result in results:
        print(result)
    return 0


if __name__ == "__main__":
    cli.run(main)
